"""Measures the emulator: accuracy of its delays, rates and errors, and its capacity.

Each line is measured several times. Of times the median counts, of capacity the best; the highest
load average of the machine (one minute, including this program) is shown too. Alone it prints these
lines and the targets; `run.py` includes them in its table.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import programs
from lines import Line, print_targets

ROOT = Path(__file__).resolve().parent.parent
# One-way delays in seconds, and rates in bit/s; the offered load is half the rate.
DELAYS = (0.01, 0.3, 1.28)
RATES = (1e7, 1e8, 5e8)
# Ten minutes, in parallel with all other measurements.
LONG_DELAY = 600.0
# The targets: microseconds, shares, packets and bits per second.
HALF_US, OF_100_US = 60.0, 1000.0
RATE_ERROR = 1e-3
BATCHED_S, SINGLE_S, TCP_BPS = 1.5e6, 2e5, 8e9
# 99 % of a normal distribution lie within this many standard deviations.
WITHIN_99 = 2.5758
# Runs the program as an ordinary user that may open a TUN device in its own mount namespace.
AS_NOBODY = """set -e
mount -t tmpfs none /mnt
cp "$0" /mnt/exact
mknod -m 666 /mnt/tun c 10 200
mount --bind /mnt/tun /dev/net/tun
cd /mnt
exec setpriv --reuid 65534 --regid 65534 --clear-groups /mnt/exact "$@"
"""


@dataclass
class Emulator:
    """Results and targets."""

    exact: Path
    repeats: int
    lines: list[Line] = field(default_factory=list)
    judged: list[tuple[str, bool]] = field(default_factory=list)
    reordered: int = 0
    failed: bool = False

    def command(self, what: str, *numbers: float, rootless: bool = False) -> list[str]:
        """Command of one measurement."""
        given = [what, *(f"{number:g}" for number in numbers)]
        if not rootless or os.geteuid() != 0:
            return [str(self.exact), *given]
        return ["unshare", "-m", "sh", "-c", AS_NOBODY, str(self.exact), *given]

    def run(self, what: str, *numbers: float, rootless: bool = False) -> list[dict[str, Any]]:
        """Runs one measurement; the program's lines of JSON."""
        command = self.command(what, *numbers, rootless=rootless)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if ended.returncode != 0:
            self.failed = True
            print(f"  {what}: {ended.stderr.strip()}", file=sys.stderr)
        return [json.loads(line) for line in ended.stdout.splitlines()]

    def several(
        self, what: str, *numbers: float, rootless: bool = False
    ) -> tuple[list[dict[str, Any]], float]:
        """Several runs of one measurement, and the highest load during them."""
        found: list[dict[str, Any]] = []
        load = os.getloadavg()[0]
        for _ in range(self.repeats):
            found += self.run(what, *numbers, rootless=rootless)
            load = max(load, os.getloadavg()[0])
        return found, load

    def add(self, what: str, note: str, goodput_bps: float | None = None) -> None:
        """Keeps a line, and shows it at once."""
        self.lines.append(Line(what, note, goodput_bps))
        rate = f"{goodput_bps / 1e6:,.0f} Mbit/s, " if goodput_bps is not None else ""
        print(f"  {what}: {rate}{note}", file=sys.stderr, flush=True)

    def judge(self, target: str, *, holds: bool) -> None:
        """Keeps whether a target holds."""
        self.judged.append((target, holds))

    def delay(self, found: list[dict[str, Any]], load: float, *, rootless: bool = False) -> None:
        """Deviation of arrivals from those over a perfect link."""
        if not found:
            return
        p50, p99, p999 = (
            statistics.median(one[key] for one in found) for key in ("p50_us", "p99_us", "p999_us")
        )
        one = found[0]
        seconds, rate = one["delay_s"], one["rate_bps"]
        of = f"{seconds:g} s, {rate / 1e6:g} Mbit/s" + (", rootless" if rootless else "")
        packets = sum(one["packets"] for one in found)
        self.reordered += sum(one["reordered"] for one in found)
        note = f"late by {p50:.0f} us (half), {p99:.0f} (99 %), {p999:.0f} (99.9 %)"
        self.add(f"emulator, delay {of}", f"{note}; {packets} packets, load {load:.1f}")
        if not rootless and one["real_time"]:
            target = f"emulator, delay {of}: {note}, at most {HALF_US:g} and {OF_100_US:g}"
            self.judge(target, holds=p50 <= HALF_US and p99 <= OF_100_US)

    def rate(self, bps: float, seconds: float) -> None:
        """The rate of a line that is always busy."""
        found, load = self.several("rate", bps, seconds)
        if not found:
            return
        error = statistics.median(abs(one["error"]) for one in found)
        what = f"emulator, rate {bps / 1e6:g} Mbit/s"
        self.add(what, f"wrong by {error:.4%} over {seconds:g} s, load {load:.1f}")
        target = f"{what}: wrong by {error:.4%}, at most {RATE_ERROR:.1%}"
        self.judge(target, holds=error <= RATE_ERROR)

    def losses(self, seconds: float) -> None:
        """Whether losses match their probability."""
        for one in self.run("loss", seconds):
            sent, p = one["sent"], one["probability"]
            within = WITHIN_99 * math.sqrt(sent * p * (1 - p)) + 0.5
            off = abs(one["lost"] - sent * p)
            what = f"emulator, {one['kind']} of {p:.4f}"
            note = f"{one['lost']} of {sent} lost, {sent * p:.0f} expected (99 %: ±{within:.0f})"
            self.add(what, note)
            self.judge(f"{what}: {note}", holds=off <= within)

    def capacity(self, seconds: float) -> None:
        """Throughput between two hosts, over a wire of the kernel and over a link."""
        best: dict[tuple[str, str], dict[str, Any]] = {}
        loads = []
        for between in ("wire", "link"):
            found, load = self.several(between, seconds)
            loads.append(load)
            for one in found:
                udp = "UDP in batches" if one.get("batches") else "UDP one by one"
                name = udp if one["what"] == "udp" else f"TCP {one['congestion']}"
                key = (name, between)
                if key not in best or one["bps"] > best[key]["bps"]:
                    best[key] = one
                self.reordered += one.get("reordered", 0)
                if one["what"] == "tcp" and not one["intact"]:
                    self.failed = True
                    self.judge(f"emulator, {name} over a {between}: arrives whole", holds=False)
        for (name, between), one in best.items():
            note = f"load {max(loads):.1f}"
            if "packets_s" in one:
                alone = f", {one['alone_s']:,.0f} a processor" if one["alone_s"] else ""
                note = f"{one['packets_s']:,.0f} datagrams/s{alone}, {note}"
            else:
                note = f"all bytes as sent, {note}"
            self.add(f"emulator, {name} over a {between}", note, one["bps"])
        least = {"UDP in batches": BATCHED_S, "UDP one by one": SINGLE_S}
        for name, wanted in least.items():
            got = best.get((name, "link"), {}).get("packets_s", 0.0)
            target = f"emulator, {name}: {got:,.0f}/s, at least {wanted:,.0f}"
            self.judge(target, holds=got >= wanted)
        tcp = [
            one["bps"]
            for (name, _), one in best.items()
            if one["between"] == "link" and name.startswith("TCP")
        ]
        got = max(tcp, default=0.0)
        target = f"emulator, TCP: {got / 1e9:.1f} Gbit/s, at least {TCP_BPS / 1e9:g}"
        self.judge(target, holds=got >= TCP_BPS)

    def tcp(self, bps: float, seconds: float) -> None:
        """Whether TCP uses the whole rate of a link."""
        found, load = self.several("tcp", bps, seconds)
        if not found:
            return
        line = max((one["line_bps"] for one in found), key=lambda got: -abs(got / bps - 1))
        what = f"emulator, TCP at {bps / 1e9:g} Gbit/s"
        note = f"{line / bps:.4%} of the line's rate, load {load:.1f}"
        self.add(what, note, line)
        self.judge(f"{what}: {note}, within 0.1 %", holds=abs(line / bps - 1) <= RATE_ERROR)


def measure(exact: Path, *, quick: bool) -> Emulator:
    """Measures everything; in short form, or with three repeats and ten minutes of delay."""
    emulator = Emulator(exact.resolve(), 1 if quick else 3)
    if not Path("/dev/net/tun").exists():
        print("  the emulator is left out: there is no /dev/net/tun", file=sys.stderr)
        return emulator
    seconds = 2.0
    long = None
    if not quick:
        command = emulator.command("delay", LONG_DELAY, 1e7, 10)
        long = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    emulator.capacity(seconds)
    for delay in DELAYS:
        for rate in RATES:
            emulator.delay(*emulator.several("delay", delay, rate, seconds))
    if os.geteuid() != 0 or shutil.which("setpriv"):
        for rate in RATES:
            found, load = emulator.several("delay", DELAYS[0], rate, seconds, rootless=True)
            emulator.delay(found, load, rootless=True)
    for rate in RATES:
        emulator.rate(rate, seconds if quick else 10.0)
    emulator.losses(seconds)
    emulator.tcp(1e9, 4.0 if quick else 10.0)
    if long is not None:
        output, _ = long.communicate(timeout=2 * LONG_DELAY)
        found = [json.loads(line) for line in output.splitlines()]
        emulator.delay(found, os.getloadavg()[0])
    reordered = emulator.reordered
    emulator.judge(f"emulator: {reordered} packets reordered, none at most", holds=reordered == 0)
    return emulator


def build(target: Path) -> Path:
    """Builds the measuring program and returns its path."""
    return programs.build(target, "exact")


def main() -> int:
    """Measures the emulator alone; 1 if something went wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--exact", type=Path, help="the program that measures, built before")
    parser.add_argument("--quick", action="store_true", help="each once, no ten minutes of delay")
    given = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    emulator = measure(given.exact or build(target), quick=given.quick)
    print_targets(emulator.judged)
    return 1 if emulator.failed else 0


if __name__ == "__main__":
    sys.exit(main())
