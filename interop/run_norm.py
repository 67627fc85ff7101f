"""Runs slowlight's NORM against Debian's libnorm, between hosts in network namespaces.

Both directions x {unicast, multicast to two receivers} x {0, 1, 5, 20 % of the datagrams lost at
each host} x {parity as repair only, proactive parity, too}; then, with 5 % lost, other codes, no
code, and receivers of both kinds in one group; then what applications say, and congestion control,
where no rate is given. Expected is that all ends say "complete" and that every receiver has the
same file. A capture of what passed the sender's interface, and what the programs said, stay where
that was not so, and the result names them.

With `--self` libnorm also talks to itself, which shows what is its own limit. Needs root or
unprivileged user namespaces; where there are none, it says so and leaves everything out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import netns
from ends import HERE, HUNG, UNSUPPORTED, WAITED, digest, finish, reported_seconds, target_folder
from netns import Host

# Ours and the reference.
SLOWLIGHT, LIBNORM = "slowlight", "libnorm"
GROUP, PORT = "224.1.2.3", 6003
SENDER = 1
# Names of the codes in our settings.
SCHEMES = {2: "rs16", 5: "rs8", 129: "rs8-129"}
LOST_SHARES = (0.0, 0.01, 0.05, 0.20)
# Name of the sent file, and of the received one.
SOURCE = "source.bin"
# Segment size in bytes.
SEGMENT = 1024
# Command of the sender's application.
COMMAND = "start now"


@dataclass(frozen=True)
class Coding:
    """Erasure code and its use."""

    name: str
    fec_id: int
    block: int
    parity: int
    # Number of parity symbols sent proactively.
    proactive: int = 0


REPAIR = Coding("repair", 5, 64, 32)
PROACTIVE = Coding("proactive", 5, 64, 32, 16)
OTHER_CODINGS = (
    Coding("none", 5, 64, 0),
    Coding("id129", 129, 64, 32, 8),
    Coding("gf16", 2, 300, 80, 30),
)


@dataclass(frozen=True)
class Case:
    """One transfer."""

    sender: str
    receivers: tuple[str, ...]
    multicast: bool
    lost_share: float
    coding: Coding
    # Whether the sender uses congestion control.
    heeds_congestion: bool = False
    # Whether the file is sent as a stream.
    stream: bool = False
    # Whether the sender's application sends commands to those of receivers.
    commands: bool = False

    def name(self) -> str:
        """A name for files and tables."""
        how = "multicast" if self.multicast else "unicast"
        to = "+".join(self.receivers)
        return f"{self.sender}-to-{to}-{how}-{self.lost_share:.0%}-{self.pace_and_coding()}"

    def pace_and_coding(self) -> str:
        """Rate and code of the case."""
        kind = "-stream" if self.stream else "-command" if self.commands else ""
        return ("congestion" if self.heeds_congestion else self.coding.name) + kind


@dataclass(frozen=True)
class Programs:
    """Programs, rate, and time limit."""

    slowlight: Path | None
    libnorm: Path
    rate_bps: int
    limit_s: float


@dataclass(frozen=True)
class Judgement:
    """`ok`, `unsupported` or `FAILED`, and why."""

    verdict: str
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """Result of a case."""

    sender: str
    receivers: list[str]
    multicast: bool
    lost_share: float
    coding: str
    verdict: str
    same_files: list[bool]
    exits: list[int]
    seconds: float
    goodput_bps: float
    note: str
    # Folder for inspection, if any.
    folder: str | None


def stream_buffer(case: Case) -> int:
    """Returns the size of a stream's buffer.

    The library gives up missing data once its buffer is nearly full. With losses the buffer must be
    larger than the file; without, it is smaller.
    """
    return 4_000_000 if case.lost_share else 400_000


def destination(case: Case, hosts: list[Host]) -> str:
    """Destination address of the sender."""
    return f"{GROUP if case.multicast else hosts[1].address}:{PORT}"


def send_command(
    case: Case, programs: Programs, hosts: list[Host], file: Path, folder: Path
) -> list[str]:
    """The command line of a sender, which is on the first host."""
    group, coding = destination(case, hosts), case.coding
    nodes = [str(SENDER + number) for number in range(1, len(hosts))]
    if case.sender == LIBNORM:
        code = ["--fec", str(coding.fec_id), "--block", str(coding.block)]
        code += ["--parity", str(coding.parity), "--auto-parity", str(coding.proactive)]
        ends = ["--group", group, "--interface", hosts[0].interface, "--node", str(SENDER)]
        # The library's own estimate, 0.25 s, makes a multicast repair round take seconds.
        pace = ["--cc"] if case.heeds_congestion else ["--rate", str(programs.rate_bps)]
        pace += ["--segment", "1024", "--grtt", "0.05"]
        acks = [word for node in nodes for word in ("--ack", node)]
        limit = ["--timeout", str(programs.limit_s)]
        if case.stream:
            limit += ["--object", "stream", "--buffer", str(stream_buffer(case))]
        if case.commands:
            limit += ["--command", COMMAND]
        return [str(programs.libnorm), "send", str(file), *ends, *pace, *code, *acks, *limit]
    to = ["--group", group, "--interface", hosts[0].interface] if case.multicast else [group]
    settings = folder / "sender.toml"
    settings.write_text(sender_settings(case))
    shared = ["--protocol", "norm", "--json", "--entity", str(SENDER), "--mib", str(settings)]
    pace = [] if case.heeds_congestion else ["--rate", f"{programs.rate_bps} bit/s"]
    pace += ["--timeout", f"{programs.limit_s} s"]
    kind = ["--stream"] if case.stream else []
    kind += ["--command", COMMAND] if case.commands else []
    return [str(programs.slowlight), "send", str(file), *to, *shared, *pace, *kind]


def sender_settings(case: Case) -> str:
    """Returns the settings file of a slowlight sender."""
    coding = case.coding
    return (
        "[sender]\n"
        "segment_size = 1024\n"
        f'fec = "{SCHEMES[coding.fec_id]}"\n'
        f"block_len = {coding.block}\n"
        f"parity = {coding.parity}\n"
        f"auto_parity = {coding.proactive}\n"
        f"receivers = {len(case.receivers)}\n"
        # As libnorm is configured.
        'grtt_initial = "50 ms"\n'
        f'[limits]\nstream = "{stream_buffer(case)} B"\n'
    )


def recv_command(
    name: str, case: Case, programs: Programs, hosts: list[Host], number: int, root: Path
) -> list[str]:
    """The command line of a receiver, on the host with that number."""
    host, node = hosts[number], str(SENDER + number)
    if name == LIBNORM:
        ends = ["--group", destination(case, hosts), "--interface", host.interface]
        ends += ["--node", node]
        # It stays until its standard input ends, which is when the sender has ended.
        limits = ["--timeout", str(programs.limit_s), "--stay"]
        return [str(programs.libnorm), "recv", str(root), *ends, *limits]
    listen = ["--listen", "0.0.0.0:0" if case.multicast else f"0.0.0.0:{PORT}"]
    if case.multicast:
        listen += ["--group", destination(case, hosts), "--interface", host.interface]
    shared = ["--json", "--entity", node]
    # A single receiver is of all protocols: libnorm's datagrams decide.
    if case.multicast or case.stream or len(case.receivers) > 1:
        shared += ["--protocol", "norm"]
    file = str(root / SOURCE)
    into = ["--stream", file] if case.stream else ["--root", str(root), "--once"]
    return [str(programs.slowlight), "recv", *shared, *into, *listen]


def start(host: Host, command: list[str], folder: Path, name: str) -> subprocess.Popen[bytes]:
    """Starts a program on a host; its output goes into two files."""
    with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.err").open("wb") as err:
        command = host.command(command)
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err)


@contextmanager
def capture(host: Host, file: Path) -> Iterator[None]:
    """Captures the traffic of a host's interface, before losses; nothing without tshark."""
    dumpcap = netns.find("dumpcap")
    if dumpcap is None:
        yield
        return
    command = [dumpcap, "-q", "-i", host.interface, "-f", "udp", "-w", str(file)]
    process = subprocess.Popen(host.command(command), stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 5
        while not file.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        yield
        # The last packets are still in the kernel's buffer.
        time.sleep(0.3)
    finally:
        process.terminate()
        process.wait()


def run(case: Case, programs: Programs, source: Path, folder: Path) -> Outcome:
    """Runs one transfer and judges it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    roots = [folder / f"root{number}" for number in range(1, len(case.receivers) + 1)]
    running = []
    network = netns.hosts(1 + len(roots), case.lost_share)
    with network as hosts, capture(hosts[0], folder / "capture.pcapng"):
        try:
            for number, (name, root) in enumerate(zip(case.receivers, roots, strict=True), 1):
                root.mkdir()
                command = recv_command(name, case, programs, hosts, number, root)
                running.append(start(hosts[number], command, folder, f"recv{number}"))
            for receiver in running:
                netns.wait_for_socket(receiver, PORT, GROUP if case.multicast else None)
            begin = time.monotonic()
            command = send_command(case, programs, hosts, source, folder)
            running.insert(0, start(hosts[0], command, folder, "send"))
            exits = [finish(running[0], programs.limit_s + 5)]
            elapsed = time.monotonic() - begin
            exits += [finish(receiver, 10) for receiver in running[1:]]
        finally:
            for process in running:
                process.kill()
    wanted = digest(source)
    same = [digest(root / source.name) == wanted for root in roots]
    late = 0
    for number, (name, root) in enumerate(zip(case.receivers, roots, strict=True)):
        if case.stream and name == LIBNORM and not same[number]:
            missing = bytes_before(source, root / source.name)
            same[number] = 0 < missing < case.coding.block * SEGMENT
            late = max(late, missing)
    seconds = reported_seconds(folder / "send.out", elapsed)
    said = [folder / f"recv{number}.out" for number in range(1, len(case.receivers) + 1)]
    judgement = judge(case, same, exits, [tells_command(output) for output in said])
    if judgement.verdict == "ok" and late:
        judgement = Judgement("ok", f"libnorm began {late} bytes late")
    return Outcome(
        sender=case.sender,
        receivers=list(case.receivers),
        multicast=case.multicast,
        lost_share=case.lost_share,
        coding=case.pace_and_coding(),
        verdict=judgement.verdict,
        same_files=same,
        exits=exits,
        seconds=round(seconds, 3),
        goodput_bps=round(source.stat().st_size * 8 / seconds) if all(same) else 0,
        note=judgement.note,
        folder=str(folder) if judgement.verdict == "FAILED" else None,
    )


def tells_command(output: Path) -> bool:
    """Whether a receiver printed the command of the sender's application, in a line of its own."""
    lines = output.read_text().splitlines()
    told = f'"command":"{COMMAND}"'
    return any(told in line.replace('": "', '":"') for line in lines)


def bytes_before(source: Path, received: Path) -> int:
    """Returns the number of bytes at the start of a stream that a late receiver lacks; 0 if it
    lacks others.

    The library delivers a stream from the first segment received on, and drops earlier ones of the
    same block although it has repaired them.
    """
    if not received.exists():
        return 0
    whole, part = source.read_bytes(), received.read_bytes()
    return len(whole) - len(part) if part and whole.endswith(part) else 0


def judge(case: Case, same: list[bool], exits: list[int], heard: list[bool]) -> Judgement:
    """Whether a run ended as expected: equal files, received commands, and success at every end."""
    if UNSUPPORTED in exits:
        return Judgement("unsupported")
    ends = [f"the sender {case.sender}"]
    ends += [f"receiver {number} {name}" for number, name in enumerate(case.receivers, 1)]
    faults = [
        f"the file of {end} differs or is missing"
        for end, is_same in zip(ends[1:], same, strict=True)
        if not is_same
    ]
    for end, has_heard in zip(ends[1:], heard, strict=True):
        if has_heard != case.commands:
            faults.append(f"{end} {'heard no' if case.commands else 'made up a'} command")
    for end, code in zip(ends, exits, strict=True):
        if code in (WAITED, HUNG):
            faults.append(f"{end} {'had to be interrupted' if code == WAITED else 'hung'}")
        elif code != 0:
            faults.append(f"{end} ended with exit code {code}")
    return Judgement("FAILED", "; ".join(faults)) if faults else Judgement("ok")


def cases(senders_and_receivers: list[tuple[str, str]]) -> list[Case]:
    """The whole matrix for some pairs of a sender and a receiver."""
    found = []
    for sender, receiver in senders_and_receivers:
        for multicast in (False, True):
            receivers: tuple[str, ...] = (receiver, receiver) if multicast else (receiver,)
            for lost_share in LOST_SHARES:
                for coding in (REPAIR, PROACTIVE):
                    file = Case(sender, receivers, multicast, lost_share, coding)
                    found += [file, replace(file, stream=True)]
            for coding in OTHER_CODINGS:
                found.append(Case(sender, receivers, multicast, 0.05, coding))
        if sender != receiver:
            found.append(Case(sender, (LIBNORM, SLOWLIGHT), True, 0.05, REPAIR))
        if sender != receiver:
            for receivers in ((receiver,), (LIBNORM, SLOWLIGHT)):
                many = len(receivers) > 1
                found.append(Case(sender, receivers, many, 0.05, REPAIR, commands=True))
        mixed = [(LIBNORM, SLOWLIGHT)] if sender != receiver else []
        for receivers in ((receiver,), (receiver, receiver), *mixed):
            for lost_share in (0.0, 0.01):
                heeding = Case(sender, receivers, len(receivers) > 1, lost_share, REPAIR, True)
                found.append(heeding)
    return found


def speaks_norm(slowlight: Path) -> bool:
    """Whether this binary supports the protocol."""
    ended = subprocess.run([str(slowlight), "send", "--help"], capture_output=True, text=True)
    return "norm:" in ended.stdout.lower()


def build(target: Path) -> Path | str:
    """Compiles the peer if it is older than its source; returns the reason of a failure."""
    source, program = HERE / "norm/norm_peer.cpp", target / "release/norm-peer"
    if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
        return program
    compiler = netns.find("c++")
    if compiler is None:
        return "there is no C++ compiler (g++)"
    program.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    command = [compiler, *flags, "-o", str(program), str(source), "-lnorm"]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode == 0:
        return program
    if "normApi.h" in ended.stderr and "No such file" in ended.stderr:
        return "the library is missing (libnorm-dev)"
    raise RuntimeError(ended.stderr)


def report(outcome: Outcome) -> None:
    """Prints a line of the table."""
    how = "multicast" if outcome.multicast else "unicast"
    print(
        f"{outcome.sender:<10} {'+'.join(outcome.receivers):<20} {how:<9}"
        f" {outcome.lost_share:>4.0%} {outcome.coding:<16} {outcome.goodput_bps / 1e6:>7.2f}"
        f"  {outcome.verdict} {outcome.note}",
        flush=True,
    )
    if outcome.folder is not None:
        print(f"{'':>11}see {outcome.folder}", flush=True)


def run_all(given: argparse.Namespace, programs: Programs) -> int:
    """Runs the matrix, prints the table, writes `norm.json`; 1 if a run failed."""
    pairs = [(LIBNORM, LIBNORM)] if given.self or programs.slowlight is None else []
    if programs.slowlight is not None:
        pairs += [(SLOWLIGHT, LIBNORM), (LIBNORM, SLOWLIGHT)]
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    source = out / SOURCE
    source.write_bytes(random.Random(1).randbytes(given.size))
    outcomes = []
    print(f"{'sender':<10} {'receivers':<20} {'':<9} loss {'parity':<16} {'Mbit/s':>7}")
    for case in cases(pairs):
        if given.only not in case.name():
            continue
        folder = out / f"norm-{case.name()}"
        outcome = run(case, programs, source, folder)
        outcomes.append(outcome)
        if outcome.folder is None and not given.keep:
            shutil.rmtree(folder)
        report(outcome)
    (out / "norm.json").write_text(json.dumps([asdict(each) for each in outcomes], indent=1))
    failed = sum(each.verdict == "FAILED" for each in outcomes)
    print(f"{len(outcomes) - failed} as expected, {failed} not; captures in {out}")
    return 1 if failed else 0


def main() -> int:
    """Enters namespaces of its own and runs the matrix there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slowlight", type=Path, help="the binary to test")
    parser.add_argument("--size", type=int, default=1_000_000, help="bytes of the file")
    parser.add_argument("--rate", type=int, default=50_000_000, help="bit/s of a sender")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a transfer may take")
    parser.add_argument("--out", type=Path, default=HERE / "out", help="captures and results")
    parser.add_argument("--only", default="", help="only cases with this in their name")
    parser.add_argument("--self", action="store_true", help="libnorm against itself, too")
    parser.add_argument("--keep", action="store_true", help="keep all captures")
    parser.add_argument(
        "--build", action="store_true", help="only build the peer, and say where it is"
    )
    given = parser.parse_args()

    if given.build:
        built = build(target_folder())
        print(json.dumps({"norm_peer": str(built) if isinstance(built, Path) else None}))
        return 0
    if netns.MARK not in os.environ:
        why = netns.why_not()
        if why is not None:
            print(f"NORM left out: {why}")
            return 0
        command = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]]
        return subprocess.run(netns.inside(command), env=netns.environment()).returncode
    libnorm = build(target_folder())
    if isinstance(libnorm, str):
        print(f"NORM left out: {libnorm}")
        return 0
    slowlight = given.slowlight.resolve() if given.slowlight is not None else None
    if slowlight is not None and not speaks_norm(slowlight):
        print(f"{slowlight} does not speak NORM: libnorm talks to itself only")
        slowlight = None
    return run_all(given, Programs(slowlight, libnorm, given.rate, given.limit))


if __name__ == "__main__":
    sys.exit(main())
