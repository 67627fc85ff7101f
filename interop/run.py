"""Runs slowlight's CFDP against other implementations, over UDP on loopback.

Every peer x class 1 and 2 x both directions x {clean, 5 % of the datagrams lost each way}. The
datagrams cross `relay`, which loses them and keeps a capture. The capture stays, and the result
names it, where a run did not end as expected or the peer made a mistake. What is expected:

* class 2: both entities say "complete" and the file is the same;
* class 1, clean: the file is the same;
* class 1 with losses: nothing repairs them, so the file is incomplete, and the receiver must not
  call it complete. When its time is over it may still wait for what was lost, but must end when
  interrupted.

With `--self` the peers also talk to themselves, which shows what is the peer's own limit.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from socket import AF_INET, SOCK_DGRAM, socket
from typing import Any

from ends import HERE, HUNG, UNSUPPORTED, WAITED, digest, finish, reported_seconds, target_folder

ENTITY = {"send": 1, "recv": 2}
LOST_SHARE = 0.05


@dataclass(frozen=True)
class Peer:
    """One implementation: how it is started and how fast it can be fed."""

    name: str
    command: tuple[str, ...]
    # bit/s that its receiver takes without losing datagrams in its socket buffer.
    rate_bps: int
    # Settings that slowlight needs to send to it, a file below `interop/`.
    mib: str | None = None


@dataclass(frozen=True)
class Case:
    """One transfer."""

    sender: Peer
    receiver: Peer
    cfdp_class: int
    lost_share: float

    def name(self) -> str:
        """A name for files and tables."""
        loss = "clean" if self.lost_share == 0 else "lossy"
        return f"{self.sender.name}-to-{self.receiver.name}-class{self.cfdp_class}-{loss}"


@dataclass(frozen=True)
class Judgement:
    """`ok`, `unsupported` or `FAILED`, and why."""

    verdict: str
    note: str = ""
    # Whether the peer did something that it should not, which its capture proves.
    peer_fault: bool = False

    def is_kept(self) -> bool:
        """Whether somebody will want to look at the run."""
        return self.verdict == "FAILED" or self.peer_fault


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    sender: str
    receiver: str
    cfdp_class: int
    lost_share: float
    verdict: str
    same_file: bool
    sender_exit: int
    receiver_exit: int
    seconds: float
    goodput_bps: float
    datagrams_forward: int
    datagrams_back: int
    note: str
    # Where there is something to look at.
    capture: str | None


def peers(slowlight: Path, target: Path) -> dict[str, Peer]:
    """The implementations, ours first."""
    python = str(HERE / ".venv/bin/python")
    found = [
        Peer("slowlight", (str(slowlight),), 200_000_000),
        Peer("cfdp-py", (python, str(HERE / "cfdp-py/peer.py")), 40_000_000),
        Peer(
            "librecube", (python, str(HERE / "librecube/peer.py")), 10_000_000, "librecube/mib.toml"
        ),
        Peer("cfdp-rs", (str(target / "release/cfdp-rs-peer"),), 80_000_000),
    ]
    return {peer.name: peer for peer in found}


def free_ports(count: int) -> list[int]:
    """UDP ports that nobody uses now."""
    sockets = [socket(AF_INET, SOCK_DGRAM) for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Waits until somebody has bound the UDP port, at most 10 s."""
    wanted = f":{port:04X}"
    end = time.monotonic() + 10
    while time.monotonic() < end and process.poll() is None:
        lines = Path("/proc/net/udp").read_text().splitlines()[1:]
        if any(line.split()[1].endswith(wanted) for line in lines):
            return
        time.sleep(0.01)


def command(
    peer: Peer, role: str, bind: int, other: int, case: Case, rate: int, path: Path, limit: float
) -> list[str]:
    """The command line that starts one end."""
    entity, remote = ENTITY[role], ENTITY["recv" if role == "send" else "send"]
    if peer.name != "slowlight":
        ends = [f"127.0.0.1:{bind}", f"127.0.0.1:{other}", str(entity), str(remote)]
        settings = [str(case.cfdp_class), "1024", str(rate), str(limit)]
        return [*peer.command, role, *ends, *settings, str(path), "received.bin"]
    shared = ["--entity", str(entity), "--json"]
    if role == "recv":
        # Of all protocols: the peer's datagrams decide.
        listen = ["--listen", f"127.0.0.1:{bind}", "--root", str(path), "--once"]
        return [*peer.command, "recv", *shared, *listen]
    ends = [str(path), f"127.0.0.1:{other}", "--remote-entity", str(remote)]
    settings = ["--class", str(case.cfdp_class), "--rate", f"{rate} bit/s", "--datagram", "1024"]
    if case.receiver.mib is not None:
        settings += ["--mib", str(HERE / case.receiver.mib)]
    settings += ["--remote", "received.bin", "--state", str(path.parent / "state")]
    return [*peer.command, "send", "--protocol", "cfdp", *shared, *ends, *settings]


@contextmanager
def relay(target: Path, case: Case, ports: list[int], folder: Path) -> Iterator[Path]:
    """The relay; its counters are in the file it yields once the context is left."""
    near, far, receiver = (f"127.0.0.1:{port}" for port in ports)
    counters = folder / "relay.json"
    options = [str(case.lost_share), "7", str(folder / "capture.pcapng")]
    with counters.open("wb") as output:
        process = subprocess.Popen(
            [str(target / "release/relay"), near, far, receiver, *options],
            stdin=subprocess.PIPE,
            stdout=output,
        )
        try:
            wait_for_port(ports[1], process)
            yield counters
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)


def run(case: Case, target: Path, source: Path, folder: Path, limit: float) -> Outcome:
    """Runs one transfer and judges it."""
    shutil.rmtree(folder, ignore_errors=True)
    root = folder / "root"
    root.mkdir(parents=True)
    sender_port, near, far, receiver_port = free_ports(4)
    # Nothing repairs class 1, so it is sent with time to spare for a busy machine.
    rate = min(case.sender.rate_bps, case.receiver.rate_bps) // (4 if case.cfdp_class == 1 else 1)
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    with relay(target, case, [near, far, receiver_port], folder) as counters:
        with (folder / "recv.out").open("wb") as out, (folder / "recv.err").open("wb") as err:
            recv = command(case.receiver, "recv", receiver_port, far, case, rate, root, limit)
            receiver = subprocess.Popen(recv, stdout=out, stderr=err, env=environment)
        wait_for_port(receiver_port, receiver)
        start = time.monotonic()
        with (folder / "send.out").open("wb") as out, (folder / "send.err").open("wb") as err:
            send = command(case.sender, "send", sender_port, near, case, rate, source, limit)
            sender = subprocess.Popen(send, stdout=out, stderr=err, env=environment)
        sender_exit = finish(sender, limit + 5)
        # A class 1 receiver that misses data or its EOF waits for its timers: not for us.
        patience = 4.0 if case.cfdp_class == 1 and case.lost_share > 0 else limit
        receiver_exit = finish(receiver, patience)
        elapsed = time.monotonic() - start
    seconds = reported_seconds(folder / "send.out", elapsed)
    same = digest(source) == digest(root / "received.bin")
    judgement = judge(case, same, sender_exit, receiver_exit)
    counted: dict[str, Any] = json.loads(counters.read_text().splitlines()[-1])
    return Outcome(
        sender=case.sender.name,
        receiver=case.receiver.name,
        cfdp_class=case.cfdp_class,
        lost_share=case.lost_share,
        verdict=judgement.verdict,
        same_file=same,
        sender_exit=sender_exit,
        receiver_exit=receiver_exit,
        seconds=round(seconds, 3),
        goodput_bps=round(source.stat().st_size * 8 / seconds) if same else 0,
        datagrams_forward=counted["forward"]["datagrams"],
        datagrams_back=counted["back"]["datagrams"],
        note=judgement.note,
        capture=str(folder / "capture.pcapng") if judgement.is_kept() else None,
    )


def judge(case: Case, same: bool, sender_exit: int, receiver_exit: int) -> Judgement:
    """Whether a run ended as expected."""
    if UNSUPPORTED in (sender_exit, receiver_exit):
        return Judgement("unsupported")
    if case.cfdp_class == 2 or case.lost_share == 0:
        if same and sender_exit == 0 and receiver_exit == 0:
            return Judgement("ok")
        why = "the file differs" if not same else "an entity does not say that it is complete"
        return Judgement("FAILED", why)
    if sender_exit != 0:
        return Judgement("FAILED", "the sender did not say that it sent the file")
    fault = receiver_exit not in (0, 1, WAITED)
    how = "hung" if receiver_exit == HUNG else f"ended with exit code {receiver_exit}"
    if fault and case.receiver.name == "slowlight":
        return Judgement("FAILED", f"slowlight {how}")
    what = "no data was among the losses" if same else "incomplete"
    if fault:
        return Judgement("ok", f"{what}; the peer {how}, a fault of the peer", peer_fault=True)
    if same:
        return Judgement("ok", what)
    if receiver_exit == 1:
        return Judgement("ok", "incomplete, and the receiver says so: nothing repairs class 1")
    if receiver_exit == WAITED:
        return Judgement(
            "ok", "incomplete, and the receiver waits for more: nothing repairs class 1"
        )
    if case.receiver.name == "slowlight":
        return Judgement("FAILED", "slowlight calls an incomplete file complete")
    return Judgement(
        "ok", "incomplete; the peer calls it complete, a fault of the peer", peer_fault=True
    )


def cases(known: dict[str, Peer], only: list[str], with_self: bool) -> list[Case]:
    """The whole matrix."""
    ours = known["slowlight"]
    found = []
    for peer in known.values():
        if peer is ours or (only and peer.name not in only):
            continue
        pairs = [(ours, peer), (peer, ours)] + ([(peer, peer)] if with_self else [])
        for sender, receiver in pairs:
            for cfdp_class in (1, 2):
                for lost_share in (0.0, LOST_SHARE):
                    found.append(Case(sender, receiver, cfdp_class, lost_share))
    return found


def main() -> int:
    """Runs the matrix, prints the table, writes `results.json`; 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--slowlight", type=Path, required=True, help="the binary to test")
    parser.add_argument("--size", type=int, default=1_000_000, help="bytes of the file")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a transfer may take")
    parser.add_argument("--out", type=Path, default=HERE / "out", help="captures and results")
    parser.add_argument("--peer", action="append", default=[], help="only this peer")
    parser.add_argument("--self", action="store_true", help="peers against themselves, too")
    given = parser.parse_args()

    target = target_folder()
    # The other programs here are for bundles, and have more dependencies.
    build = ["cargo", "build", "--quiet", "--release", "--locked"]
    build += ["--package", "relay", "--package", "cfdp-rs-peer"]
    build += ["--manifest-path", str(HERE / "Cargo.toml"), "--target-dir", str(target)]
    subprocess.run(build, check=True)
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    source = out / "source.bin"
    source.write_bytes(random.Random(1).randbytes(given.size))

    outcomes = []
    print(f"{'sender':<10} {'receiver':<10} class  loss  {'Mbit/s':>7} {'out':>6} {'back':>5}")
    for case in cases(peers(given.slowlight.resolve(), target), given.peer, given.self):
        folder = out / case.name()
        outcome = run(case, target, source, folder, given.limit)
        outcomes.append(outcome)
        if outcome.capture is None:
            shutil.rmtree(folder)
        counts = f"{outcome.datagrams_forward:>6} {outcome.datagrams_back:>5}"
        print(
            f"{outcome.sender:<10} {outcome.receiver:<10} {outcome.cfdp_class:>5}"
            f" {outcome.lost_share:>5.0%} {outcome.goodput_bps / 1e6:>8.2f} {counts}"
            f"  {outcome.verdict} {outcome.note}",
            flush=True,
        )
        if outcome.capture is not None:
            print(f"{'':>11}see {outcome.capture}", flush=True)
    (out / "results.json").write_text(json.dumps([asdict(each) for each in outcomes], indent=1))
    failed = [each for each in outcomes if each.verdict == "FAILED"]
    print(f"{len(outcomes) - len(failed)} as expected, {len(failed)} not; captures in {out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
