"""Runs a bundle node against pyD3TN, the library of µD3TN, over TCP on loopback.

Bundles of version 7 over MTCP and of versions 6 and 7 over TCPCL 3, both directions, from 1 kB to
100 MB. The payload must be the same, each block's check too where the peer looks at it, and tshark
must find nothing malformed in what crossed.

The library sends and receives; it is no node. It writes bundles of version 6 and does not read
them, so of those only the payload is compared. Of TCPCL it reads single segments: those of longer
bundles are put together here.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyd3tn.bundle6 import serialize_bundle6
from pyd3tn.bundle7 import Bundle, CRCType, serialize_bundle7
from pyd3tn.mtcp import MTCPConnection, MTCPSocket
from pyd3tn.sdnv import sdnv_decode
from pyd3tn.tcpcl import (
    TCPCLConnection,
    decode_tcpcl_contact_header,
    serialize_tcpcl_contact_header,
)

OURS, THEIRS = "dtn://ours/", "dtn://theirs/"
SIZES = (1000, 65_536, 1_000_000, 100_000_000)
# Checks of the library are made by Python, an octet at a time.
CHECKED_MAX = 1_000_000
# tshark reads what it holds in memory.
CAPTURED_MAX = 1_000_000
PATIENCE = 60.0
# The message of TCPCL 3 with data of a bundle (RFC 7242, 5.1).
DATA_SEGMENT = 1


@dataclass(frozen=True)
class Case:
    """One bundle."""

    layer: str
    version: int
    to_us: bool
    octets: int

    def name(self) -> str:
        """As the table calls it."""
        way = "pyD3TN to slowlight" if self.to_us else "slowlight to pyD3TN"
        return f"{way}, {self.layer}, version {self.version}, {self.octets} B"


def cases() -> Iterator[Case]:
    """All that is run."""
    for layer, versions in (("mtcp", (7,)), ("tcpcl3", (6, 7))):
        for version in versions:
            for to_us in (True, False):
                for octets in SIZES:
                    yield Case(layer, version, to_us, octets)


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class FailedError(Exception):
    """What went wrong."""


class Node:
    """A slowlight node."""

    def __init__(self, slowlight: Path, folder: Path, case: Case, port: int) -> None:
        self.slowlight, self.folder, self.sock = slowlight, folder, folder / "sock"
        listen = f'listen = ["127.0.0.1:{port}"]\n' if case.to_us else ""
        address = "" if case.to_us else f'address = "127.0.0.1:{port}"\n'
        (folder / "node.toml").write_text(
            f'id = "{OURS}"\nsocket = {json.dumps(str(self.sock))}\ndrain = "1 s"\n'
            f"store.directory = {json.dumps(str(folder / 'store'))}\n"
            f'[[layer]]\nkind = "{case.layer}"\nsegment = "256 KiB"\nkeepalive = "0 s"\n'
            f'reconnect = ["50 ms", "1 s"]\n{listen}'
            f'[[neighbour]]\nnode = "{THEIRS}"\n{address}'
        )
        command = [str(slowlight), "node", "--quiet", str(folder / "node.toml")]
        self.process = subprocess.Popen(command)

    def bp(self, *asked: str) -> subprocess.CompletedProcess[str]:
        """`slowlight bp`."""
        command = [str(self.slowlight), "bp", *asked, "--node", str(self.sock)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    def wait(self) -> None:
        """Until it takes bundles."""
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
        """The payload of the next bundle for service `in`."""
        inbox = self.folder / "inbox"
        inbox.mkdir()
        received = self.bp("recv", "in", str(inbox), "--count", "1")
        if received.returncode != 0:
            raise FailedError(received.stderr.strip())
        (path,) = [path for path in inbox.iterdir() if path.is_file()]
        return path.read_bytes()

    def send(self, payload: bytes, version: int) -> None:
        """Sends a payload as one bundle."""
        path = self.folder / "payload"
        path.write_bytes(payload)
        asked = ["send", f"{THEIRS}in", str(path), "--part", "1 GiB"]
        sent = self.bp(*asked, "--bundle-version", str(version))
        if sent.returncode != 0:
            raise FailedError(sent.stderr.strip())

    def stop(self) -> None:
        """Ends it in order."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def made(case: Case, payload: bytes) -> bytes:
    """A bundle of the library."""
    to, source = f"{OURS}in", f"{THEIRS}out"
    if case.version == 6:
        return bytes(serialize_bundle6(source, to, payload, report_to_eid=THEIRS))
    check = CRCType.CRC32 if case.octets <= CHECKED_MAX else CRCType.NONE
    return bytes(serialize_bundle7(source, to, payload, hop_limit=10, crc_type_canonical=check))


def give(case: Case, port: int, bundle: bytes) -> None:
    """Sends a bundle to the node by the library."""
    if case.layer == "mtcp":
        with MTCPConnection("127.0.0.1", port) as mtcp:
            mtcp.send_bundle(bundle)
        return
    with TCPCLConnection(THEIRS, "127.0.0.1", port) as tcpcl:
        tcpcl.send_bundle(bundle)


def exactly(stream: socket.socket, octets: int) -> bytes:
    """So many octets."""
    parts = []
    while octets > 0:
        part = stream.recv(min(octets, 1 << 20))
        if not part:
            raise FailedError("the stream ended early")
        parts.append(part)
        octets -= len(part)
    return b"".join(parts)


def number(stream: socket.socket) -> bytes:
    """An SDNV as it stands there."""
    octets = exactly(stream, 1)
    while octets[-1] & 0x80:
        octets += exactly(stream, 1)
    return octets


def take(case: Case, listener: socket.socket) -> bytes:
    """A bundle of the node, read by the library."""
    stream, _ = listener.accept()
    stream.settimeout(PATIENCE)
    with stream:
        if case.layer == "mtcp":
            return bytes(MTCPSocket(stream, PATIENCE).recv_bundle())
        stream.sendall(serialize_tcpcl_contact_header(THEIRS))
        header = exactly(stream, 8)
        length = number(stream)
        said = decode_tcpcl_contact_header(
            header + length + exactly(stream, sdnv_decode(length)[0])
        )
        if said["eid"] != OURS:
            raise FailedError(f"the node says that it is {said['eid']}")
        bundle, is_last = b"", False
        while not is_last:
            (first,) = exactly(stream, 1)
            kind, is_last = first >> 4, bool(first & 1)
            if kind != DATA_SEGMENT:
                raise FailedError(f"message {kind} in place of a segment")
            bundle += exactly(stream, sdnv_decode(number(stream))[0])
        return bundle


def payload_of(case: Case, bundle: bytes, expected: bytes) -> bytes:
    """The payload of a bundle of the node."""
    if case.version == 6:
        # The payload block is the last, and nothing follows it.
        return bundle[-len(expected) :]
    payload = Bundle.parse(bundle).payload_block.data
    return bytes(payload)


@contextmanager
def captured(path: Path, port: int, octets: int) -> Iterator[None]:
    """Keeps what crosses, of bundles that are not too long."""
    if octets > CAPTURED_MAX or shutil.which("dumpcap") is None:
        yield
        return
    command = ["dumpcap", "-q", "-i", "lo", "-f", f"tcp port {port}", "-w", str(path), "-B", "64"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    # It says so when it has begun.
    assert process.stderr is not None
    process.stderr.readline()
    time.sleep(0.3)
    try:
        yield
        time.sleep(0.3)
    finally:
        process.terminate()
        process.wait()


def malformed(path: Path, port: int, layer: str) -> str | None:
    """What tshark finds wrong in a capture; it has no dissector for MTCP."""
    if not path.exists() or layer == "mtcp" or shutil.which("tshark") is None:
        return None
    # Twice: at first it does not know what follows.
    read = ["tshark", "-2", "-r", str(path), "-d", f"tcp.port=={port},tcpcl"]
    wrong = "_ws.malformed || _ws.expert.severity == error"
    found = subprocess.run([*read, "-Y", wrong], capture_output=True, text=True, check=True)
    if found.stdout.strip():
        return f"tshark: {found.stdout.strip().splitlines()[0]}"
    bundles = subprocess.run(
        [*read, "-Y", "bundle || bpv7"], capture_output=True, text=True, check=True
    )
    return None if bundles.stdout.strip() else "tshark sees no bundle"


def run(slowlight: Path, case: Case) -> None:
    """Runs a case."""
    payload = random.Random(case.octets).randbytes(case.octets)
    with tempfile.TemporaryDirectory() as name, socket.socket() as listener:
        folder, port = Path(name), free_port()
        capture = folder / "capture.pcapng"
        if not case.to_us:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()
            listener.settimeout(PATIENCE)
        with captured(capture, port, case.octets):
            node = Node(slowlight, folder, case, port)
            try:
                node.wait()
                if case.to_us:
                    give(case, port, made(case, payload))
                    came = node.receive()
                else:
                    node.send(payload, case.version)
                    came = payload_of(case, take(case, listener), payload)
            finally:
                node.stop()
        if came != payload:
            raise FailedError("the payload is another")
        wrong = malformed(capture, port, case.layer)
        if wrong is not None:
            raise FailedError(wrong)


def judged(work: Callable[[], None]) -> str | None:
    """What went wrong, if anything."""
    try:
        work()
    except (FailedError, OSError, ValueError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def main() -> int:
    """Runs all cases; 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slowlight", type=Path, required=True, help="the binary to run")
    given = parser.parse_args()
    slowlight = given.slowlight.resolve()
    failed = 0
    for case in cases():
        begun = time.monotonic()
        wrong = judged(lambda case=case: run(slowlight, case))  # type: ignore[misc]
        seconds = time.monotonic() - begun
        print(f"{wrong or 'ok':<10} {case.name()} ({seconds:.1f} s)", flush=True)
        failed += wrong is not None
    print(f"{failed} of {len(list(cases()))} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
