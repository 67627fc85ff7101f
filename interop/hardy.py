"""Bundles to and from Hardy, the node of the crates hardy-bpa and hardy-tcpclv4 (`hardy-node`)."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from bundle_node import OURS, PATIENCE, FailedError, Node, stop


def appeared(path: Path, process: subprocess.Popen[bytes]) -> bytes:
    """Returns the content of a file that a process writes."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        if path.exists():
            return path.read_bytes()
        if process.poll() not in (None, 0):
            raise FailedError(f"the peer has ended with {process.returncode}")
        time.sleep(0.02)
    raise FailedError("nothing arrived")


def run(
    node: Node, program: Path, folder: Path, port: int, payload: bytes, *, to_us: bool, tls: bool
) -> bytes:
    """Sends a payload from one to the other; returns the received payload."""
    secured = str(folder) if tls else "-"
    address, came, given = f"127.0.0.1:{port}", folder / "came", folder / "given"
    peer = None
    try:
        if to_us:
            node.wait()
            given.write_bytes(payload)
            command = [str(program), "-", address, secured, "send", f"{OURS}in", str(given)]
            peer = subprocess.Popen(command, stdin=subprocess.PIPE)
            return node.receive()
        peer = subprocess.Popen([str(program), address, "-", secured, "recv", str(came)])
        node.wait()
        node.send(payload, 7)
        return appeared(came, peer)
    finally:
        if peer is not None:
            stop(peer)
        node.stop()
