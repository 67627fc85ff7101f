"""Compares TCP in the simulator with slowlight's and the kernel's TCP in the emulator.

Each row is a link, a file size and a congestion control. The measured time is that of the transfer:
from the connection until the sender knows that everything arrived. Every run has its own seed.

A journal keeps the results, so an interrupted measurement resumes. Runs in which the emulator was
late are repeated, and count only if there is no other. Runs count only for their own version: the
binary, or the kernel's release where the kernel is at both ends.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import math
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path

# Names of congestion controls in `slowlight` and in the kernel.
CONTROLS = {"newreno": "reno", "cubic": "cubic", "bbr": "bbr"}
# The simulator agrees within this share of the kernel, or within both 95 % intervals.
WITHIN = 0.10
# Minimum runs of the kernel for a verdict on a row with random losses.
FEWEST = 3
# Student's t for a 95 % interval, by degrees of freedom; the last also for more.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160),
    *(2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056),
    *(2.052, 2.048, 2.045, 2.0),
)
SIDES = ("sim", "ours", "kernel")
# Hosts of `slowlight link`: the sender and the receiver.
ENDS = ("near", "far")
# Receiver: prints the time from the connection to the end of the file, and the bytes received.
RECEIVER = """
import socket, sys, time
listening = socket.create_server(("0.0.0.0", 5000))
connection, _ = listening.accept()
begin, length, buffer = time.monotonic(), 0, bytearray(1 << 20)
while count := connection.recv_into(buffer):
    length += count
with open(sys.argv[1], "w") as file:
    file.write(f"{time.monotonic() - begin} {length}")
"""
# The kernel as sender.
SENDER = """
import socket, sys
connection = socket.socket()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[2].encode())
content = bytes(int(sys.argv[3]))
connection.connect((sys.argv[1], 5000))
connection.sendall(content)
connection.shutdown(socket.SHUT_WR)
while connection.recv(4096):
    pass
"""


@dataclass(frozen=True)
class Row:
    """A link as keys of a link file, a size and a control."""

    name: str
    link: dict[str, str]
    size: int
    control: str
    # Runs in the simulator and of either TCP in the emulator.
    runs: tuple[int, int] = (1, 2)
    relay: bool = False
    buffers: str = "unlimited"

    @property
    def key(self) -> str:
        return f"{self.name}, {self.size / 1e6:g} MB, {self.control}"

    @property
    def round_trip(self) -> float:
        return 2 * float(self.link["delay"].split()[0]) / 1e3

    def file(self) -> str:
        """The link file."""
        hop = "\n".join(["[[hops]]", *(f"{key} = {value}" for key, value in self.quoted())])
        first = '[[hops]]\nrate = "1 Gbit/s"\n' if self.relay else ""
        return f'about = "{self.name}"\n{first}{hop}\n'

    def scenario(self, seed: int) -> str:
        """The link both ways between hosts of the emulator's names, whose links lose the same
        packets with the same seed, and a transfer.
        """
        keys = "\n".join(f"{key} = {value}" for key, value in self.quoted())
        ways = (ENDS, ENDS[::-1])
        links = [f'[[links]]\nfrom = "{one}"\nto = "{other}"\n{keys}' for one, other in ways]
        transfer = f'from = "{ENDS[0]}"\nto = "{ENDS[1]}"\nprotocol = "ftp/{self.control}"'
        size = f'size = "{self.size} B"'
        return "\n".join([f"seed = {seed}", *links, "[[transfers]]", transfer, size, ""])

    @property
    def shares_losses(self) -> bool:
        """Whether both sides lose the same packets with the same seed, and little else differs."""
        return "per" in self.link and self.control != "bbr"

    def quoted(self) -> list[tuple[str, str]]:
        bare = ("per", "outages", "drop")
        return [(k, v if k in bare else f'"{v}"') for k, v in self.link.items()]


def _link(rate: str, delay: str, **more: str) -> dict[str, str]:
    return {"rate": f"{rate} Mbit/s", "delay": f"{delay} ms", **more}


def _rows() -> list[Row]:
    all_of = ("cubic", "newreno", "bbr")
    lossy = (12, 12)
    rows: list[Row] = []

    def runs_of(control: str, runs: tuple[int, int]) -> tuple[int, int]:
        # BBR starts its cycle in a random phase, and probes for the minimum round trip at random
        # times: a single run means little.
        return (max(runs[0], 20), max(runs[1], 5)) if control == "bbr" else runs

    def add(
        name: str,
        link: dict[str, str],
        size: float,
        controls: tuple[str, ...] = all_of,
        runs: tuple[int, int] = (1, 2),
        **more: object,
    ) -> None:
        length = int(size * 1e6)
        rows.extend(
            Row(name, link, length, one, runs_of(one, runs), **more)  # type: ignore[arg-type]
            for one in controls
        )

    near, far, moon = _link("10", "25"), _link("8", "300"), _link("10", "1250")
    add("10 Mbit/s, 25 ms", near, 4)
    add("10 Mbit/s, 25 ms, 0.1 %", {**near, "per": "0.001"}, 4, runs=lossy)
    add("10 Mbit/s, 25 ms, 1 %", {**near, "per": "0.01"}, 2, runs=(30, 30))
    add("8 Mbit/s, 300 ms", far, 4)
    add("8 Mbit/s, 300 ms, 0.1 %", {**far, "per": "0.001"}, 4, runs=lossy)
    add("8 Mbit/s, 300 ms, 1 %", {**far, "per": "0.01"}, 1, runs=lossy)
    add("10 Mbit/s, 1250 ms", moon, 2)
    add("10 Mbit/s, 1250 ms, 1 %", {**moon, "per": "0.01"}, 0.4, ("cubic", "bbr"), lossy)
    gap = '[{ at = "3 s", for = "5 s" }]'
    add("8 Mbit/s, 100 ms, outage", {**_link("8", "100"), "outages": gap}, 4, ("cubic",))
    slow = _link("10", "300")
    for packets in (50, 100):
        queue = {**slow, "queue": f"{packets} packets"}
        add(f"10 Mbit/s, 300 ms, queue of {packets}", queue, 10)
    add("10 Mbit/s, 300 ms, queue of 5", {**slow, "queue": "5 packets"}, 4)
    queue = {**slow, "queue": "50 packets"}
    add("the same behind a relay, queue of 50", queue, 10, ("cubic", "newreno"), relay=True)
    add("10 Mbit/s, 25 ms, queue of 20", {**near, "queue": "20 packets"}, 4)
    wide = {**_link("100", "300"), "queue": "15 MB"}
    add("100 Mbit/s, 300 ms", wide, 100, ("cubic", "bbr"))
    add("100 Mbit/s, 300 ms, Linux's buffers", wide, 50, ("cubic", "bbr"), buffers="linux")
    add("100 Mbit/s, 300 ms, queue of 1 MB", {**wide, "queue": "1 MB"}, 100, ("cubic", "bbr"))
    wider = {**_link("250", "300"), "queue": "37 MB"}
    add("250 Mbit/s, 300 ms, 1 %", {**wider, "per": "0.01"}, 100, ("bbr",), (40, 20))
    add("250 Mbit/s, 300 ms, 1 %", {**wider, "per": "0.01"}, 5, ("cubic",), (20, 6))
    add("250 Mbit/s, 300 ms", wider, 250, ("cubic", "bbr"))
    few = {"queue": "500 packets"}
    for rate, delay, per, size in (
        ("100", "150", "0.005", 60),
        ("50", "300", "0.005", 30),
        ("100", "300", "0.001", 60),
    ):
        lossy_link = {**_link(rate, delay), **few, "per": per}
        name = f"{rate} Mbit/s, {delay} ms, {100 * float(per):g} %, queue of 500"
        add(f"{name}, Linux's buffers", lossy_link, size, ("bbr",), (40, 5), buffers="linux")
    for rate, delay in (("100", "150"), ("50", "300")):
        lossy_link = {**_link(rate, delay), **few, "per": "0.005"}
        name = f"{rate} Mbit/s, {delay} ms, 0.5 %, queue of 500"
        add(name, lossy_link, 0.6 * float(rate), ("bbr",), (40, 5))
    return rows


ROWS = _rows()
# Known reasons for disagreement, by row; with shell wildcards.
REASONS: dict[str, str] = {
    "250 Mbit/s, 300 ms, 1 %, 100 MB, bbr": (
        "with some seeds BBR leaves its startup phase early. In captures of both, a gap closes"
        " the receive window in the fifth round trip. The recoveries take two more round trips;"
        " in the first round of a recovery no more is sent than arrives. In the slowest run of"
        " the simulator the rounds send 124, 27, 144, 145 and 277 segments. BBR treats three"
        " rounds without growth by a quarter as a full pipe, here at 5.5 Mbit/s, and after that"
        " the rate grows only by a quarter in eight rounds. In the kernel's capture the rounds"
        " send 84, 43, 158, 160, 239 and 311 segments, and the startup phase continues up to 200"
        " Mbit/s. In the simulator 3 of 40 runs took 38 to 61 s, the others 13.4 to 18.0 s; in the"
        " kernel none of 20 took more than 22 s, which would be chance with a probability of 21 %"
    ),
    "*queue of 5,*cubic": (
        "Linux sets PSH on the last segment of each batch of two or more that it passes to the"
        " device, and the receiver acknowledges a pushed segment as soon as the program has read"
        " it. So the kernel's windows stay in one train of back-to-back segments. The"
        " simulator's receiver delays the acknowledgment of an odd last segment by 40 ms. So a"
        " train is split into several, which overflow a queue of five packets less often. In"
        " captures of CUBIC, 13 round trips after the start, the kernel sends 25 segments in 21"
        " ms and loses two of them. The simulator sends 23 in 19 ms and 9 more in four groups,"
        " each 40 ms after the previous one, and loses one"
    ),
    "*queue of 5,*newreno": (
        "the reason is the same as for CUBIC, because the receiver is the same; there is no"
        " separate capture"
    ),
    "100 Mbit/s, 300 ms, queue of 1 MB,*cubic": (
        "the difference is caused by a single packet. After slow start has overflowed the"
        " queue, the recovery refills it with retransmissions and new data, up to a few packets"
        " below its limit. In the simulator one new packet beyond the recovery point is dropped,"
        " so that CUBIC reduces its window a second time (to 2.8 MB). The kernel loses no packet"
        " at this point (3.6 MB). With a queue of 950 kB or 1,010 kB the simulator loses none"
        " either, and takes 17.6 and 17.5 s"
    ),
}


@dataclass
class Side:
    """Times of one side in seconds, per run, and the number of doubtful ones."""

    runs: list[float] = field(default_factory=list)
    doubted: int = 0

    @property
    def mean(self) -> float:
        return statistics.fmean(self.runs) if self.runs else math.nan

    @property
    def interval(self) -> float:
        """Half the 95 % confidence interval of the mean."""
        if len(self.runs) < 2:
            return math.nan if not self.runs else 0.0
        freedom = min(len(self.runs) - 1, len(STUDENT))
        return STUDENT[freedom - 1] * statistics.stdev(self.runs) / math.sqrt(len(self.runs))

    def __str__(self) -> str:
        if not self.runs:
            return "-"
        spread = f" ± {self.interval:.2f}" if self.interval >= 0.005 else ""
        mark = "?" if self.doubted else ""
        return f"{self.mean:.2f}{spread} ({len(self.runs)}){mark}"


def verdict(row: Row, sim: Side, kernel: Side) -> str:
    """Whether the simulator agrees with the kernel."""
    if not sim.runs or not kernel.runs:
        return "not run"
    if row.runs[0] > 1 and len(kernel.runs) < FEWEST:
        return "too few runs"
    apart = abs(sim.mean - kernel.mean)
    if apart <= WITHIN * kernel.mean:
        return "agrees"
    if apart <= math.hypot(sim.interval, kernel.interval):
        return "agrees within the noise"
    return "DIFFERS"


class Journal:
    """Completed runs, one line of JSON each.

    Runs of other versions stay in the file and do not count.
    """

    def __init__(self, path: Path, versions: dict[str, str]) -> None:
        self.path = path
        self.versions = versions
        self.runs: dict[tuple[str, str, int], tuple[float, bool]] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            run = json.loads(line)
            if run.get("version") == versions[run["side"]]:
                self._note(run["row"], run["side"], run["seed"], run["seconds"], run["trusted"])

    def _note(self, row: str, side: str, seed: int, seconds: float, trusted: bool) -> None:
        before = self.runs.get((row, side, seed))
        if before is None or trusted or not before[1]:
            self.runs[row, side, seed] = (seconds, trusted)

    def add(self, row: str, side: str, seed: int, seconds: float, trusted: bool) -> None:
        self._note(row, side, seed, seconds, trusted)
        run = {"row": row, "side": side, "seed": seed, "seconds": seconds, "trusted": trusted}
        with self.path.open("a") as file:
            file.write(json.dumps({**run, "version": self.versions[side]}) + "\n")

    def is_trusted(self, row: str, side: str, seed: int) -> bool:
        return self.runs.get((row, side, seed), (0.0, False))[1]

    def side(self, row: Row, side: str) -> Side:
        """Its trusted runs, or all if there are none. Where both sides lose the same packets, the
        simulator's are those of the kernel's seeds: a dozen loss patterns may be favourable ones.
        """
        found = {
            key[2]: run for key, run in sorted(self.runs.items()) if key[:2] == (row.key, side)
        }
        if side == "sim" and row.shares_losses:
            kernel = {key[2] for key in self.runs if key[:2] == (row.key, "kernel")}
            found = {seed: run for seed, run in found.items() if not kernel or seed in kernel}
        runs = list(found.values())
        trusted = [seconds for seconds, is_trusted in runs if is_trusted]
        if trusted:
            return Side(trusted)
        return Side([seconds for seconds, _ in runs], len(runs))


def versions(slowlight: Path) -> dict[str, str]:
    """Version of each side's runs: the binary, or the kernel where it is at both ends."""
    binary = hashlib.sha256(slowlight.read_bytes()).hexdigest()[:16]
    return {"sim": binary, "ours": f"{binary}, {platform.release()}", "kernel": platform.release()}


def commit() -> str:
    """Commit of the page."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def simulate(slowlight: Path, row: Row, seed: int, folder: Path) -> float:
    """Seconds of a transfer in the simulator."""
    if "per" in row.link:
        world = folder / "world.toml"
        world.write_text(row.scenario(seed))
        command = [str(slowlight), "sim", str(world), f"--tcp-buffers={row.buffers}", "--json"]
        ran = subprocess.run(command, capture_output=True, check=False)
        result = json.loads(ran.stdout)["transfers"][0]
        return float(result["transfer_s"]) if result["completed"] else math.nan
    link = folder / "link.toml"
    link.write_text(row.file())
    command = [str(slowlight), "compare", f"--link={link}", f"--protocol=ftp/{row.control}"]
    command += [f"--size={row.size}B", "--runs=1", f"--seed={seed}", "--json"]
    command += [f"--tcp-buffers={row.buffers}"]
    ran = subprocess.run(command, capture_output=True, check=False)
    result = json.loads(ran.stdout)["protocols"][0]
    return float(result["transfer_s"]["mean"]) if result["completed"] else math.nan


def emulate(
    slowlight: Path, row: Row, side: str, seed: int, folder: Path, pcap: Path | None
) -> tuple[float, bool]:
    """Seconds of a transfer in the emulator, and whether the emulator was on time."""
    link, took, report = folder / "link.toml", folder / "took", folder / "report"
    link.write_text(row.file())
    took.unlink(missing_ok=True)
    receiver = f"exec {sys.executable} -c '{RECEIVER}' {took}"
    ready = "sysctl -qw net.ipv4.ip_forward=1"
    if side == "kernel":
        send = [sys.executable, "-c", SENDER, "10.0.0.1", CONTROLS[row.control], str(row.size)]
    else:
        data = folder / f"data-{row.size}"
        if not data.exists():
            data.write_bytes(bytes(row.size))
        hurry = ["chrt", "-f", "1"] if shutil.which("chrt") else []
        send = [*hurry, str(slowlight), "tcp", "send", str(data), "10.0.0.1:5000"]
        send += ["--congestion", row.control, f"--tcp-buffers={row.buffers}"]
        receiver = f"ip route add 10.9.0.0/24 dev near; {receiver}"
    command = [str(slowlight), "link", f"--link={link}", f"--seed={seed}", "--wait-for=5000"]
    if pcap:
        name = f"{row.key}, {side}, {seed}".replace("/", " per ")
        command += [f"--pcap={pcap / name}"]
    command += [f"--report={report}", f"--tcp-buffers={row.buffers}", "--server", receiver]
    command += ["--", "sh", "-c", f'{ready}; exec "$@"', "sh", *send]
    subprocess.run(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=900,
        check=False,
    )
    if not took.exists():
        return math.nan, False
    seconds, length = took.read_text().split()
    if int(length) != row.size:
        return math.nan, False
    # The receiver's time starts half a round trip late, and ends as much early.
    return float(seconds) + row.round_trip, bool(json.loads(report.read_text())["trusted"])


def measure(
    slowlight: Path,
    rows: list[Row],
    sides: list[str],
    journal: Journal,
    most: tuple[int, int],
    pcap: Path | None,
) -> None:
    """Makes the missing runs, and repeats doubtful ones once."""
    tasks = []
    for row in rows:
        for side in sides:
            if row.relay and side == "ours":
                continue
            which = 0 if side == "sim" else 1
            seeds = range(1, min(row.runs[which], most[which]) + 1)
            tasks += [(row, side, s) for s in seeds if not journal.is_trusted(row.key, side, s)]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        for number, (row, side, seed) in enumerate(tasks, 1):
            if side == "sim":
                seconds, trusted = simulate(slowlight, row, seed, Path(name)), True
            else:
                try:
                    seconds, trusted = emulate(slowlight, row, side, seed, Path(name), pcap)
                except subprocess.TimeoutExpired:
                    seconds, trusted = math.nan, False
            if math.isnan(seconds):
                print(f"no result: {row.key}, {side}, seed {seed}", file=sys.stderr)
                continue
            journal.add(row.key, side, seed, seconds, trusted)
            if side != "sim" or number % 50 == 0:
                doubt = "" if trusted else ", in doubt"
                at = f"{number}/{len(tasks)}, {time.monotonic() - begin:.0f} s"
                print(f"[{at}] {row.key}: {side} {seconds:.2f} s{doubt}", file=sys.stderr)


def reason(key: str) -> str:
    """Reason why a row does not agree, if known."""
    found = [why for pattern, why in REASONS.items() if fnmatch.fnmatch(key, pattern)]
    return found[0] if found else ""


def table(rows: list[Row], journal: Journal) -> list[str]:
    """The table in Markdown."""
    lines = [
        "| link, size, control | simulator | ours, emulated | kernel, emulated"
        " | sim/kernel | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        sim, ours, kernel = (journal.side(row, side) for side in SIDES)
        ratio = sim.mean / kernel.mean if sim.runs and kernel.runs else math.nan
        shown = "-" if math.isnan(ratio) else f"{ratio:.2f}"
        judged = verdict(row, sim, kernel)
        lines.append(f"| {row.key} | {sim} | {ours} | {kernel} | {shown} | {judged} |")
    return lines


def page(rows: list[Row], journal: Journal) -> str:
    """The page of the documentation."""
    lines = table(rows, journal)
    apart = {row.key: verdict(row, *_pair(row, journal)) for row in rows}
    # Two runs of a kernel give a wide interval, so a known reason is always printed.
    differing = [
        key
        for key, judged in apart.items()
        if judged == "DIFFERS" or (judged == "agrees within the noise" and reason(key))
    ]
    text = [
        "# TCP: simulator, own TCP and kernel",
        "",
        "This page compares transfer times of slowlight's TCP in the simulator, slowlight's TCP on",
        "an emulated link, and the TCP of the Linux kernel on the same emulated link.",
        "",
        "* Each cell has the mean in seconds, half of its 95 % interval after ±, and the number of",
        "  runs in parentheses. `?` marks runs in which the emulator was late.",
        "* simulator: `transfer_s` of `ftp/…` in `slowlight compare`, on links with packet errors",
        "  in `slowlight sim` between hosts with the emulator's names. With the same seed the",
        "  simulator and the emulator then lose the same packets. CUBIC and NewReno are compared",
        "  over the same seeds, because a few seeds can have fewer losses than the mean.",
        "* ours, emulated: `slowlight tcp send` to a receiving kernel. `-`: not possible, because",
        "  relays do not forward to the address of slowlight's TCP.",
        "* kernel, emulated: Linux at both ends.",
        "* Delays are one way; packet errors affect both directions. Queues have 1,000 packets",
        "  unless the row has another value.",
        "",
        "The simulator agrees with the kernel if the means are within 10 %, or if their difference",
        "is not larger than the joint 95 % interval (agrees within the noise).",
        "",
        "```",
        "bench/agreement.py --slowlight target/release/slowlight \\",
        "    --page docs/conformance/tcp-agreement.md",
        "```",
        "",
        f"Measured with commit {commit()} on Linux {platform.release()}.",
        "",
        "The command resumes an interrupted run (`--journal`), and `--rows` selects a part of the",
        "table. `--pcap` keeps captures of the emulated runs. Results in the journal are used only",
        "with the same binary and kernel. [tcp.md](../tcp.md) describes the simulator's TCP.",
        "",
        *lines,
        "",
        "## Rows that differ, or agree only within the noise",
        "",
    ]
    if differing:
        for key in differing:
            why = f"* {key}: {reason(key) or 'the reason is not known'}"
            text += textwrap.wrap(why, width=100, subsequent_indent="  ", break_on_hyphens=False)
    else:
        text.append("None.")
    return "\n".join(text) + "\n"


def _pair(row: Row, journal: Journal) -> tuple[Side, Side]:
    return journal.side(row, "sim"), journal.side(row, "kernel")


def main() -> int:
    """Measures, prints the table, and writes the page; 1 if a row differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slowlight", type=Path, required=True, help="the binary to measure")
    parser.add_argument("--rows", default="*", help="rows by name, like '250 Mbit*bbr' (all)")
    parser.add_argument(
        "--sides", default=",".join(SIDES), help="a list of sim, ours, kernel (all)"
    )
    parser.add_argument("--runs", type=int, default=99, help="runs in the emulator at most")
    parser.add_argument("--sim-runs", type=int, default=999, help="runs in the simulator at most")
    parser.add_argument(
        "--journal", type=Path, default=Path("bench/agreement.jsonl"), help="runs that are done"
    )
    parser.add_argument("--pcap", type=Path, help="keep captures of emulated runs in this folder")
    parser.add_argument("--page", type=Path, help="write the page of the documentation")
    given = parser.parse_args()

    sides = given.sides.split(",")
    if unknown := [side for side in sides if side not in SIDES]:
        parser.error(f"--sides: there is no side {unknown[0]}")
    rows = [row for row in ROWS if fnmatch.fnmatch(row.key, f"*{given.rows}*")]
    slowlight = given.slowlight.resolve()
    journal = Journal(given.journal, versions(slowlight))
    measure(slowlight, rows, sides, journal, (given.sim_runs, given.runs), given.pcap)
    print("\n".join(table(rows, journal)))
    if given.page:
        given.page.write_text(page(ROWS, journal))
    return 1 if any(verdict(row, *_pair(row, journal)) == "DIFFERS" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
