"""A slowlight node next to other implementations of bundles, with a capture of their traffic."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

OURS, THEIRS = "dtn://ours/", "dtn://theirs/"
# Longest bundle that is captured: tshark holds it in memory.
CAPTURED_MAX = 1_000_000
PATIENCE = 60.0
# For peers that send primary blocks without CRC.
UNCHECKED = "limits.unchecked = true\n"


class FailedError(Exception):
    """Failure of a case."""


def free_port() -> int:
    """Returns an unused port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass(frozen=True)
class Link:
    """Settings of a layer and of the peer behind it, in the node's file.

    They are what the peer needs, and no more: `docs/peers.md` lists them. `node` has settings of
    the node itself.
    """

    layer: str
    neighbour: str
    node: str = ""


def stream(
    kind: str, port: int, *, listens: bool, keepalive: int, further: str = "", node: str = ""
) -> Link:
    """A layer over TCP, which listens on the port or connects to it.

    `further` has more settings of the layer.
    """
    listen = f'listen = ["127.0.0.1:{port}"]\n' if listens else ""
    layer = (
        f'kind = "{kind}"\nsegment = "256 KiB"\nkeepalive = "{keepalive} s"\n'
        f'reconnect = "50 ms"\nreconnect_max = "1 s"\n{listen}{further}'
    )
    # The name of a peer that connects counts from its address, in protocols with names.
    address = 'from = ["127.0.0.1"]\n' if listens else f'address = "127.0.0.1:{port}"\n'
    return Link(layer, address, node)


def ltp(port: int, peer: int, further: str = "") -> Link:
    """A layer over LTP from the port to the peer's: engine 1 here, engine 2 there."""
    layer = f'kind = "ltpcl"\nlisten = "127.0.0.1:{port}"\nengine = 1\nrate = "200 Mbit/s"\n'
    return Link(layer + further, f'address = "127.0.0.1:{peer}"\nengine = 2\n')


class Node:
    """A slowlight node with one link; `further` has more tables of its file."""

    def __init__(self, slowlight: Path, folder: Path, link: Link, further: str = "") -> None:
        self.slowlight, self.folder, self.sock = slowlight, folder, folder / "sock"
        (folder / "node.toml").write_text(
            f'id = "{OURS}"\nsocket = {json.dumps(str(self.sock))}\ndrain = "1 s"\n'
            f"store.directory = {json.dumps(str(folder / 'store'))}\n{link.node}"
            f'[[layer]]\n{link.layer}[[neighbour]]\nnode = "{THEIRS}"\n{link.neighbour}'
            f"{further}"
        )
        command = [str(slowlight), "node", "--quiet", str(folder / "node.toml")]
        self.process = subprocess.Popen(command)

    def bp(self, *asked: str) -> subprocess.CompletedProcess[str]:
        """Runs `slowlight bp`."""
        command = [str(self.slowlight), "bp", *asked, "--node", str(self.sock)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    def wait(self) -> None:
        """Waits until it accepts bundles."""
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            asked = self.bp("query", "--json")
            if asked.returncode == 0 and json.loads(asked.stdout)["is_ready"]:
                return
            if self.process.poll() is not None:
                raise FailedError("the node has ended")
            time.sleep(0.02)
        raise FailedError("the node is not ready")

    def receive(self) -> bytes:
        """Returns the payload of the next bundle for service `in`."""
        (payload,) = self.receive_all(1)
        return payload

    def receive_all(self, count: int) -> list[bytes]:
        """Returns the payloads of this number of bundles for service `in`."""
        inbox = self.folder / "inbox"
        inbox.mkdir()
        received = self.bp("recv", "in", str(inbox), "--count", str(count))
        if received.returncode != 0:
            raise FailedError(received.stderr.strip())
        return [path.read_bytes() for path in inbox.iterdir() if path.is_file()]

    def send(self, payload: bytes, version: int) -> None:
        """Sends a payload as one bundle."""
        self.send_all([payload], version)

    def send_all(self, payloads: Sequence[bytes], version: int) -> None:
        """Sends each payload as one bundle."""
        paths = []
        for number, payload in enumerate(payloads):
            path = self.folder / f"payload-{number}"
            path.write_bytes(payload)
            paths.append(str(path))
        asked = ["send", f"{THEIRS}in", *paths, "--part", "1 GiB"]
        sent = self.bp(*asked, "--bundle-version", str(version))
        if sent.returncode != 0:
            raise FailedError(sent.stderr.strip())

    def stop(self) -> None:
        """Stops it in order."""
        stop(self.process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process, and kills it after ten seconds."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def captured(path: Path, ports: str, size: int) -> Iterator[None]:
    """Captures traffic of ports (`tcp port 4556`), unless bundles are too long."""
    if size > CAPTURED_MAX or shutil.which("dumpcap") is None:
        yield
        return
    command = ["dumpcap", "-q", "-i", "lo", "-f", ports, "-w", str(path), "-B", "64"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    # It prints a line when it has started.
    assert process.stderr is not None
    process.stderr.readline()
    time.sleep(0.3)
    try:
        yield
        time.sleep(0.3)
    finally:
        process.terminate()
        process.wait()


def malformed(path: Path, decoding: str, known: str | None = None) -> str | None:
    """Returns the faults that tshark finds in a capture, except for known faults of the peer.

    `decoding` names the protocol of a port: `tcp.port==4556,tcpcl`.
    """
    if not path.exists() or shutil.which("tshark") is None:
        return None
    # Two passes: in the first it does not know later packets.
    read = ["tshark", "-2", "-r", str(path), "-d", decoding]
    wrong = "_ws.expert.severity == error" + ("" if known is None else f" && !({known})")
    wrong = f"_ws.malformed || ({wrong})"
    found = subprocess.run([*read, "-Y", wrong], capture_output=True, text=True, check=True)
    if found.stdout.strip():
        return f"tshark: {found.stdout.strip().splitlines()[0]}"
    bundles = subprocess.run(
        [*read, "-Y", "bundle || bpv7"], capture_output=True, text=True, check=True
    )
    return None if bundles.stdout.strip() else "tshark sees no bundle"
