"""Measures slowlight and its peers in one run and prints one table; `results.json` keeps it.

* the raw pair: two UDP sockets with GSO and GRO, nothing above them;
* slowlight over loopback, CFDP class 2, LTP and Saratoga: 1 GB, compared by SHA-256, and the peak
  resident memory of both processes; for CFDP also with 100 MB and 4 GB;
* the peers of `interop/`, class 2 at the same datagram size, each against itself;
* NORM over loopback, without a code and with two: slowlight with 1 GB, and libnorm against itself,
  at the same datagram size;
* TCP, `tcp.py`: slowlight's against the kernel's over a TUN device, the kernel's against itself;
* bundle nodes, `bundles.py`: bundles per second, and round-trip times;
* the emulator, `emulator.py`: its accuracy, and its capacity compared with a plain wire;
* the emulator: 100 MB by each protocol between two hosts over a link without delay, errors or rate,
  the "unrestricted" baseline of the studies that compared these protocols;
* the simulator: CPU time of a 10 MB run, and whether many runs keep all CPUs busy; benchmarks of
  the link model, and of the erasure code compared with another crate's;
* growth, `growth.py`: CPU time of commands with one, two and four times as much.

If `results.json` has earlier results, the rows that differ from them by more than a tenth follow.

Below the table each target of the project "holds" or "does not hold". A target that does not hold
fails the run only with `--strict`, because machines differ and have other work. A file that arrives
different, or not at all, always ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import bundles
import emulator
import growth
import programs
import tcp
from lines import Line, print_targets

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
INTEROP = ROOT / "interop"
PEER_BYTES = 20_000_000
# The targets: 30 % of the raw pair, 3 Gbit/s where it reaches 10 or more; memory independent
# of the file size; ten times the best peer; a fast simulated 10 MB run.
GOODPUT_BPS, RAW_BPS = 3e9, 10e9
RSS_KB = 64 * 1024
TIMES_BEST_PEER = 10.0
CPU_S = 0.050
# Rows that differ by more from the last results are listed.
CHANGE = 1.1
# UDP payload of an Ethernet frame with IPv4.
DATAGRAM_MAX = 1472
# Protocols measured with 1 GB, by their command line names.
NAMES = {"cfdp": "class 2", "ltp": "LTP", "saratoga": "Saratoga"}
# Pacing rates over an emulated link without limits: packets sent too fast are lost.
UNRESTRICTED_BYTES = 100_000_000
UNRESTRICTED_RATES = (250_000_000, 500_000_000, 1_000_000_000, 2_000_000_000)
UNRESTRICTED = {"cfdp": "CFDP", "ltp": "LTP", "saratoga": "Saratoga", "norm": "NORM"}
PYTHON = str(INTEROP / ".venv/bin/python")
# libnorm against itself: name of the code, block, parity, and pacing rate in bit/s.
NORM_BYTES = 300_000_000
NORM_GIGABYTE = 1_000_000_000
NORM_CODES = (("FEC off", 64, 0), ("20+4", 20, 4), ("64+16", 64, 16))
NORM_RATES = (1_000_000_000, 2_000_000_000, 3_000_000_000, 4_000_000_000)
# slowlight's NORM: the same, and the target as a multiple of libnorm's goodput.
OUR_NORM_RATES = (2_000_000_000, 4_000_000_000, 6_000_000_000, 8_000_000_000)
NORM_TIMES = {"FEC off": 2.0, "20+4": 3.0, "64+16": 3.0}
# Header, payload identifier and transmission information of a NORM_DATA message with FEC id 5.
NORM_HEADER = 16 + 4 + 12
PEERS = {
    # Name, command, pacing rate in bit/s: about what its receiver sustains.
    "cfdp-py": ([PYTHON, str(INTEROP / "cfdp-py/peer.py")], (150_000_000, 200_000_000, 0)),
    "librecube": ([PYTHON, str(INTEROP / "librecube/peer.py")], (10_000_000, 40_000_000)),
    "cfdp-rs": ([], (200_000_000, 400_000_000, 0)),
}


@dataclass
class Row:
    """One line of the table."""

    what: str
    goodput_bps: float | None = None
    seconds: float | None = None
    sender_rss_kb: int | None = None
    receiver_rss_kb: int | None = None
    note: str = ""


@dataclass
class Ended:
    """A process that ended: its exit code, output, peak memory and CPU time."""

    code: int
    output: str
    rss_kb: int
    cpu_s: float


class Process:
    """A child process that reports its resource use when it ends."""

    def __init__(self, command: list[str], folder: Path, name: str, limit: float) -> None:
        self.out = folder / f"{name}.out"
        self.err = folder / f"{name}.err"
        self.end = time.monotonic() + limit
        self.rss_kb = 0
        environment = {**os.environ, "PYTHONPATH": str(INTEROP)}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.child = subprocess.Popen(command, stdout=out, stderr=err, env=environment)

    def wait(self) -> Ended:
        """Waits for the end; kills the child at its timeout."""
        while (ended := self.poll()) is None:
            time.sleep(0.005)
        return ended

    def poll(self) -> Ended | None:
        """Result of the child, if it ended; call it until then."""
        self.look_at_memory()
        pid, status, usage = os.wait4(self.child.pid, os.WNOHANG)
        if pid == 0:
            if time.monotonic() > self.end:
                self.child.kill()
            return None
        self.child.returncode = os.waitstatus_to_exitcode(status)
        cpu = usage.ru_utime + usage.ru_stime
        text = self.out.read_text() + self.err.read_text()
        return Ended(self.child.returncode, text, self.rss_kb, cpu)

    def look_at_memory(self) -> None:
        """Reads the peak so far. `ru_maxrss` would include the interpreter's memory at the fork."""
        try:
            status = Path(f"/proc/{self.child.pid}/status").read_text()
        except OSError:
            return
        found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        if found:
            self.rss_kb = max(self.rss_kb, int(found.group(1)))


def wait_for_both(first: Process, second: Process) -> tuple[Ended, Ended]:
    """Waits for the end of two processes, and samples the memory of both."""
    ended_first: Ended | None = None
    ended_second: Ended | None = None
    while ended_first is None or ended_second is None:
        ended_first = ended_first or first.poll()
        ended_second = ended_second or second.poll()
        time.sleep(0.005)
    return ended_first, ended_second


def wait_for_port(port: int) -> None:
    """Waits until the UDP port is bound, at most 10 s."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if f":{port:04X} " in Path("/proc/net/udp").read_text():
            return
        time.sleep(0.005)


def make_file(path: Path, size: int) -> None:
    """A file of copies of one random megabyte, each starting with its number."""
    piece = bytearray(os.urandom(1 << 20))
    with path.open("wb") as file:
        for number in range(0, size, len(piece)):
            piece[:8] = number.to_bytes(8, "big")
            file.write(piece[: min(len(piece), size - number)])


def warm(folder: Path, size: int) -> None:
    """Makes the machine provide the memory for files of `size` bytes.

    A virtual machine gets each page from its host at the first access, which may cost more than
    everything measured here; pages touched and freed before are available at once.
    """
    path = folder / "warm.bin"
    make_file(path, size)
    path.unlink()


def digest(path: Path) -> str:
    """SHA-256 of a file; of empty input, if there is no file."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def last_json(text: str) -> dict[str, Any]:
    """The last line of a program's output that is a JSON object."""
    for line in reversed(text.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {}


class Bench:
    """State shared by all measurements."""

    def __init__(self, slowlight: Path, datagram: int, folder: Path) -> None:
        self.slowlight = str(slowlight)
        self.datagram = datagram
        self.folder = folder
        self.target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
        self.rows: list[Row] = []
        self.failed = False

    def add(self, row: Row) -> Row:
        """Keeps a row and prints it at once."""
        self.rows.append(row)
        print(f"  {row.what}: {line_of(row)}", file=sys.stderr, flush=True)
        return row

    def add_lines(self, lines: list[Line], *, failed: bool) -> None:
        """Keeps results that another file of this folder measured and printed."""
        self.rows += [Row(line.what, line.goodput_bps, note=line.note) for line in lines]
        self.failed |= failed

    def raw(self, size: int) -> Row:
        """The raw pair: throughput of the sockets alone."""
        example = [str(self.target / programs.PROFILE / "raw"), str(size), str(self.datagram)]
        found = last_json(Process(example, self.folder, "raw", 120).wait().output)
        note = f"{found['loss']:.1%} of the datagrams lost"
        return self.add(
            Row("raw GSO/GRO pair", found["goodput_bps"], found["elapsed_s"], note=note)
        )

    def transfer(self, protocol: str, size: int) -> Row:
        """slowlight to slowlight, until the whole file is acknowledged."""
        source, root = self.folder / "source.bin", self.folder / "root"
        make_file(source, size)
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        port = 5801
        shared = ["--protocol", protocol, "--json"]
        listen = ["--listen", f"127.0.0.1:{port}", "--root", str(root), "--entity", "2", "--once"]
        ends = [str(source), f"127.0.0.1:{port}", "--entity", "1", "--remote-entity", "2"]
        settings = ["--datagram", str(self.datagram), "--remote", "received.bin"]
        recv = Process([self.slowlight, "recv", *shared, *listen], self.folder, "recv", 300)
        wait_for_port(port)
        start = time.monotonic()
        send_command = [self.slowlight, "send", *shared, *ends, *settings]
        send = Process(send_command, self.folder, "send", 300)
        sender, receiver = wait_for_both(send, recv)
        elapsed = time.monotonic() - start
        same = digest(source) == digest(root / "received.bin")
        report = last_json(sender.output)
        seconds = float(report.get("elapsed_s") or elapsed)
        source.unlink()
        shutil.rmtree(root)
        note = "SHA-256 equal" if same else "THE FILE DIFFERS"
        if sender.code != 0 or receiver.code != 0:
            note += f"; exit codes {sender.code} and {receiver.code}"
        self.failed |= not same or sender.code != 0 or receiver.code != 0
        what = f"slowlight {NAMES[protocol]}, {size / 1e6:g} MB"
        goodput = size * 8 / seconds if same else 0.0
        return self.add(Row(what, goodput, seconds, sender.rss_kb, receiver.rss_kb, note))

    def peer(self, name: str, command: list[str], rates: tuple[int, ...]) -> Row:
        """A peer against itself, at the best of several pacing rates."""
        source, root = self.folder / "peer.bin", self.folder / "peer-root"
        make_file(source, PEER_BYTES)
        best = Row(f"{name} class 2, {PEER_BYTES / 1e6:g} MB", 0.0, note="never complete")
        for rate in rates:
            shutil.rmtree(root, ignore_errors=True)
            ends, swapped = (
                ["127.0.0.1:5811", "127.0.0.1:5812"],
                ["127.0.0.1:5812", "127.0.0.1:5811"],
            )
            tail = ["2", str(self.datagram), str(rate), "60"]
            receive = [*command, "recv", *swapped, "2", "1", *tail, str(root), "received.bin"]
            recv = Process(receive, self.folder, "peer-recv", 70)
            wait_for_port(5812)
            transmit = [*command, "send", *ends, "1", "2", *tail, str(source), "received.bin"]
            send = Process(transmit, self.folder, "peer-send", 70)
            sender, receiver = wait_for_both(send, recv)
            seconds = float(last_json(sender.output).get("elapsed_s", 0))
            if sender.code != 0 or seconds == 0 or digest(source) != digest(root / "received.bin"):
                continue
            goodput = PEER_BYTES * 8 / seconds
            if goodput > (best.goodput_bps or 0):
                pace = f"paced at {rate / 1e6:g} Mbit/s" if rate else "not paced"
                best = Row(best.what, goodput, seconds, sender.rss_kb, receiver.rss_kb, pace)
        return self.add(best)

    def norm(self, code: str, block: int, parity: int, proactive: int = 0) -> Row:
        """slowlight to slowlight by NORM, unicast, at the best of several pacing rates."""
        source, root = self.folder / "source.bin", self.folder / "root"
        make_file(source, NORM_GIGABYTE)
        settings = self.folder / "norm.toml"
        settings.write_text(
            f"[sender]\nblock_len = {block}\nparity = {parity}\nauto_parity = {proactive}\n"
            f"receivers = 1\n"
        )
        what = f"slowlight NORM, {code}" + (f", {proactive} unasked" if proactive else "")
        best = Row(f"{what}, {NORM_GIGABYTE / 1e6:g} MB", 0.0, note="never complete")
        for rate in OUR_NORM_RATES:
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            shared = ["--protocol", "norm", "--json", "--datagram", str(self.datagram)]
            listen = ["--listen", "127.0.0.1:5831", "--root", str(root), "--once"]
            receive = [self.slowlight, "recv", *shared, *listen]
            recv = Process(receive, self.folder, "recv", 120)
            wait_for_port(5831)
            pace = ["--rate", f"{rate} bit/s", "--mib", str(settings)]
            transmit = [self.slowlight, "send", *shared, str(source), "127.0.0.1:5831", *pace]
            send = Process(transmit, self.folder, "send", 100)
            sender, receiver = wait_for_both(send, recv)
            seconds = float(last_json(sender.output).get("elapsed_s") or 0)
            if sender.code != 0 or seconds == 0 or digest(source) != digest(root / source.name):
                continue
            goodput = NORM_GIGABYTE * 8 / seconds
            if goodput > (best.goodput_bps or 0):
                note = f"paced at {rate / 1e6:g} Mbit/s, SHA-256 equal"
                best = Row(best.what, goodput, seconds, sender.rss_kb, receiver.rss_kb, note)
        source.unlink()
        shutil.rmtree(root, ignore_errors=True)
        self.failed |= best.seconds is None
        return self.add(best)

    def libnorm(self, program: Path, code: str, block: int, parity: int) -> Row:
        """libnorm against itself, unicast, at the best of several pacing rates.

        It computes the parity of every block, although no loss requires it.
        """
        source, root = self.folder / "norm.bin", self.folder / "norm-root"
        make_file(source, NORM_BYTES)
        best = Row(f"libnorm, {code}, {NORM_BYTES / 1e6:g} MB", 0.0, note="never complete")
        for rate in NORM_RATES:
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            shared = ["--group", "127.0.0.1:5821", "--timeout", "60"]
            receive = [str(program), "recv", str(root), *shared, "--linger", "1"]
            recv = Process(receive, self.folder, "norm-recv", 70)
            wait_for_port(5821)
            settings = ["--segment", str(self.datagram - NORM_HEADER), "--rate", str(rate)]
            settings += ["--block", str(block), "--parity", str(parity), "--ack", "2"]
            # One receiver on this machine: no back-off before feedback and repair.
            settings += ["--backoff", "0", "--grtt", "0.001"]
            transmit = [str(program), "send", str(source), *shared, *settings]
            send = Process(transmit, self.folder, "norm-send", 70)
            sender, receiver = wait_for_both(send, recv)
            seconds = float(last_json(sender.output).get("elapsed_s", 0))
            if sender.code != 0 or seconds == 0 or digest(source) != digest(root / source.name):
                continue
            goodput = NORM_BYTES * 8 / seconds
            if goodput > (best.goodput_bps or 0):
                pace = f"paced at {rate / 1e6:g} Mbit/s"
                best = Row(best.what, goodput, seconds, sender.rss_kb, receiver.rss_kb, pace)
        source.unlink()
        shutil.rmtree(root, ignore_errors=True)
        return self.add(best)

    def unrestricted(self, protocol: str) -> Row:
        """Between two emulated hosts, at the best of several rates; unknown without namespaces."""
        scenario = self.folder / "unrestricted.toml"
        what = f"emulator, {UNRESTRICTED[protocol]}, {UNRESTRICTED_BYTES / 1e6:g} MB"
        best = Row(what, note="no emulator here")
        for rate in (*UNRESTRICTED_RATES, None):
            pace = f'rate = "{rate} bit/s"' if rate else ""
            scenario.write_text(
                f"seed = 1\nlimits.time = '60 s'\n"
                f'[[links]]\nfrom = "a"\nto = "b"\ndatagram = "{self.datagram} B"\n{pace}\n'
                f'[[links]]\nfrom = "b"\nto = "a"\ndatagram = "{self.datagram} B"\n{pace}\n'
                f'[[transfers]]\nfrom = "a"\nto = "b"\nprotocol = "{protocol}"\n'
                f"size = '{UNRESTRICTED_BYTES} B'\n"
            )
            command = [self.slowlight, "emu", "run", str(scenario), "--json"]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            if not ended.stdout:
                continue
            transfer = json.loads(ended.stdout)["transfers"][0]
            goodput = transfer.get("goodput_bps") or 0.0
            if goodput > (best.goodput_bps or 0.0) and transfer["completed"]:
                note = f"link of {rate / 1e6:g} Mbit/s" if rate else "link without a rate"
                seconds = transfer["delivered_s"]
                best = Row(what, goodput, seconds, note=f"{note}, file equal")
        return self.add(best)

    def simulator(self, runs: int) -> Row:
        """CPU time of a 10 MB run in the simulator, every byte carried and verified."""
        source = self.folder / "sim.bin"
        make_file(source, 10_000_000)
        link = ["--rate", "10 Mbit/s", "--delay", "25 ms", "--per", "1e-3"]
        options = ["--file", str(source), "--runs", str(runs), "--seed", "1", "--jobs", "1"]
        command = [self.slowlight, "compare", *link, *options, "--protocol", "cfdp", "--json"]
        ended = Process(command, self.folder, "sim", 300).wait()
        self.failed |= ended.code != 0
        return self.add(
            Row("simulator, 10 MB at 1e-3", seconds=ended.cpu_s / runs, note="CPU a run")
        )

    def both_cores(self, runs: int) -> float:
        """CPUs that a comparison of many runs keeps busy, on average."""
        link = ["--rate", "10 Mbit/s", "--delay", "25 ms", "--per", "1e-3", "--size", "10 MB"]
        options = ["--runs", str(runs), "--seed", "1", "--protocol", "cfdp", "--json"]
        start = time.monotonic()
        ended = Process(
            [self.slowlight, "compare", *link, *options], self.folder, "all", 300
        ).wait()
        elapsed = time.monotonic() - start
        self.failed |= ended.code != 0
        self.add(Row(f"simulator, {runs} runs", seconds=elapsed, note="wall clock, all cores"))
        return ended.cpu_s / elapsed

    def criterion(self, bench: str, what: str) -> None:
        """A benchmark in `benches`: throughput, or the time per iteration if it has none."""
        command = ["cargo", "bench", "--locked", "--profile", programs.PROFILE]
        command += ["--package", "slowlight-bench", "--bench", bench]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        pattern = re.compile(
            r"^(\S.*?)\s+time:\s+\[\S+ \S+ (\S+ \S+) \S+ \S+\]"
            r"(?:\s+thrpt:\s+\[\S+ \S+ (\S+ [KMG]iB/s) )?",
            re.MULTILINE,
        )
        for name, turn, throughput in pattern.findall(ended.stdout):
            self.add(Row(f"{what}, {name}", note=throughput or turn))


def line_of(row: Row) -> str:
    """A row's numbers in one line."""
    parts = []
    if row.goodput_bps is not None:
        parts.append(f"{row.goodput_bps / 1e6:,.0f} Mbit/s")
    if row.seconds is not None:
        parts.append(f"{row.seconds:.3f} s")
    if row.sender_rss_kb is not None and row.receiver_rss_kb is not None:
        parts.append(f"{row.sender_rss_kb / 1024:.0f} and {row.receiver_rss_kb / 1024:.0f} MB")
    return ", ".join([*parts, row.note] if row.note else parts)


def table(rows: list[Row], raw_bps: float) -> str:
    """The table, with every goodput as a share of the raw pair's."""
    lines = [f"{'what':<34} {'Mbit/s':>9} {'of raw':>7} {'s':>8} {'RSS MB':>9}  note"]
    for row in rows:
        goodput = f"{row.goodput_bps / 1e6:,.0f}" if row.goodput_bps is not None else ""
        share = f"{row.goodput_bps / raw_bps:.1%}" if row.goodput_bps is not None else ""
        seconds = f"{row.seconds:.3f}" if row.seconds is not None else ""
        memory = ""
        if row.sender_rss_kb is not None and row.receiver_rss_kb is not None:
            memory = f"{row.sender_rss_kb / 1024:.0f} / {row.receiver_rss_kb / 1024:.0f}"
        numbers = f"{goodput:>9} {share:>7} {seconds:>8} {memory:>9}"
        lines.append(f"{row.what:<34} {numbers}  {row.note}")
    return "\n".join(lines)


def changes(rows: list[Row], before: list[dict[str, Any]]) -> list[str]:
    """The rows whose goodput or time differs by more than `CHANGE` from earlier results."""
    earlier = {row["what"]: row for row in before}
    lines = []
    for row in rows:
        known = earlier.get(row.what, {})
        for key, unit, scale in (("goodput_bps", "Mbit/s", 1e6), ("seconds", "s", 1.0)):
            now, then = getattr(row, key), known.get(key)
            if now and then and abs(math.log(now / then)) > math.log(CHANGE):
                values = f"{then / scale:,.3g} {unit} before, {now / scale:,.3g} {unit} now"
                lines.append(f"{row.what:<34} {values}: {now / then:.2f} times")
                break
    return lines


def judgements(
    raw_bps: float,
    gigabytes: list[Row],
    transfers: list[Row],
    times_best_peer: float,
    cpu_s: float,
    busy: float,
) -> list[tuple[str, bool]]:
    """Each target in words with its result, and whether it holds."""
    goodputs = [(row.what, row.goodput_bps or 0.0) for row in gigabytes]
    wanted = GOODPUT_BPS * min(1.0, raw_bps / RAW_BPS)
    # Without a reading of the memory, the target does not hold.
    cores = len(os.sched_getaffinity(0))
    peaks = [kb or 1 << 40 for row in transfers for kb in (row.sender_rss_kb, row.receiver_rss_kb)]
    return [
        *(
            (
                f"{what}: goodput {goodput / 1e9:.2f} Gbit/s, at least {wanted / 1e9:.2f}"
                f" beside a raw pair of {raw_bps / 1e9:.1f}",
                goodput >= wanted,
            )
            for what, goodput in goodputs
        ),
        (
            f"memory {max(peaks) / 1024:.0f} MiB, at most {RSS_KB / 1024:.0f} a process",
            max(peaks) <= RSS_KB,
        ),
        (
            f"{times_best_peer:.1f} times the best peer, at least {TIMES_BEST_PEER:g}",
            times_best_peer >= TIMES_BEST_PEER,
        ),
        (
            f"{cpu_s * 1e3:.0f} ms of processor time a simulated 10 MB run,"
            f" at most {CPU_S * 1e3:.0f}",
            cpu_s <= CPU_S,
        ),
        (
            f"60 simulated runs keep {busy:.1f} of {cores} processors busy,"
            " at least three quarters",
            busy >= 0.75 * cores,
        ),
    ]


def datagram_size(text: str) -> int:
    """A datagram size that needs no fragmentation."""
    size = int(text)
    if not 64 <= size <= DATAGRAM_MAX:
        raise argparse.ArgumentTypeError(f"64 to {DATAGRAM_MAX} bytes")
    return size


def build(target: Path) -> None:
    """Builds the raw pair and the Rust peer, which `make build` does not."""
    cargo = ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", str(target)]
    programs.build(target, "raw")
    subprocess.run([*cargo, "--manifest-path", str(INTEROP / "Cargo.toml")], check=True)


def compare_norm(bench: Bench) -> dict[str, float]:
    """Measures NORM with each code, and returns slowlight's goodput as a multiple of libnorm's.

    Codes without a comparison are left out.
    """
    norm_peer = build_norm_peer()
    found = {}
    for code in NORM_CODES:
        ours = bench.norm(*code).goodput_bps or 0.0
        theirs = bench.libnorm(norm_peer, *code).goodput_bps if norm_peer is not None else None
        if theirs:
            found[code[0]] = ours / theirs
    bench.norm(*NORM_CODES[-1], proactive=NORM_CODES[-1][2])
    return found


def norm_judgements(times_libnorm: dict[str, float]) -> list[tuple[str, bool]]:
    """The targets of NORM with their results, and whether each holds."""
    return [
        (
            f"NORM, {code}: {times_libnorm[code]:.1f} times libnorm, at least {least:g}",
            times_libnorm[code] >= least,
        )
        for code, least in NORM_TIMES.items()
        if code in times_libnorm
    ]


def build_norm_peer() -> Path | None:
    """Path of the peer built on libnorm; None without the library."""
    command = [PYTHON, str(INTEROP / "run_norm.py"), "--build"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    found = last_json(ended.stdout).get("norm_peer")
    return None if found is None else Path(found)


def main() -> int:
    """Measures everything; 1 if a file did not arrive unchanged."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slowlight", type=Path, required=True, help="the binary to measure")
    parser.add_argument(
        "--datagram", type=datagram_size, default=DATAGRAM_MAX, help="bytes of a datagram (1472)"
    )
    parser.add_argument("--strict", action="store_true", help="fail if a target does not hold")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="no 4 GB file, no link benchmark, no ten minutes of delay",
    )
    given = parser.parse_args()

    shm = Path("/dev/shm")
    large = shm.is_dir() and shutil.disk_usage(shm).free > 10_000_000_000
    with tempfile.TemporaryDirectory(dir=shm if large else None) as name:
        bench = Bench(given.slowlight.resolve(), given.datagram, Path(name))
        build(bench.target)
        if large:
            warm(bench.folder, shutil.disk_usage(shm).free // 2)
        raw = bench.raw(2_000_000_000)
        gigabytes = [bench.transfer(protocol, 1_000_000_000) for protocol in NAMES]
        transfers = [*gigabytes, bench.transfer("cfdp", 100_000_000)]
        if not given.quick:
            transfers.append(bench.transfer("cfdp", 4_000_000_000))
        peers = []
        for peer, (command, rates) in PEERS.items():
            command = command or [str(bench.target / "release/cfdp-rs-peer")]
            peers.append(bench.peer(peer, command, rates))
        times_libnorm = compare_norm(bench)
        lines, tcp_judged = tcp.measure(given.slowlight.resolve())
        bench.add_lines(lines, failed=any(line.goodput_bps == 0 for line in lines))
        bundled = bundles.measure(
            given.slowlight.resolve(), bundles.build(bench.target), bench.target
        )
        bench.add_lines(bundled.lines, failed=bundled.failed)
        emulated = emulator.measure(emulator.build(bench.target), quick=given.quick)
        bench.add_lines(emulated.lines, failed=emulated.failed)
        for protocol in UNRESTRICTED:
            bench.unrestricted(protocol)
        cpu_s = bench.simulator(10).seconds or float("inf")
        busy = bench.both_cores(60)
        grown = growth.measure(given.slowlight, growth.ROWS_OF_BENCH)
        for row in grown:
            what = f"growth: {row.most:,} {row.what}"
            bench.add(Row(what, seconds=row.used[-1].cpu_s, note=f"exponent {row.exponent:.2f}"))
        if not given.quick:
            bench.criterion("link", "link model")
            bench.criterion("fec", "erasure code")
    # Without the raw pair the full target applies.
    raw_bps = raw.goodput_bps or RAW_BPS
    best_peer = max(peer.goodput_bps or 0 for peer in peers)
    # Without a peer that completes, the target does not hold.
    # The peers speak CFDP.
    ratio = (gigabytes[0].goodput_bps or 0) / best_peer if best_peer else 0.0
    judged = judgements(raw_bps, gigabytes, transfers, ratio, cpu_s, busy)
    judged += norm_judgements(times_libnorm)
    judged += tcp_judged
    judged += bundled.judged
    judged += emulated.judged
    judged += growth.judgements(grown)
    print(
        f"\nDatagrams of {given.datagram} bytes, {os.cpu_count()} processors, {platform.machine()}"
    )
    print(table(bench.rows, raw_bps))
    print_targets(judged)
    file = HERE / "results.json"
    if file.exists() and (
        changed := changes(bench.rows, json.loads(file.read_text()).get("rows", []))
    ):
        print("\nOther than in the last results:", *changed, sep="\n")
    results = {
        "datagram": given.datagram,
        "processors": os.cpu_count(),
        "system": platform.platform(),
        "times_best_peer": ratio,
        "times_libnorm": times_libnorm,
        "targets": [{"target": target, "holds": holds} for target, holds in judged],
        "rows": [asdict(row) for row in bench.rows],
        "own_rss_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    file.write_text(json.dumps(results, indent=1) + "\n")
    missed = given.strict and not all(holds for _, holds in judged)
    return 1 if bench.failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
