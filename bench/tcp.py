"""Measures slowlight's TCP against the kernel's, and the kernel's against itself.

Transfers a file from slowlight's TCP to the kernel's over a TUN device, in reverse, and between two
kernels over a veth pair, each in its own network namespaces. Compares the files and shows the best
of several runs, with the CPU time of slowlight's side.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lines import Line, print_targets

SIZE = 1_000_000_000
# Bit/s of a connection without loss, and bits per CPU second.
GOODPUT_BPS = 1e9
OURS, KERNELS = "10.9.0.2", "10.9.0.1"
PAIRS = {
    "send": "TCP, ours to the kernel's",
    "recv": "TCP, the kernel's to ours",
    "kernel": "TCP, the kernel's over veth",
}


def receive(listening: socket.socket, path: Path) -> float:
    """Writes a connection's data to a file; returns seconds from its start to its end."""
    connection, _ = listening.accept()
    began = time.monotonic()
    buffer = bytearray(1 << 20)
    with path.open("wb", buffering=0) as file:
        while got := connection.recv_into(buffer):
            file.write(memoryview(buffer)[:got])
    seconds = time.monotonic() - began
    connection.close()
    return seconds


def connected(address: str, port: int) -> socket.socket:
    """Connects once the port is open; waits at most 10 s."""
    until = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection((address, port), timeout=60)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def give(connection: socket.socket, path: Path) -> float:
    """Sends a file; returns seconds until it was acknowledged and the peer closed."""
    began = time.monotonic()
    with path.open("rb") as file:
        connection.sendfile(file)
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    return time.monotonic() - began


def veth() -> subprocess.Popen[bytes]:
    """A process in another namespace, at the far end of a veth pair."""
    other = subprocess.Popen(["unshare", "-n", "sleep", "120"])
    own = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{other.pid}/ns/net").readlink() == own:
        time.sleep(0.01)
    there = ["nsenter", "-t", str(other.pid), "-n"]
    pair = f"ip link add near type veth peer name far netns {other.pid}"
    for command in (pair, f"ip addr add {KERNELS}/24 dev near", "ip link set near up"):
        subprocess.run(command.split(), check=True)
    for command in (f"ip addr add {OURS}/24 dev far", "ip link set far up"):
        subprocess.run([*there, *command.split()], check=True)
    return other


def one(slowlight: str, pair: str, source: Path, target: Path) -> None:
    """One transfer in this process's namespace; prints its time."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    listening = socket.create_server(("0.0.0.0", 5000))
    listening.settimeout(60)
    if pair == "kernel":
        other = veth()
        sender = ["nsenter", "-t", str(other.pid), "-n", sys.executable, __file__]
        child = subprocess.Popen([*sender, "--slowlight", slowlight, "--give", str(source)])
        seconds = receive(listening, target)
        other.kill()
        other.wait()
    elif pair == "send":
        child = subprocess.Popen([slowlight, "tcp", "send", str(source), f"{KERNELS}:5000"])
        seconds = receive(listening, target)
    else:
        child = subprocess.Popen([slowlight, "tcp", "recv", "5001", str(target)])
        seconds = give(connected(OURS, 5001), source)
    code = child.wait(60)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = usage.ru_utime + usage.ru_stime
    print(json.dumps({"seconds": seconds, "cpu": cpu, "code": code}))


def measure(
    slowlight: Path, size: int = SIZE, runs: int = 3
) -> tuple[list[Line], list[tuple[str, bool]]]:
    """All pairs: lines of the table, and targets."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return [Line(what, "not measured: needs root and ip") for what in PAIRS.values()], []
    shm = Path("/dev/shm")
    lines, judged = [], []
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as name:
        source, target = Path(name) / "source", Path(name) / "target"
        with source.open("wb") as file:
            while file.tell() < size:
                file.write(os.urandom(min(1 << 24, size - file.tell())))
        for pair, what in PAIRS.items():
            best, cpu = 0.0, 0.0
            for _ in range(runs):
                target.unlink(missing_ok=True)
                command = ["unshare", "-n", sys.executable, __file__, "--slowlight", str(slowlight)]
                command += ["--pair", pair, "--source", str(source), "--target", str(target)]
                ended = subprocess.run(
                    command, capture_output=True, text=True, timeout=180, check=False
                )
                if ended.returncode != 0:
                    print(f"  {what}: {ended.stderr.strip()}", file=sys.stderr)
                    continue
                said = json.loads(ended.stdout.splitlines()[-1])
                same = said["code"] == 0 and filecmp.cmp(source, target, shallow=False)
                goodput = 8 * size / said["seconds"] if same else 0.0
                if goodput > best:
                    best, cpu = goodput, said["cpu"]
            note = "the file is the same" if best else "NO RUN BROUGHT THE FILE"
            if best and pair != "kernel":
                note += f"; {cpu:.2f} s of processor time at our side"
                target_bps = f"{what}: {GOODPUT_BPS / 1e9:g} Gbit/s, and of a second of a processor"
                judged.append((target_bps, min(best, 8 * size / cpu) >= GOODPUT_BPS))
            lines.append(Line(f"{what}, {size / 1e6:g} MB", note, best))
    return lines, judged


def main() -> int:
    """Prints the lines and the targets; 1 if a file did not arrive unchanged."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slowlight", type=Path, required=True, help="the binary to measure")
    parser.add_argument("--runs", type=int, default=3, help="runs of each (3)")
    parser.add_argument("--size", type=int, default=SIZE, help="of the file")
    for inner in ("--pair", "--source", "--target", "--give"):
        parser.add_argument(inner, help=argparse.SUPPRESS)
    given = parser.parse_args()

    if given.give:
        give(connected(KERNELS, 5000), Path(given.give))
        return 0
    if given.pair:
        one(str(given.slowlight), given.pair, Path(given.source), Path(given.target))
        return 0
    lines, judged = measure(given.slowlight.resolve(), given.size, given.runs)
    for line in lines:
        print(f"{line.what:<40} {(line.goodput_bps or 0) / 1e9:6.2f} Gbit/s  {line.note}")
    print_targets(judged)
    return 0 if all(line.goodput_bps for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
