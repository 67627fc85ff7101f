"""Runs a bundle node against other implementations, over TCP on loopback.

* pyD3TN, the library of µD3TN: version 7 over MTCP, versions 6 and 7 over TCPCL 3;
* dtn7, the node of that crate: version 7 over MTCP and TCPCL 4, also found by its beacons;
* OpenSSL's TLS: version 7 over TCPCL 4, of which `tls_peer` speaks as much as that needs;
* Hardy, the node of the crates hardy-bpa and hardy-tcpclv4: version 7 over TCPCL 4;
* licklider, an LTP engine: version 7 over LTP, also several bundles in a block;
* dtn7zero, a node in Python: version 7 over MTCP, from it only;
* codecs, with random bundles: the crates bp7 and hardy-bpv7 (also signed and encrypted bundles),
  and py-dtn7.

Both directions, from 1 kB to 100 MB. The payload must be the same, each block's check too where the
peer looks at it, and tshark must find nothing malformed in what crossed. Settings that a peer needs
are in the page `docs/peers.md`.

pyD3TN sends and receives; it is no node. It writes bundles of version 6 and does not read
them, so of those only the payload is compared. Of TCPCL it reads single segments: those of longer
bundles are put together here. What is too long for dtn7's HTTP server reaches it over MTCP and is
passed on. Over TCPCL it says that it takes 64,000 bytes: longer bundles reach it as fragments,
which it does not put together; that is done here.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import codecs_peer
import dtn7
import dtn7_discovery
import dtn7zero_node
import hardy
import ltp_engine
import tls_peer
from bundle_node import (
    OURS,
    PATIENCE,
    THEIRS,
    UNCHECKED,
    FailedError,
    Node,
    captured,
    free_port,
    malformed,
    stream,
)
from ends import build, target_folder
from pyd3tn.bundle6 import serialize_bundle6
from pyd3tn.bundle7 import Bundle, CRCType, serialize_bundle7
from pyd3tn.mtcp import MTCPConnection, MTCPSocket
from pyd3tn.sdnv import sdnv_decode
from pyd3tn.tcpcl import (
    TCPCLConnection,
    decode_tcpcl_contact_header,
    serialize_tcpcl_contact_header,
)

SIZES = (1000, 65_536, 1_000_000, 100_000_000)
# Longest bundle that the library verifies: Python computes the CRC a byte at a time.
CHECKED_MAX = 1_000_000
# The message of TCPCL 3 with data of a bundle (RFC 7242, 5.1).
DATA_SEGMENT = 1
# dtn7's names of the layers.
LAYERS = {"mtcp": "mtcp", "tcpcl4": "tcp"}
PEERS = ("pyD3TN", "dtn7", "Hardy", "OpenSSL", "licklider", "dtn7zero", "codecs")


@dataclass(frozen=True)
class Case:
    """One bundle."""

    peer: str
    layer: str
    version: int
    to_us: bool
    size: int

    def name(self) -> str:
        """Name in the table."""
        way = f"{self.peer} to slowlight" if self.to_us else f"slowlight to {self.peer}"
        return f"{way}, {self.layer}, version {self.version}, {self.size} B"


def cases(peers: list[str]) -> Iterator[Case]:
    """Returns all cases."""
    for peer, layer, versions in (
        ("pyD3TN", "mtcp", (7,)),
        ("pyD3TN", "tcpcl3", (6, 7)),
        ("dtn7", "mtcp", (7,)),
        ("dtn7", "tcpcl4", (7,)),
        ("Hardy", "tcpcl4", (7,)),
        ("Hardy", "tcpcl4 over TLS", (7,)),
        ("OpenSSL", "tcpcl4", (7,)),
    ):
        for version in versions:
            for to_us in (True, False):
                for size in SIZES:
                    if peer in peers:
                        yield Case(peer, layer, version, to_us, size)


def made(case: Case, payload: bytes) -> bytes:
    """Makes a bundle with the library."""
    to, source = f"{OURS}in", f"{THEIRS}out"
    if case.version == 6:
        return bytes(serialize_bundle6(source, to, payload, report_to_eid=THEIRS))
    check = CRCType.CRC32 if case.size <= CHECKED_MAX else CRCType.NONE
    return bytes(serialize_bundle7(source, to, payload, hop_limit=10, crc_type_canonical=check))


def give(case: Case, port: int, bundle: bytes) -> None:
    """Sends a bundle to the node with the library."""
    if case.layer == "mtcp":
        with MTCPConnection("127.0.0.1", port) as mtcp:
            mtcp.send_bundle(bundle)
        return
    with TCPCLConnection(THEIRS, "127.0.0.1", port) as tcpcl:
        tcpcl.send_bundle(bundle)


def exactly(stream: socket.socket, size: int) -> bytes:
    """Reads this number of bytes."""
    parts = []
    while size > 0:
        part = stream.recv(min(size, 1 << 20))
        if not part:
            raise FailedError("the stream ended early")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def number(stream: socket.socket) -> bytes:
    """Reads an SDNV, undecoded."""
    data = exactly(stream, 1)
    while data[-1] & 0x80:
        data += exactly(stream, 1)
    return data


def take(case: Case, listener: socket.socket) -> bytes:
    """Reads a bundle of the node with the library."""
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
    """Returns the payload of a bundle of the node."""
    if case.version == 6:
        # The payload block is the last, and nothing follows it.
        return bundle[-len(expected) :]
    payload = Bundle.parse(bundle).payload_block.data
    return bytes(payload)


def run_library(slowlight: Path, case: Case, folder: Path, port: int, payload: bytes) -> bytes:
    """Runs a case with pyD3TN; returns the received payload."""
    with socket.socket() as listener:
        if not case.to_us:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()
            listener.settimeout(PATIENCE)
        node = Node(slowlight, folder, stream(case.layer, port, listens=case.to_us, keepalive=0))
        try:
            node.wait()
            if case.to_us:
                give(case, port, made(case, payload))
                return node.receive()
            node.send(payload, case.version)
            return payload_of(case, take(case, listener), payload)
        finally:
            node.stop()


def assembled(bundles: Iterator[bytes]) -> bytes:
    """Returns the payload of a bundle, or of all fragments of one."""
    whole, missing = bytearray(), -1
    for encoded in bundles:
        bundle = Bundle.parse(encoded)
        data = bytes(bundle.payload_block.data)
        if not bundle.is_fragmented:
            return data
        total, offset = (
            bundle.primary_block.total_payload_length,
            bundle.primary_block.fragment_offset,
        )
        if missing < 0:
            whole, missing = bytearray(total), total
        whole[offset : offset + len(data)] = data
        # A duplicate fragment is detected: others are missing then, and the payload differs.
        missing -= len(data)
        if missing <= 0:
            return bytes(whole)
    raise FailedError("bundles end before the last fragment")


def run_dtn7(
    slowlight: Path, program: Path, case: Case, folder: Path, port: int, payload: bytes
) -> bytes:
    """Runs a case with dtn7; returns the received payload."""
    layer = LAYERS[case.layer]
    # With 0 it would end the session at once, because that is its keepalive timeout.
    link = stream(case.layer, port, listens=case.to_us, keepalive=30, node=UNCHECKED)
    node = Node(slowlight, folder, link)
    try:
        if not case.to_us:
            place = dtn7.Place(listens=((layer, port),))
            with dtn7.running(program, folder / "dtn7", "theirs", place) as daemon:
                node.wait()
                node.send(payload, case.version)
                return assembled(daemon.received())
        node.wait()
        inlet = free_port()
        place = dtn7.Place(listens=(("mtcp", inlet),), neighbours=((layer, port, "ours"),))
        with dtn7.running(program, folder / "dtn7", "theirs", place) as daemon:
            if case.size <= dtn7.REQUEST_MAX:
                daemon.send(f"{OURS}in", payload)
            else:
                with MTCPConnection("127.0.0.1", inlet) as mtcp:
                    mtcp.send_bundle(made(case, payload))
            return node.receive()
    finally:
        node.stop()


def run_secured(slowlight: Path, case: Case, folder: Path, port: int, payload: bytes) -> bytes:
    """Runs a case over OpenSSL's TLS; returns the received payload."""
    papers = tls_peer.Papers.made(folder)
    with socket.socket() as listener:
        if not case.to_us:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()
            listener.settimeout(PATIENCE)
        further = papers.table()
        link = stream(case.layer, port, listens=case.to_us, keepalive=0, further=further)
        node = Node(slowlight, folder, link)
        try:
            node.wait()
            if case.to_us:
                with tls_peer.session(papers, port, None) as session:
                    session.give(made(case, payload))
                return node.receive()
            node.send(payload, case.version)
            with tls_peer.session(papers, port, listener) as session:
                return payload_of(case, session.take(), payload)
        finally:
            node.stop()


def run_hardy(
    slowlight: Path, program: Path, case: Case, folder: Path, port: int, payload: bytes
) -> bytes:
    """Runs a case with Hardy; returns the received payload."""
    is_secured = case.layer != "tcpcl4"
    further = ""
    if is_secured:
        papers = tls_peer.Papers.made(folder)
        # Hardy has no certificate when it connects.
        anonymous = ", node_id = false, anonymous = true" if case.to_us else ""
        further = papers.table(anonymous)
    link = stream("tcpcl4", port, listens=case.to_us, keepalive=30, further=further)
    node = Node(slowlight, folder, link)
    return hardy.run(node, program, folder, port, payload, to_us=case.to_us, tls=is_secured)


def run(slowlight: Path, programs: dict[str, Path], case: Case) -> None:
    """Runs a case."""
    payload = random.Random(case.size).randbytes(case.size)
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        capture = folder / "capture.pcapng"
        # tshark cannot decode TLS, and has no dissector for MTCP.
        is_seen = case.peer != "OpenSSL" and case.layer in ("tcpcl3", "tcpcl4")
        with captured(capture, f"tcp port {port}", case.size) if is_seen else nullcontext():
            if case.peer == "dtn7":
                came = run_dtn7(slowlight, programs["dtn7"], case, folder, port, payload)
            elif case.peer == "Hardy":
                came = run_hardy(slowlight, programs["Hardy"], case, folder, port, payload)
            elif case.peer == "OpenSSL":
                came = run_secured(slowlight, case, folder, port, payload)
            else:
                came = run_library(slowlight, case, folder, port, payload)
        if came != payload:
            raise FailedError("the payload is another")
        # dtn7 does not repeat a segment's flags when it acknowledges it (RFC 9174, 5.2.3).
        side = "dst" if case.to_us else "src"
        fault = f"tcp.{side}port == {port} && tcpcl.xfer_ack_mismatch_flags"
        known = fault if case.peer == "dtn7" else None
        wrong = malformed(capture, f"tcp.port=={port},tcpcl", known)
        if wrong is not None:
            raise FailedError(wrong)


def built(target: Path, peers: list[str]) -> dict[str, Path]:
    """Builds programs of peers; those that cannot be had are left out."""
    found = {
        "dtn7": dtn7.install(target) if "dtn7" in peers else None,
        "Hardy": build(target, "hardy-peer", "hardy-node") if "Hardy" in peers else None,
        "licklider": build(target, "ltp-peer") if "licklider" in peers else None,
        "dtn7zero": dtn7zero_node.install(target) if "dtn7zero" in peers else None,
    }
    return {peer: program for peer, program in found.items() if program is not None}


def all_cases(
    slowlight: Path, target: Path, programs: dict[str, Path], peers: list[str]
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields names and functions of all cases of these peers."""
    for case in cases(peers):
        if case.peer in ("pyD3TN", "OpenSSL") or case.peer in programs:
            yield case.name(), lambda case=case: run(slowlight, programs, case)  # type: ignore[misc]
    if "dtn7" in programs:
        yield from dtn7_discovery.cases(slowlight, programs["dtn7"])
    if "licklider" in programs:
        yield from ltp_engine.cases(slowlight, programs["licklider"])
    if "dtn7zero" in programs:
        yield from dtn7zero_node.cases(slowlight, programs["dtn7zero"])
    if "codecs" in peers:
        yield from codecs_peer.cases(target)


def judged(what: str, work: Callable[[], None]) -> bool:
    """Runs a function, and prints its result. Returns whether it succeeded."""
    started, wrong = time.monotonic(), ""
    try:
        work()
    except (FailedError, OSError, ValueError, subprocess.SubprocessError) as error:
        wrong = f"{type(error).__name__}: {error}"
    print(f"{wrong or 'ok':<10} {what} ({time.monotonic() - started:.1f} s)", flush=True)
    return not wrong


def main() -> int:
    """Runs all cases; 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slowlight", type=Path, help="the binary to run")
    parser.add_argument("--peer", action="append", default=[], choices=PEERS, help="only this peer")
    parser.add_argument("--build", action="store_true", help="build dtn7, and say where it is")
    given = parser.parse_args()
    peers = given.peer or list(PEERS)
    target = target_folder()
    programs = built(target, ["dtn7"] if given.build else peers)
    if given.build:
        print(json.dumps({"dtnd": str(programs["dtn7"]) if "dtn7" in programs else None}))
        return 0
    if given.slowlight is None:
        parser.error("--slowlight is missing")
    named = all_cases(given.slowlight.resolve(), target, programs, peers)
    outcomes = [judged(name, work) for name, work in named]
    print(f"{outcomes.count(False)} of {len(outcomes)} failed")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
