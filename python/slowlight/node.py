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
import threading
from collections.abc import Iterable, Iterator
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
    destination: str = ""
    lifetime: float = 0.0
    """Lifetime that the source gave it, in seconds."""
    age: float = 0.0
    """Age in seconds."""
    hops: tuple[int, int] | None = None
    """Hop limit and hop count, if it has them."""


@dataclass(frozen=True)
class Report:
    """Status report of a bundle: the reporting node, and its events."""

    id: str
    source: str
    events: tuple[str, ...]
    reason: str


def _selection(destination: str | None, source: str | None, state: str | None) -> dict[str, str]:
    chosen = {"destination": destination, "source": source, "state": state}
    return {name: value for name, value in chosen.items() if value is not None}


def _checked(response: http.client.HTTPResponse) -> http.client.HTTPResponse:
    """Returns a response, unless it is a refusal."""
    if response.status >= 400:
        text = response.read().decode(errors="replace")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            text = json.loads(text)["error"]
        raise NodeError(response.status, text)
    return response


class _Sender(threading.Thread):
    """Sends a request with bundles. `error` is the reason if it ends early."""

    def __init__(
        self, to: socket.socket, bundles: Iterable[tuple[str, bytes]], source: str | None
    ) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self._to = to
        self._bundles = bundles
        self._head: dict[str, Any] = {} if source is None else {"from": source}

    def run(self) -> None:
        try:
            self._send()
        except BaseException as error:
            # It is raised where the replies are read, which would wait for more of them.
            self.error = error
            self.stop()

    def stop(self) -> None:
        """Ends the connection; replies that have arrived can still be read."""
        with contextlib.suppress(OSError):
            self._to.shutdown(socket.SHUT_RDWR)

    def _send(self) -> None:
        self._to.sendall(
            b"POST /bundles/stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for destination, payload in self._bundles:
            head = self._head | {"to": destination, "bytes": len(payload)}
            line = json.dumps(head).encode() + b"\n"
            self._to.sendall(b"%x\r\n%b%b\r\n" % (len(line) + len(payload), line, payload))
        self._to.sendall(b"0\r\n\r\n")


class Node:
    """Client of a running node. Each call has a connection of its own."""

    def __init__(self, path: str = DEFAULT_SOCKET, timeout: float | None = 60.0) -> None:
        self._path = path
        self._timeout = timeout

    def status(self) -> dict[str, Any]:
        """Returns the node, its neighbours and counters."""
        status: dict[str, Any] = json.loads(self._request("GET", "/node"))
        return status

    def bundles(
        self,
        *,
        destination: str | None = None,
        source: str | None = None,
        state: str | None = None,
        after: int = 0,
    ) -> list[dict[str, Any]]:
        """Returns up to 10,000 held bundles behind the one with the number `after`."""
        query = _selection(destination, source, state) | {"after": str(after)}
        bundles: list[dict[str, Any]] = json.loads(self._request("GET", "/bundles", query))
        return bundles

    def purge(
        self,
        *,
        destination: str | None = None,
        source: str | None = None,
        state: str | None = None,
    ) -> int:
        """Deletes all held bundles that fit, and returns their number."""
        query = _selection(destination, source, state)
        return int(json.loads(self._request("DELETE", "/bundles", query))["deleted"])

    def send(
        self,
        to: str,
        payload: bytes | IO[bytes],
        *,
        source: str | None = None,
        lifetime: float = 86_400.0,
        priority: str = "normal",
        reports: Iterable[str] = (),
        report_to: str | None = None,
        must_not_fragment: bool = False,
        hop_limit: int | None = None,
        key: str | None = None,
    ) -> str:
        """Sends a bundle and returns its ID. The node has stored it when this returns.

        `reports` are among "received", "forwarded", "delivered" and "deleted". A call that is
        repeated with the same `key` sends no second bundle.
        """
        query = {"to": to, "lifetime_ms": str(int(lifetime * 1000)), "priority": priority}
        optional = {
            "from": source,
            "report_to": report_to,
            "reports": ",".join(reports) or None,
            "must_not_fragment": "true" if must_not_fragment else None,
            "hop_limit": None if hop_limit is None else str(hop_limit),
            "key": key,
        }
        query |= {name: value for name, value in optional.items() if value is not None}
        response = json.loads(self._request("POST", "/bundles", query, payload))
        return str(response["id"])

    def send_many(
        self, bundles: Iterable[tuple[str, bytes]], *, source: str | None = None
    ) -> Iterator[str]:
        """Sends pairs of destination and payload over one connection, and yields their IDs.

        The first refusal is raised when its turn comes. An exception of `bundles` is raised after
        the IDs that have arrived. Bundles that are sent have no other options than the source.
        """
        connection = _Connection(self._path, self._timeout)
        connection.connect()
        # The node replies while bundles are being sent.
        sender = _Sender(connection.sock, bundles, source)
        sender.start()
        try:
            response = http.client.HTTPResponse(connection.sock, method="POST")
            response.begin()
            _checked(response)
            while line := response.readline():
                sent = json.loads(line)
                if "id" not in sent:
                    raise NodeError(sent["status"], sent["error"])
                yield sent["id"]
        except (OSError, ValueError, http.client.HTTPException):
            # The connection has ended, perhaps within a line, because the sender has failed.
            if sender.error is None:
                raise
        finally:
            sender.stop()
            sender.join()
            connection.close()
        if sender.error is not None:
            raise sender.error

    def reports(
        self, source: str | None = None, *, bundle_id: str | None = None, follow: bool = False
    ) -> Iterator[Report]:
        """Yields status reports on bundles from this node; with `follow`, also later ones.

        `source` is the endpoint that sent the bundles.
        """
        connection = _Connection(self._path, None if follow else self._timeout)
        query = {"follow": "true" if follow else "false"}
        query |= {} if source is None else {"source": source}
        query |= {} if bundle_id is None else {"id": bundle_id}
        try:
            response = self._exchange(connection, "GET", "/reports", query, None)
            while line := response.readline():
                head = json.loads(line)
                yield Report(head["id"], head["from"], tuple(head["what"]), head["reason"])
        finally:
            connection.close()

    def cancel(self, bundle_id: str) -> None:
        """Deletes a held bundle."""
        self._request("DELETE", "/bundles", {"id": bundle_id})

    def receive(
        self, endpoint: str, *, confirm: bool = False, share: str = "no"
    ) -> Iterator[Bundle]:
        """Yields the bundles for an endpoint as they arrive, without end.

        With `share="turns"` several applications share the bundles of the endpoint; with
        `share="copies"` each of them gets all.
        """
        connection = _Connection(self._path, None)
        query = {
            "endpoint": endpoint,
            "confirm": "true" if confirm else "false",
            "share": share,
        }
        try:
            response = self._exchange(connection, "GET", "/deliveries", query, None)
            while line := response.readline():
                head = json.loads(line)
                payload = response.read(head["bytes"]) if head["bytes"] else b""
                hops = head.get("hops")
                yield Bundle(
                    head["delivery"],
                    head["id"],
                    head["source"],
                    payload,
                    version=head["version"],
                    verified=tuple(head["verified"]),
                    destination=head["destination"],
                    lifetime=head["lifetime_ms"] / 1000,
                    age=head["age_ms"] / 1000,
                    hops=None if hops is None else (hops["limit"], hops["count"]),
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
        return _checked(connection.getresponse())
