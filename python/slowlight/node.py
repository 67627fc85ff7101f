"""An application of a bundle node: sends and receives bundles over the node's Unix socket.

from slowlight.node import Node

node = Node("/run/slowlight/node.sock")
node.send("ipn:2.1", b"hello")
for bundle in node.receive("1"):
    print(bundle.source, bundle.payload)
    node.confirm(bundle)
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import urlencode

DEFAULT_SOCKET = "/run/slowlight/node.sock"


class NodeError(Exception):
    """Refusal of a request by the node, with its status and message."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Bundle:
    """A delivered bundle. It is delivered again until it is confirmed."""

    delivery: int
    id: str
    source: str
    payload: bytes
    version: int = 7
    verified: tuple[int, ...] = ()


class Node:
    """Client of a running node. Each call has a connection of its own."""

    def __init__(self, path: str = DEFAULT_SOCKET, timeout: float | None = 60.0) -> None:
        self._path = path
        self._timeout = timeout

    def status(self) -> dict[str, Any]:
        """Returns the node, its neighbours and counters."""
        status: dict[str, Any] = json.loads(self._request("GET", "/node"))
        return status

    def bundles(self) -> list[dict[str, Any]]:
        """Returns the held bundles."""
        bundles: list[dict[str, Any]] = json.loads(self._request("GET", "/bundles"))
        return bundles

    def send(
        self,
        to: str,
        payload: bytes | IO[bytes],
        *,
        source: str | None = None,
        lifetime: float = 86_400.0,
        priority: str = "normal",
    ) -> str:
        """Sends a bundle and returns its ID. The node has stored it when this returns."""
        query = {"to": to, "lifetime_ms": str(int(lifetime * 1000)), "priority": priority}
        if source is not None:
            query["from"] = source
        reply = json.loads(self._request("POST", "/bundles", query, payload))
        return str(reply["id"])

    def cancel(self, bundle_id: str) -> None:
        """Deletes a held bundle."""
        self._request("DELETE", "/bundles", {"id": bundle_id})

    def receive(self, endpoint: str, *, confirm: bool = False) -> Iterator[Bundle]:
        """Yields the bundles for an endpoint as they arrive, without end."""
        connection = _Connection(self._path, None)
        query = {"endpoint": endpoint, "confirm": "true" if confirm else "false"}
        try:
            response = self._exchange(connection, "GET", "/deliveries", query, None)
            while line := response.readline():
                head = json.loads(line)
                payload = response.read(head["bytes"]) if head["bytes"] else b""
                verified = tuple(head.get("verified", ()))
                version = head.get("version", 7)
                yield Bundle(
                    head["delivery"], head["id"], head["source"], payload, version, verified
                )
        finally:
            connection.close()

    def confirm(self, bundle: Bundle) -> None:
        """Confirms a bundle: the node may delete it."""
        self._request("DELETE", f"/deliveries/{bundle.delivery}", {"id": bundle.id})

    def ping(self, to: str, count: int = 1, size: int = 64) -> list[float | None]:
        """Returns the round-trip time of each echo in seconds, or None if none came."""
        query = {"to": to, "count": str(count), "bytes": str(size)}
        lines = self._request("POST", "/ping", query).splitlines()
        times = []
        for line in lines:
            pong = json.loads(line)
            if "error" in pong:
                raise NodeError(200, pong["error"])
            rtt = pong["rtt_us"]
            times.append(None if rtt is None else rtt / 1e6)
        return times

    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: bytes | IO[bytes] | None = None,
    ) -> bytes:
        connection = _Connection(self._path, self._timeout)
        try:
            return self._exchange(connection, method, path, query, body).read()
        finally:
            connection.close()

    @staticmethod
    def _exchange(
        connection: _Connection,
        method: str,
        path: str,
        query: dict[str, str] | None,
        body: bytes | IO[bytes] | None,
    ) -> http.client.HTTPResponse:
        target = f"{path}?{urlencode(query)}" if query else path
        connection.request(method, target, body)
        response = connection.getresponse()
        if response.status >= 400:
            text = response.read().decode(errors="replace")
            with contextlib.suppress(ValueError, KeyError, TypeError):
                text = json.loads(text)["error"]
            raise NodeError(response.status, text)
        return response
