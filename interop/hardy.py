"""Hardy, the node of the crates hardy-bpa and hardy-tcpclv4: how it is had, and a bundle by it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bundle_node import OURS, PATIENCE, FailedError, Node, stop
from ends import HERE

# Time limit of a build; Hardy takes four minutes on two free cores.
BUILD_MAX = 1200.0


def build(target: Path, package: str, program: str | None = None) -> Path | None:
    """Builds a program of the workspace here; None, with a message, if that fails."""
    name = program or package
    if shutil.which("cargo") is None:
        print(f"{name} is left out: there is no cargo", file=sys.stderr)
        return None
    cargo = ["cargo", "build", "--quiet", "--release", "--locked", "--package", package]
    command = [*cargo, "--bin", name, "--manifest-path", str(HERE / "Cargo.toml")]
    environment = {key: value for key, value in os.environ.items() if key != "RUSTFLAGS"}
    try:
        subprocess.run(
            [*command, "--target-dir", str(target)], check=True, env=environment, timeout=BUILD_MAX
        )
    except (subprocess.SubprocessError, OSError) as error:
        print(f"{name} is left out: {error}", file=sys.stderr)
        return None
    return target / "release" / name


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
