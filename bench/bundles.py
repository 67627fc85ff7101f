"""Measures bundle nodes over loopback: how many bundles a second, and how long one takes.

Throughput is that of two nodes in one process (`node_speed`, an example of the crate `lab`), which
an application in the same process feeds. Each line is measured several times: shown are the median,
the lowest and the highest. The times of `slowlight bp ping` are those of two processes. By
itself it prints these lines and the targets; `run.py` has them in its table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import AF_INET, SOCK_STREAM, socket
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Octets of a payload, and how many of them are sent.
SIZES = {50: 100_000, 1000: 100_000, 65_536: 20_000, 1_000_000: 2000, 100_000_000: 20}
# On disk, where all is written and synced.
DISK_SHARE = 0.2
KINDS = ("tcpcl4", "udpcl")
REPEATS = 3
PINGS = 1000
# The targets: bit/s at 1 MB, and microseconds there and back.
BPS, PING_US = 5e9, 300.0


@dataclass
class Line:
    """One line of the table."""

    what: str
    note: str
    goodput_bps: float | None = None


def name_of(octets: int) -> str:
    """Octets as people say them."""
    for unit, scale in (("MB", 1_000_000), ("KiB", 1024)):
        if octets % scale == 0:
            return f"{octets // scale} {unit}"
    return f"{octets} B"


def flow(program: Path, kind: str, store: str, octets: int, count: int) -> dict[str, Any]:
    """One run of `node_speed`."""
    command = [str(program), kind, store, str(octets), str(count)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def flows(program: Path, kind: str, on_disk: bool, octets: int, count: int) -> Line:
    """Several runs."""
    runs = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(flow(program, kind, folder if on_disk else "memory", octets, count))
    rates = sorted(run["bundles_per_s"] for run in runs)
    middle = statistics.median(rates)
    arrived = min(run["arrived"] / run["sent"] for run in runs)
    lost = f", {1 - arrived:.1%} lost" if arrived < 1 else ""
    where = "disk" if on_disk else "memory"
    return Line(
        f"bundles of {name_of(octets)}, {kind}, {where}",
        f"{middle:,.0f} bundles/s ({rates[0]:,.0f} to {rates[-1]:,.0f}){lost}",
        middle * octets * 8,
    )


def free_port() -> int:
    """A port that nobody has now."""
    with socket(AF_INET, SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def nodes(slowlight: Path, folder: Path, store: str) -> Iterator[Path]:
    """Two nodes, of which the first knows where the second is; the first one's socket."""
    port, running = free_port(), []
    try:
        for number in (2, 1):
            place = folder / str(number)
            place.mkdir()
            kept = f"directory = {json.dumps(str(place))}" if store == "disk" else 'memory = "1 GB"'
            listen = f'listen = ["127.0.0.1:{port}"]\n' if number == 2 else ""
            address = f'address = "127.0.0.1:{port}"\n' if number == 1 else ""
            (place / "node.toml").write_text(
                f'id = "ipn:{number}.0"\nsocket = {json.dumps(str(place / "sock"))}\nstore.{kept}\n'
                f'[[layer]]\nkind = "tcpcl4"\n{listen}'
                f'[[neighbour]]\nnode = "ipn:{3 - number}.0"\n{address}'
            )
            command = [str(slowlight), "node", "--quiet", str(place / "node.toml")]
            running.append(subprocess.Popen(command))
        sock = folder / "1" / "sock"
        query = [str(slowlight), "bp", "query", "--json", "--node", str(sock)]
        for _ in range(200):
            asked = subprocess.run(query, capture_output=True, text=True, check=False)
            if asked.returncode == 0 and json.loads(asked.stdout)["neighbours"]:
                break
            time.sleep(0.05)
        yield sock
    finally:
        for process in running:
            process.terminate()
            process.wait()


def ping(slowlight: Path, store: str) -> tuple[Line, float]:
    """Times there and back of small bundles, one after the other."""
    with tempfile.TemporaryDirectory() as name, nodes(slowlight, Path(name), store) as sock:
        command = [str(slowlight), "bp", "ping", "ipn:2.2047", "--json", "--interval", "0 s"]
        command += ["--count", str(PINGS), "--node", str(sock)]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
    rtt = json.loads(ended.stdout)["rtt_us"]
    note = f"p50 {rtt['p50']:.0f} us, p90 {rtt['p90']:.0f}, p99 {rtt['p99']:.0f}"
    return Line(f"a bundle there and back, {store}", note), rtt["p50"]


def build(target: Path) -> Path:
    """The program that measures throughput."""
    cargo = ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", str(target)]
    subprocess.run(
        [*cargo, "--package", "slowlight-lab", "--example", "node_speed"], cwd=ROOT, check=True
    )
    return target / "release/examples/node_speed"


def measure(slowlight: Path, program: Path) -> tuple[list[Line], list[tuple[str, bool]]]:
    """All lines, and how the targets stand."""
    lines = []
    best = 0.0
    for on_disk in (False, True):
        for kind in KINDS:
            for octets, count in SIZES.items():
                count = max(4, int(count * DISK_SHARE)) if on_disk else count
                line = flows(program, kind, on_disk, octets, count)
                lines.append(line)
                if (kind, octets, on_disk) == ("tcpcl4", 1_000_000, False):
                    best = line.goodput_bps or 0.0
    fastest = float("inf")
    for store in ("memory", "disk"):
        line, p50 = ping(slowlight, store)
        lines.append(line)
        fastest = min(fastest, p50)
    judged = [
        (
            f"bundles of 1 MB over TCPCL: {best / 1e9:.1f} Gbit/s, at least {BPS / 1e9:g}",
            best >= BPS,
        ),
        (f"a bundle there and back: {fastest:.0f} us, at most {PING_US:g}", fastest <= PING_US),
    ]
    return lines, judged


def main() -> int:
    """Prints what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slowlight", type=Path, required=True, help="the binary to measure")
    given = parser.parse_args()
    slowlight = given.slowlight.resolve()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    lines, judged = measure(slowlight, build(target))
    for line in lines:
        rate = "" if line.goodput_bps is None else f"{line.goodput_bps / 1e9:8.3f} Gbit/s"
        print(f"{line.what:<40} {rate:>15}  {line.note}")
    for target_text, holds in judged:
        print(f"{'holds' if holds else 'does not hold':<14} {target_text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
