"""Measures bundle nodes over loopback: bundles per second, and latency.

Throughput is measured between two nodes in one process (`node_speed`), fed by an application in the
same process. Each line is measured several times; the table shows median, minimum and maximum.
`slowlight bp ping` measures latency between two processes. dtn7 is measured too, if installed
(`interop/dtn7.py`). Alone it prints these lines and the targets; `run.py` includes them in its
table.

Ten years of contacts between a lander, an orbiter and Earth run in the simulator, in the test
`bundle_years` of the crate `lab`, which checks that nothing is lost. Over streams and LTP every
bundle must arrive: a lost one is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import AF_INET, AF_UNIX, SOCK_STREAM, socket
from threading import Thread
from typing import Any

import programs
from lines import Line, print_targets

ROOT = Path(__file__).resolve().parent.parent
INTEROP = ROOT / "interop"
PYTHON = str(INTEROP / ".venv/bin/python")
# Payload length in bytes, and number of payloads.
SIZES = {50: 100_000, 1000: 100_000, 65_536: 20_000, 1_000_000: 2000, 100_000_000: 20}
# On disk, where everything is written and synced.
DISK_SHARE = 0.2
KINDS = ("tcpcl4", "udpcl", "ltpcl")
# Layers without acknowledgements.
LOSSY = ("udpcl",)
# Payloads for dtn7, which is slower.
PEER_SIZES = {50: 2000, 1000: 2000, 65_536: 1000, 1_000_000: 100, 100_000_000: 2}
REPEATS = 3
PINGS = 1000
# Bundles in one request to a node.
HANDED_IN = 100_000
# The targets: bit/s at 1 MB over TCPCL, and from 1 MB on over LTP with datagrams that Ethernet
# carries, and microseconds there and back.
BPS, LTP_BPS, PING_US = 5e9, 2e9, 300.0
# Bundles per second in one request, on disk, too.
STREAM_PER_S = 20_000.0
# And seconds for ten years of contacts.
DAYS, YEARS_S = 3653, 30.0


@dataclass
class Bundles:
    """Results, targets, and whether a bundle was lost where none may be."""

    lines: list[Line] = field(default_factory=list)
    judged: list[tuple[str, bool]] = field(default_factory=list)
    failed: bool = False

    def add(self, line: Line) -> None:
        """Keeps a line, and shows it at once."""
        self.lines.append(line)
        rate = "" if line.goodput_bps is None else f"{line.goodput_bps / 1e9:.3f} Gbit/s, "
        print(f"  {line.what}: {rate}{line.note}", file=sys.stderr, flush=True)

    def flow(self, what: str, kind: str, size: int, runs: list[dict[str, Any]]) -> float:
        """Keeps the statistics of several runs; bytes per second, times 8."""
        rates = sorted(run["arrived"] / max(run["seconds"], 1e-6) for run in runs)
        middle = statistics.median(rates)
        arrived = min(run["arrived"] / run["sent"] for run in runs)
        lost = f", {1 - arrived:.1%} LOST" if arrived < 1 else ""
        self.failed |= arrived < 1 and kind not in LOSSY
        digits = 0 if rates[0] >= 100 else 2
        shown = [f"{rate:,.{digits}f}" for rate in (middle, rates[0], rates[-1])]
        note = f"{shown[0]} bundles/s ({shown[1]} to {shown[2]}){lost}"
        goodput: float = middle * size * 8
        self.add(Line(what, f"{note}, load {os.getloadavg()[0]:.1f}", goodput))
        return goodput


def name_of(size: int) -> str:
    """Formats bytes with a unit."""
    for unit, scale in (("MB", 1_000_000), ("KiB", 1024)):
        if size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size} B"


def last_json(output: str) -> dict[str, Any]:
    """Content of the last line."""
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def run(program: Path, kind: str, on_disk: bool, size: int, count: int) -> dict[str, Any]:
    """One run of `node_speed`."""
    with tempfile.TemporaryDirectory() as folder:
        store = folder if on_disk else "memory"
        command = [str(program), kind, store, str(size), str(count)]
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return last_json(ended.stdout)


def peer_flow(target: Path, size: int, count: int) -> dict[str, Any] | None:
    """One run between two dtn7 nodes, as reported by `interop/dtn7.py`; None without dtn7."""
    command = [PYTHON, str(INTEROP / "dtn7.py"), "--target", str(target)]
    command += ["--size", str(size), "--count", str(count)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    if ended.returncode != 0 or not ended.stdout:
        print(f"  dtn7 is left out: {ended.stderr.strip()}", file=sys.stderr)
        return None
    return last_json(ended.stdout)


def free_port() -> int:
    """A free port."""
    with socket(AF_INET, SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def nodes(slowlight: Path, folder: Path, store: str) -> Iterator[Path]:
    """Two nodes, the first with a route to the second; yields the first one's socket."""
    port, running = free_port(), []
    try:
        for number in (2, 1):
            place = folder / str(number)
            place.mkdir()
            kept = f"directory = {json.dumps(str(place))}" if store == "disk" else 'memory = "1 GB"'
            listen = f'listen = ["127.0.0.1:{port}"]\n' if number == 2 else ""
            address = f'address = "127.0.0.1:{port}"\n' if number == 1 else 'from = ["127.0.0.1"]\n'
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
            reply = subprocess.run(query, capture_output=True, text=True, check=False)
            if reply.returncode == 0 and json.loads(reply.stdout)["neighbours"]:
                break
            time.sleep(0.05)
        yield sock
    finally:
        for process in running:
            process.terminate()
            process.wait()


def ping(slowlight: Path, store: str) -> tuple[Line, float]:
    """Round-trip times of small bundles, one after the other."""
    with tempfile.TemporaryDirectory() as name, nodes(slowlight, Path(name), store) as sock:
        command = [str(slowlight), "bp", "ping", "ipn:2.2047", "--json", "--interval", "0 s"]
        command += ["--count", str(PINGS), "--node", str(sock)]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
    rtt = json.loads(ended.stdout)["rtt_us"]
    note = f"p50 {rtt['p50']:.0f} us, p90 {rtt['p90']:.0f}, p99 {rtt['p99']:.0f}"
    return Line(f"a bundle there and back, {store}", note), rtt["p50"]


def handed_in(sock: Path, count: int) -> float:
    """Bundles per second that one request hands in, until the last one is stored."""
    entry = b'{"to": "ipn:2.1", "bytes": 100}\n' + bytes(100)
    length = f"Content-Length: {len(entry) * count}"
    head = f"POST /bundles/stream HTTP/1.1\r\nHost: node\r\n{length}\r\n\r\n"
    with socket(AF_UNIX, SOCK_STREAM) as to:
        to.settimeout(60)
        to.connect(str(sock))
        start = time.monotonic()
        sender = Thread(target=lambda: to.sendall(head.encode() + entry * count))
        sender.start()
        stored, rest = 0, b""
        while stored < count and (some := to.recv(1 << 20)):
            seen = rest + some
            if b'"status"' in seen:
                raise ValueError(f"the node refused a bundle: {seen[:300]!r}")
            stored += seen.count(b'"id"') - rest.count(b'"id"')
            rest = seen[-8:]
        seconds = time.monotonic() - start
        sender.join()
    if stored < count:
        raise ValueError(f"the node replied to {stored} of {count} bundles")
    return count / seconds


def stream(slowlight: Path, store: str) -> tuple[Line, float]:
    """Bundles per second that an application sends in one request."""
    rates = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as name, nodes(slowlight, Path(name), store) as sock:
            rates.append(handed_in(sock, HANDED_IN))
    rates.sort()
    middle = statistics.median(rates)
    note = f"{middle:,.0f} bundles/s ({rates[0]:,.0f} to {rates[-1]:,.0f})"
    return Line(f"bundles of 100 B in one request, {store}", note), middle


def build(target: Path) -> Path:
    """Path of the program that measures throughput."""
    return programs.build(target, "node_speed")


def years(target: Path) -> tuple[Line, float]:
    """Seconds the simulator takes for ten years of contacts; it must lose nothing."""
    command = ["cargo", "test", "--quiet", "--locked", "--profile", programs.PROFILE]
    command += ["--target-dir", str(target), "--package", "slowlight-lab", "--test", "it"]
    command += ["--", "--exact", "bundle_years::many_contacts_lose_no_bundle", "--nocapture"]
    environment = {**os.environ, "SLOWLIGHT_DAYS": str(DAYS)}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    told = re.search(r"(\d+) events in ([\d.]+) s of real time", ended.stdout)
    if told is None:
        raise ValueError(f"the test did not report its time: {ended.stdout}")
    events, seconds = int(told.group(1)), float(told.group(2))
    note = f"{seconds:.1f} s, {events / seconds / 1e6:.2f} M events/s"
    return Line(f"{DAYS} days of contacts, simulated", note), seconds


def measure(slowlight: Path, program: Path, target: Path) -> Bundles:
    """Measures everything."""
    found = Bundles()
    best: dict[str, float] = {}
    for on_disk in (False, True):
        where = "disk" if on_disk else "memory"
        for kind in KINDS:
            for size, count in SIZES.items():
                count = max(4, int(count * DISK_SHARE)) if on_disk else count
                what = f"bundles of {name_of(size)}, {kind}, {where}"
                runs = [run(program, kind, on_disk, size, count) for _ in range(REPEATS)]
                goodput = found.flow(what, kind, size, runs)
                if size >= 1_000_000 and not on_disk:
                    best[kind] = max(best.get(kind, 0.0), goodput)
                if (kind, size, on_disk) == ("tcpcl4", 1_000_000, False):
                    best["1 MB"] = goodput
    for size, count in PEER_SIZES.items():
        peers = [peer_flow(target, size, count) for _ in range(REPEATS)]
        if runs := [run for run in peers if run is not None]:
            # Losses of dtn7 are not slowlight's failure.
            found.flow(f"bundles of {name_of(size)}, dtn7, memory", LOSSY[0], size, runs)
    fastest = slowest = float("inf")
    for store in ("memory", "disk"):
        line, p50 = ping(slowlight, store)
        found.add(line)
        fastest = min(fastest, p50)
        line, rate = stream(slowlight, store)
        found.add(line)
        slowest = min(slowest, rate)
    line, seconds = years(target)
    found.add(line)
    found.judged = [
        (
            f"bundles of 1 MB over TCPCL: {best['1 MB'] / 1e9:.1f} Gbit/s, at least {BPS / 1e9:g}",
            best["1 MB"] >= BPS,
        ),
        (
            f"bundles over LTP: {best['ltpcl'] / 1e9:.1f} Gbit/s, at least {LTP_BPS / 1e9:g}",
            best["ltpcl"] >= LTP_BPS,
        ),
        (f"a bundle there and back: {fastest:.0f} us, at most {PING_US:g}", fastest <= PING_US),
        (
            f"bundles in one request: {slowest:,.0f}/s, at least {STREAM_PER_S:,.0f}",
            slowest >= STREAM_PER_S,
        ),
        (f"{DAYS} days of contacts: {seconds:.1f} s, at most {YEARS_S:g}", seconds <= YEARS_S),
    ]
    return found


def main() -> int:
    """Prints the results; 1 if a bundle was lost where none may be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slowlight", type=Path, required=True, help="the binary to measure")
    given = parser.parse_args()
    slowlight = given.slowlight.resolve()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    found = measure(slowlight, build(target), target)
    for line in found.lines:
        rate = "" if line.goodput_bps is None else f"{line.goodput_bps / 1e9:8.3f} Gbit/s"
        print(f"{line.what:<40} {rate:>15}  {line.note}")
    print_targets(found.judged)
    return 1 if found.failed else 0


if __name__ == "__main__":
    sys.exit(main())
