"""Measures transfers beside floods of small datagrams from one address or many.

For each protocol a receiver gets 5,000 datagrams a second: every kind of PDU in turn, each of
another session, from addresses of 127.0.0.0/8. Beside them a file of 10 MB arrives at 40 Mbit/s.
The table has its time without and with the flood, that of a small file right after the flood, and
what the receiver used. `--raw` adds datagrams without a source port, from broadcast addresses, and
messages of ICMP of every code; it needs root.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

Pdus = Callable[[int], Iterator[bytes]]

PROTOCOLS = ["cfdp", "cfdp-1", "cfdp-ltp", "ltp", "ltp-t", "norm", "norm/coded", "saratoga"]
IP_PKTINFO = 8
# The transfer beside a flood takes at most this many times as long.
RATIO_MAX = 1.3


def sdnv(value: int) -> bytes:
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(0x80 | value & 0x7F)
    return bytes(reversed(digits))


def cfdp(n: int) -> Iterator[bytes]:
    """CFDP: Metadata and File Data of one transaction, and each directive of another."""

    def pdu(kind: int, data: bytes) -> bytes:
        head = bytes([kind]) + struct.pack(">H", len(data)) + b"\x03\x01"
        return head + struct.pack(">I", n & 0xFFFFFFFF) + b"\x02" + data

    for mode in (0x20, 0x24):  # acknowledged, unacknowledged
        yield pdu(mode, bytes.fromhex("070f000003e80161") + b"\x04flod")
        yield pdu(mode | 0x10, struct.pack(">I", 0) + b"x")
        n += 1
        yield pdu(mode, bytes.fromhex("040000000000000003e8"))  # EOF
        n += 1
    yield pdu(0x20, bytes.fromhex("0c00"))  # Keep Alive, wrong on purpose
    yield pdu(0x28, bytes.fromhex("0500"))  # Finished
    yield pdu(0x20, bytes.fromhex("065000"))  # ACK
    yield pdu(0x28, bytes.fromhex("08000000000000000000000000000003e8"))  # NAK
    yield pdu(0x20, bytes.fromhex("0980"))  # Prompt


def ltp(service: int) -> Pdus:
    """LTP: data of all colours, reports, acknowledgments and cancellations."""

    def segments(n: int) -> Iterator[bytes]:
        def head(kind: int, session: int) -> bytes:
            return bytes([kind]) + sdnv(1 + session % 7) + sdnv(session) + b"\x00"

        client = sdnv(service)
        for offset in (0, 5, 9):
            yield head(0, n) + client + bytes([offset, 1]) + b"x"
        yield head(3, n + 1) + client + b"\x00\x08" + sdnv(n + 1) + b"\x00" + b"x" * 8
        yield head(4, n + 2) + client + b"\x00\x01x"
        yield head(7, n + 3) + client + b"\x00\x01x"
        yield head(8, n) + sdnv(9) + sdnv(9) + b"\x01\x00\x01\x00\x01"
        yield head(9, n) + sdnv(9)
        yield head(12, n) + b"\x00"
        yield head(13, n)
        yield head(14, n) + b"\x00"
        yield head(15, n)

    return segments


def saratoga(n: int) -> Iterator[bytes]:
    """Saratoga: requests, METADATA, DATA, STATUS and a beacon."""

    def packet(kind: int, body: bytes) -> bytes:
        return struct.pack(">I", kind) + struct.pack(">I", n & 0xFFFFFFFF) + body

    for request in (0, 1, 2, 3, 4, 5):
        yield packet(0x21900000 | request, b"big.bin\x00")
        n += 1
    yield packet(0x22500000, struct.pack(">I", 1000) + b"flod\x00")
    yield packet(0x23500000, struct.pack(">I", 0) + b"x")
    yield packet(0x24500000, struct.pack(">II", 0, 0))
    yield packet(0x20400000, b"flod\x00")


def recorded(slowlight: str, protocol: str) -> Pdus:
    """The first datagrams of a real sender, with other numbers of the node."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        tempfile.TemporaryDirectory() as it,
    ):
        sink.bind(("127.0.0.1", 0))
        sink.settimeout(2)
        Path(it, "flod").write_bytes(bytes(3000))
        to = f"127.0.0.1:{sink.getsockname()[1]}"
        command = [slowlight, "send", "--protocol", protocol, f"{it}/flod", to]
        command += ["--rate", "1 Mbit/s", "--timeout", "2 s", "--datagram", "200"]
        with subprocess.Popen(
            command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as child:
            kinds: dict[bytes, bytes] = {}
            try:
                while len(kinds) < 6:
                    datagram = sink.recv(2000)
                    kinds.setdefault(datagram[:2] + datagram[8:10], datagram)
            except TimeoutError:
                pass
            child.send_signal(signal.SIGKILL)

    def pdus(n: int) -> Iterator[bytes]:
        for datagram in kinds.values():
            yield datagram[:4] + struct.pack(">I", n & 0xFFFFFFFF | 1) + datagram[8:]

    return pdus


class Flood(threading.Thread):
    """Sends PDUs to a port until it is stopped."""

    def __init__(self, pdus: Pdus, port: int, addresses: int, rate: int, raw: bool) -> None:
        super().__init__(daemon=True)
        self.pdus, self.port, self.addresses, self.rate, self.raw = pdus, port, addresses, rate, raw
        self.over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("0.0.0.0", 0))
        bare = (
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) if self.raw else None
        )
        began = time.monotonic()
        for n in itertools.count(1000, 10):
            for pdu in self.pdus(n):
                if self.over.is_set():
                    return
                k = self.sent % self.addresses
                source = bytes([127, 1 + k // 50_000, k // 200 % 250, 1 + k % 200])
                if self.addresses == 1:
                    source = bytes([127, 0, 0, 1])
                self.sent += 1
                try:
                    if bare is not None and self.sent % 3 == 0:
                        bare.sendto(self.forged(pdu, source), ("127.0.0.1", 0))
                    else:
                        info = struct.pack("=I4s4s", 0, source, bytes(4))
                        ancillary = [(socket.IPPROTO_IP, IP_PKTINFO, info)]
                        sock.sendmsg([pdu], ancillary, 0, ("127.0.0.1", self.port))
                except OSError:
                    pass
                ahead = self.sent / self.rate - (time.monotonic() - began)
                if ahead > 0.002:
                    time.sleep(ahead)

    def forged(self, pdu: bytes, source: bytes) -> bytes:
        """A packet without a source port, from a broadcast address, or a message of ICMP."""
        turn = self.sent // 3
        here = bytes([127, 0, 0, 1])
        if turn % 3 == 2:
            ports = struct.pack(">HHHH", self.port, 40_000 + turn % 9000, 20, 0)
            quoted = ip(here, here, 17, ports)
            kinds = [(3, code) for code in range(16)] + [(4, 0), (5, 0), (11, 0), (11, 1), (12, 0)]
            kind, code = kinds[turn // 3 % len(kinds)]
            body = struct.pack(">BBHI", kind, code, 0, 576) + quoted
            body = body[:2] + struct.pack(">H", checksum(body)) + body[4:]
            return ip(here, here, 1, body)
        port, source = (0, source) if turn % 3 == 0 else (9, b"\xff" * 4)
        return ip(source, here, 17, struct.pack(">HHHH", port, self.port, 8 + len(pdu), 0) + pdu)


def checksum(data: bytes) -> int:
    total = 0
    for (word,) in struct.iter_unpack(">H", data + bytes(len(data) % 2)):
        total += word
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def ip(source: bytes, to: bytes, protocol: int, body: bytes) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, protocol, 0) + source + to
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + body


class Receiver:
    def __init__(self, slowlight: str, protocol: str, root: Path) -> None:
        root.mkdir()
        command = [slowlight, "recv", "--protocol", protocol, "--listen", "127.0.0.1:0"]
        command += ["--root", str(root)]
        if protocol == "saratoga":
            command.append("--serve")
        self.child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.child.stderr is not None
        for line in self.child.stderr:
            if "receiving on " in line:
                self.port = int(line.split("receiving on ")[1].split()[0].rsplit(":", 1)[1])
                break
        threading.Thread(target=self.drain, daemon=True).start()

    def drain(self) -> None:
        assert self.child.stderr is not None
        for _ in self.child.stderr:
            pass

    def usage(self) -> tuple[float, int, float]:
        """Peak memory in MB, descriptors, CPU seconds."""
        base = Path("/proc", str(self.child.pid))
        status = dict(line.split(":", 1) for line in (base / "status").read_text().splitlines())
        memory = int(status["VmHWM"].split()[0]) / 1024
        fields = (base / "stat").read_text().rsplit(")", 1)[1].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return memory, len(list((base / "fd").iterdir())), cpu

    def close(self) -> None:
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()


def send(slowlight: str, protocol: str, file: Path, port: int, folder: Path) -> float | None:
    name = "cfdp" if protocol == "cfdp-1" else protocol
    command = [slowlight, "send", "--protocol", name, str(file), f"127.0.0.1:{port}"]
    command += ["--rate", "40 Mbit/s", "--timeout", "30 s"]
    if name.startswith("cfdp"):
        command += ["--state", str(folder / "state"), "--linger", "0 s"]
    if protocol == "cfdp-1":
        command += ["--class", "1"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.monotonic() - began
    return took if done.returncode == 0 else None


def is_there(root: Path, file: Path, limit: float = 2.0) -> bool:
    """Whether the receiver has the file, soon."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        found = root / file.name
        if found.exists() and found.read_bytes() == file.read_bytes():
            return True
        time.sleep(0.02)
    return False


def measure(slowlight: str, protocol: str, addresses: int, rate: int, raw: bool) -> bool:
    served = "cfdp" if protocol == "cfdp-1" else protocol
    kinds: dict[str, Pdus] = {
        "cfdp": cfdp,
        "cfdp-ltp": ltp(3),
        "ltp": ltp(1),
        "ltp-t": ltp(1),
        "saratoga": saratoga,
    }
    pdus = kinds.get(served) or recorded(slowlight, served)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as it:
        folder = Path(it)
        files = {name: folder / name for name in ("alone", "beside", "after")}
        for name, file in files.items():
            file.write_bytes(os.urandom(200_000 if name == "after" else 10_000_000))
        receiver = Receiver(slowlight, served, folder / "root")
        root = folder / "root"
        (root / "big.bin").write_bytes(os.urandom(1_000_000))
        alone = send(slowlight, protocol, files["alone"], receiver.port, folder)
        flood = Flood(pdus, receiver.port, addresses, rate, raw)
        cpu_before = receiver.usage()[2]
        flood.start()
        began = time.monotonic()
        time.sleep(1)
        beside = send(slowlight, protocol, files["beside"], receiver.port, folder)
        arrived = beside is not None and is_there(root, files["beside"])
        flood.over.set()
        flood.join()
        lasted = time.monotonic() - began
        memory, descriptors, cpu = receiver.usage()
        after = send(slowlight, protocol, files["after"], receiver.port, folder)
        arrived_after = after is not None and is_there(root, files["after"])
        alive = receiver.child.poll() is None
        receiver.close()
        good = arrived and arrived_after and alive and alone is not None
        ratio = beside / alone if beside is not None and alone is not None else float("inf")

        def show(time: float | None, there: bool) -> str:
            return f"{time:6.2f}" if time is not None and there else "  lost"

        print(
            f"{protocol:<11} {addresses:>6}{' raw' if raw else '    '} {flood.sent / lasted:>7.0f}"
            f" {show(alone, True)} {show(beside, arrived)} {ratio:>6.2f}"
            f" {show(after, arrived_after)}"
            f" {memory:>7.1f} {descriptors:>5} {(cpu - cpu_before) / lasted:>5.2f}"
            f" {'' if good and ratio <= RATIO_MAX else 'FAILS'}",
            flush=True,
        )
        return good and ratio <= RATIO_MAX


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slowlight", default="target/release/slowlight")
    parser.add_argument("--protocol", action="append", choices=PROTOCOLS)
    parser.add_argument("--addresses", action="append", type=int)
    parser.add_argument("--rate", type=int, default=5000, help="datagrams a second")
    parser.add_argument(
        "--raw", action="store_true", help="forge sources and messages of ICMP, too"
    )
    arguments = parser.parse_args()
    print(
        "protocol      from        per s  alone beside  ratio  after  MB peak   fds   CPU",
        flush=True,
    )
    good = True
    for protocol in arguments.protocol or PROTOCOLS:
        for addresses in arguments.addresses or [1, 50, 5000]:
            good &= measure(arguments.slowlight, protocol, addresses, arguments.rate, arguments.raw)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
