"""Measures how time and memory of commands grow with what they process.

Each row runs a command with one, two and four times as much. The exponent is that of the CPU time
between the last two: 1 is in proportion, 2 is with the square. Alone it measures all rows; `run.py`
includes `ROWS_OF_BENCH` in its table.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Exponents above are a fault.
EXPONENT_MAX = 1.15
ROWS_OF_BENCH = ("transfers", "contacts", "packets of a capture")
LIMITS = 'limits = { time = "4000 d", events = 2000000000 }\n'


@dataclass
class Used:
    """CPU time in user mode in seconds, and peak memory in MB."""

    cpu_s: float
    memory_mb: float


@dataclass
class Growth:
    """A row: what grows, how many there are at most, and what each run used."""

    what: str
    most: int
    used: list[Used]

    @property
    def exponent(self) -> float:
        """Exponent of the CPU time between the last two runs."""
        before, after = self.used[-2].cpu_s, self.used[-1].cpu_s
        return math.log2(max(after, 1e-3) / max(before, 1e-3))

    def line(self) -> str:
        """The row as text."""
        runs = [f"{used.cpu_s:8.2f} {used.memory_mb:6.0f}" for used in self.used]
        return f"{self.what:<22} {self.most:>8} {' '.join(runs)} {self.exponent:6.2f}"


def link(near: str, far: str, rate: str, delay: str) -> str:
    """A link in each direction."""
    ends = [(near, far), (far, near)]
    return "".join(
        f'[[links]]\nfrom = "{a}"\nto = "{b}"\nrate = "{rate}"\ndelay = "{delay}"\n'
        for a, b in ends
    )


def transfer(near: str, far: str, protocol: str, size: str, name: str, start: float) -> str:
    """A transfer."""
    return (
        f'[[transfers]]\nfrom = "{near}"\nto = "{far}"\nprotocol = "{protocol}"\n'
        f'size = "{size}"\nname = "{name}"\nstart = "{start} s"\n'
    )


def scenario(folder: Path, text: str) -> list[str]:
    """Writes a scenario; the arguments that run it."""
    path = folder / "scenario.toml"
    path.write_text(f"seed = 1\n{LIMITS}{text}")
    return ["sim", str(path), "--json"]


def transfers(folder: Path, count: int) -> list[str]:
    """Small files one after the other."""
    text = link("a", "b", "10 Mbit/s", "50 ms")
    files = [transfer("a", "b", "cfdp", "5 kB", f"f{n}", n / 10) for n in range(count)]
    return scenario(folder, text + "".join(files))


def nodes(folder: Path, count: int) -> list[str]:
    """Hosts around one to which each sends a file."""
    text = "".join(link(f"n{n}", "hub", "10 Mbit/s", "50 ms") for n in range(count))
    files = [transfer(f"n{n}", "hub", "cfdp", "50 kB", f"f{n}", n / 10) for n in range(count)]
    return scenario(folder, text + "".join(files))


def contacts(folder: Path, days: int) -> list[str]:
    """Days with a bundle and eight contacts each, through an orbiter with a contact plan."""
    plan = ['epoch = "2026-01-01T00:00:00Z"\n']
    windows = [86_400 * day + 21_600 * turn for day in range(days) for turn in range(4)]
    for start in windows:
        for near, far, begin in ((2, 3, start + 600), (3, 1, start + 7200)):
            for ends in (f"from = {near}\nto = {far}", f"from = {far}\nto = {near}"):
                plan.append(
                    f'[[contact]]\n{ends}\nstart = "{begin} s"\nend = "{begin + 1800} s"\n'
                    'rate = "1 Mbit/s"\n'
                )
    path = folder / "plan.toml"
    path.write_text("".join(plan))
    text = "".join(
        f'[nodes.{node}.mib]\ncontact_plan = "{path}"\nlifetime = "30 d"\n'
        for node in ("earth", "lander", "orbiter")
    )
    text += link("lander", "orbiter", "1 Mbit/s", "20 ms")
    text += link("orbiter", "earth", "1 Mbit/s", "20 ms")
    for day in range(days - 3):
        one = transfer("lander", "earth", "bp-tcpcl", "20 kB", f"f{day}", day * 86_400 + 60)
        text += one + 'via = ["orbiter"]\n'
    return scenario(folder, text)


def bundles(folder: Path, count: int) -> list[str]:
    """Bundles that an orbiter holds during an outage."""
    text = '[nodes.lander.mib]\nbundle_size = "2 kB"\n'
    text += link("lander", "orbiter", "20 Mbit/s", "20 ms")
    outage = 'outages = [{ at = "0 s", for = "30 min" }]\n'
    one, other = link("orbiter", "earth", "20 Mbit/s", "20 ms").split("[[links]]")[1:]
    text += f"[[links]]{one}{outage}[[links]]{other}{outage}"
    for n in range(100):
        file = transfer("lander", "earth", "bp-tcpcl", f"{count // 50} kB", f"f{n}", 0)
        text += file + 'via = ["orbiter"]\n'
    return scenario(folder, text)


def receivers(folder: Path, count: int) -> list[str]:
    """Receivers of a group."""
    shape = ["--link", "geo", "--per", "1e-2", "--size", "1 MB", "--runs", "1", "--seed", "1"]
    return ["compare", *shape, "--receivers", str(count), "--protocol", "norm/coded", "--json"]


def segments(folder: Path, count: int) -> list[str]:
    """Segments of a file over a link with losses."""
    shape = ["--link", "geo", "--per", "1e-2", "--runs", "1", "--seed", "1"]
    size = f"{count * 1400} B"
    return ["compare", *shape, "--size", size, "--protocol", "cfdp,ltp,saratoga", "--json"]


def capture(folder: Path, count: int) -> list[str]:
    """Packets of a capture."""
    path = folder / "capture.pcapng"
    text = link("a", "b", "100 Mbit/s", "5 ms")
    text += transfer("a", "b", "cfdp", f"{count * 1400} B", "f", 0)
    made = [*scenario(folder, text), "--pcap", str(path)]
    subprocess.run([SLOWLIGHT, *made], check=True, stdout=subprocess.DEVNULL)
    return ["decode", str(path)]


def cells(folder: Path, count: int) -> list[str]:
    """Cells of a study."""
    text = link("a", "b", "1 Mbit/s", "50 ms") + transfer("a", "b", "ltp", "20 kB", "f", 0)
    scenario(folder, text)
    values = ", ".join(f'"{20 + n} ms"' for n in range(count))
    study = folder / "study.toml"
    study.write_text(
        'about = "growth"\nsource = "none"\n[editions.first]\nabout = "one"\n'
        '[[editions.first.sheets]]\nname = "delays"\nabout = "by light time"\n'
        'world = "scenario.toml"\nruns = 2\n'
        '[[editions.first.sheets.axes]]\nname = "delay"\nkeys = ["links.*.delay"]\n'
        f"values = [{values}]\n"
    )
    return ["study", "run", str(study), "--again", "--jobs", "1"]


Case = Callable[[Path, int], list[str]]
CASES: dict[str, tuple[Case, int]] = {
    "transfers": (transfers, 1000),
    "nodes": (nodes, 100),
    "contacts": (contacts, 180),
    "bundles held": (bundles, 2000),
    "receivers": (receivers, 100),
    "segments": (segments, 20_000),
    "packets of a capture": (capture, 20_000),
    "cells of a study": (cells, 500),
}
SLOWLIGHT = "target/release/slowlight"


def run(case: Case, count: int) -> Used:
    """One run in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [SLOWLIGHT, *case(folder, count)]
        child = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert child.stderr is not None
        said = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            sys.exit(f"{' '.join(command)}: {said.decode()[:2000]}")
        return Used(usage.ru_utime, usage.ru_maxrss / 1024)


def measure(slowlight: Path, only: tuple[str, ...]) -> list[Growth]:
    """Measures the rows with these names."""
    global SLOWLIGHT
    SLOWLIGHT = str(slowlight.resolve())
    rows = []
    for what in only:
        case, least = CASES[what]
        row = Growth(what, 4 * least, [run(case, least * times) for times in (1, 2, 4)])
        rows.append(row)
        print(f"  {row.line()}", file=sys.stderr, flush=True)
    return rows


def judgements(rows: list[Growth]) -> list[tuple[str, bool]]:
    """Each target in words with its result, and whether it holds."""
    return [
        (
            f"growth with {row.what}: exponent {row.exponent:.2f}, at most {EXPONENT_MAX:g}",
            row.exponent <= EXPONENT_MAX,
        )
        for row in rows
    ]


def main() -> int:
    """Measures all rows; 1 if one grows too much."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slowlight", type=Path, default=Path(SLOWLIGHT), help="the binary")
    parser.add_argument("--only", action="append", choices=list(CASES), help="a row; repeatable")
    given = parser.parse_args()
    print("                             most    CPU s     MB  (one, two and four times)  exponent")
    rows = measure(given.slowlight, tuple(given.only or CASES))
    return 1 if any(row.exponent > EXPONENT_MAX for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
