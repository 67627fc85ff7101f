"""Compares slowlight's congestion control with the kernel's, over the same emulated links.

A sender, slowlight's or the kernel's, has unlimited data; the kernel receives at the far end and
counts the bytes within a given time from the connection on. Each run has another seed. Runs repeat
until the 95 % confidence interval of the mean is narrow, or up to a maximum.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

# Names of congestion controls in `slowlight tcp` and in the kernel.
CONTROLS = {"newreno": "reno", "cubic": "cubic", "bbr": "bbr"}
# Maximum difference of slowlight's goodput from the kernel's, and maximum uncertainty of both.
WITHIN, INTERVAL = 0.10, 0.05
# Student's t for a 95 % interval, by degrees of freedom; the last also for more.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160),
    *(2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056),
    *(2.052, 2.048, 2.045, 2.0),
)
# Receiver: prints the bytes received within some seconds from the connection on.
RECEIVER = """
import socket, sys, time
listening = socket.create_server(("0.0.0.0", 5000))
connection, _ = listening.accept()
end = time.monotonic() + float(sys.argv[1])
got, buffer = 0, bytearray(1 << 20)
while (left := end - time.monotonic()) > 0:
    connection.settimeout(left)
    try:
        got += connection.recv_into(buffer)
    except TimeoutError:
        break
with open(sys.argv[2], "w") as file:
    file.write(str(got))
"""
# The kernel as sender.
SENDER = """
import socket, sys
connection = socket.socket()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[2].encode())
connection.connect((sys.argv[1], 5000))
try:
    while True:
        connection.sendall(bytes(1 << 18))
except OSError:
    pass
"""
# No metrics of earlier connections are kept; buffers suffice for every window here.
SYSCTLS = (
    "net.ipv4.ip_forward=1 net.ipv4.tcp_no_metrics_save=1 "
    "net.ipv4.tcp_rmem='4096 131072 33554432' net.ipv4.tcp_wmem='4096 16384 33554432'"
)


@dataclass(frozen=True)
class Link:
    """A link, as options of `slowlight link`; errors are in the direction of the data."""

    name: str
    options: tuple[str, ...]
    seconds: float


# Rate, round trip and queue keep each control in its steady state most of the time.
LINKS = (
    Link(
        "1 % loss, 100 ms, 20 Mbit/s",
        ("--delay=50 ms", "--rate=20 Mbit/s", "--queue=250 kB", "--per=0.01", "--return-per=0"),
        60,
    ),
    Link("10 Mbit/s, 600 ms", ("--delay=300 ms", "--rate=10 Mbit/s", "--queue=750 kB"), 120),
    Link(
        "10 Mbit/s, 100 ms, queue of 20 packets",
        ("--delay=50 ms", "--rate=10 Mbit/s", "--queue=20 packets"),
        60,
    ),
)


@dataclass
class Side:
    """Goodput of one sender in bit/s, per run."""

    runs: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.runs) if self.runs else math.nan

    @property
    def interval(self) -> float:
        """Half the 95 % confidence interval of the mean, as a share of it."""
        if len(self.runs) < 2 or not self.mean:
            return math.inf
        freedom = min(len(self.runs) - 1, len(STUDENT))
        error = statistics.stdev(self.runs) / math.sqrt(len(self.runs))
        return STUDENT[freedom - 1] * error / self.mean

    @property
    def is_known(self) -> bool:
        return 2 * self.interval < INTERVAL


@dataclass
class Pair:
    """slowlight's and the kernel's sender on one link."""

    link: Link
    control: str
    ours: Side = field(default_factory=Side)
    kernel: Side = field(default_factory=Side)

    @property
    def ratio(self) -> float:
        return self.ours.mean / self.kernel.mean if self.kernel.mean else math.nan

    def row(self) -> str:
        known = self.ours.is_known and self.kernel.is_known
        holds = abs(self.ratio - 1) <= WITHIN
        verdict = ("holds" if holds else "differs") if known else "not known well enough"
        sides = "  ".join(
            f"{side.mean / 1e6:7.3f} ±{100 * side.interval:5.1f} % ({len(side.runs):2})"
            for side in (self.ours, self.kernel)
        )
        return f"{self.link.name:<40} {self.control:<8} {sides}  {self.ratio:6.3f}  {verdict}"


def run(slowlight: Path, link: Link, sender: str, seed: int) -> float:
    """Goodput in bit/s of one run; `sender` starts with `kernel:` if it is the kernel's."""
    with tempfile.TemporaryDirectory() as name:
        count = Path(name) / "bytes"
        receiver = f"exec {sys.executable} -c '{RECEIVER}' {link.seconds} {count}"
        kernels = sender.removeprefix("kernel:")
        if kernels != sender:
            send = [sys.executable, "-c", SENDER, "10.0.0.1", kernels]
        else:
            data = Path(name) / "data"
            with data.open("wb") as file:
                file.truncate(2_000_000_000)
            send = [str(slowlight), "tcp", "send", str(data), "10.0.0.1:5000"]
            send += ["--congestion", sender, "--send-buffer", "auto:32MiB"]
        ready = f"sysctl -qw {SYSCTLS}"
        command = [str(slowlight), "link", *link.options, f"--seed={seed}", "--wait-for=5000"]
        command += ["--server", f"{ready}; ip route add 10.9.0.0/24 dev near; {receiver}"]
        command += ["--", "sh", "-c", f'{ready}; exec "$@"', "sh", *send]
        subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=link.seconds + 60,
            check=False,
        )
        return 8 * int(count.read_text()) / link.seconds if count.exists() else math.nan


def measure(slowlight: Path, pairs: list[Pair], jobs: int, most: int) -> None:
    """Runs of each pair, `jobs` at a time, until both sides are certain enough."""

    def rounds() -> Iterator[list[tuple[Pair, bool, int]]]:
        for first in range(1, most + 1, 5):
            seeds = range(first, min(first + 5, most + 1))
            yield [
                (pair, is_ours, seed)
                for pair in pairs
                for is_ours in (True, False)
                if not (pair.ours if is_ours else pair.kernel).is_known
                for seed in seeds
            ]

    def one(task: tuple[Pair, bool, int]) -> None:
        pair, is_ours, seed = task
        sender = pair.control if is_ours else f"kernel:{CONTROLS[pair.control]}"
        goodput = run(slowlight, pair.link, sender, seed)
        if math.isnan(goodput):
            print(f"  no result: {pair.link.name}, {sender}, seed {seed}", file=sys.stderr)
            return
        (pair.ours if is_ours else pair.kernel).runs.append(goodput)
        if sys.stderr.isatty():
            print(f"\r{pair.link.name}, {sender}: {goodput / 1e6:.3f} Mbit/s   ", file=sys.stderr)

    with ThreadPoolExecutor(jobs) as pool:
        for tasks in rounds():
            list(pool.map(one, tasks))


def main() -> int:
    """Measures all pairs; 1 if one differs or is uncertain."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slowlight", type=Path, required=True, help="the binary to measure")
    parser.add_argument("--jobs", type=int, default=6, help="runs at a time (6)")
    parser.add_argument("--most", type=int, default=40, help="runs of each at most (40)")
    parser.add_argument("--control", choices=CONTROLS, action="append", help="this alone")
    parser.add_argument("--link", type=int, choices=range(len(LINKS)), help="this alone")
    parser.add_argument("--json", type=Path, help="all runs, into this file")
    given = parser.parse_args()

    links = LINKS if given.link is None else LINKS[given.link : given.link + 1]
    pairs = [Pair(link, control) for link in links for control in given.control or CONTROLS]
    measure(given.slowlight.resolve(), pairs, given.jobs, given.most)
    print(f"{'link':<40} {'control':<8} {'ours, Mbit/s':<25}  {'kernel, Mbit/s':<25}  ratio")
    for pair in pairs:
        print(pair.row())
    print(f"{os.cpu_count()} processors, {given.jobs} runs at a time")
    if given.json:
        given.json.write_text(json.dumps([asdict(pair) for pair in pairs], indent=1) + "\n")
    return 0 if all(pair.row().endswith("holds") for pair in pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
