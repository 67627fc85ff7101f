"""What every peer script is told, and the pace of a sender.

    peer.py send|recv BIND PEER ENTITY REMOTE CLASS DATAGRAM RATE TIMEOUT PATH NAME

PATH is the file to send or the directory to receive into, NAME the file's name there, DATAGRAM
the largest PDU in bytes, RATE the sender's pace in bit/s (0 = none), TIMEOUT in seconds. A peer
prints how long the transfer took as a JSON object with the key `elapsed_s`, and exits with 0 if its
entity says that the transfer is complete, 1 if not, 127 if it cannot do what it is asked.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

UNSUPPORTED = 127


@dataclass(frozen=True)
class Arguments:
    """The command line of a peer script."""

    role: str
    bind: tuple[str, int]
    peer: tuple[str, int]
    entity: int
    remote: int
    cfdp_class: int
    datagram: int
    rate_bps: int
    timeout_s: float
    path: Path
    name: str


def address(text: str) -> tuple[str, int]:
    """Reads HOST:PORT."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def arguments() -> Arguments:
    """The command line, or the end of the process if there is something wrong with it."""
    given = sys.argv[1:]
    if len(given) != 11 or given[0] not in ("send", "recv"):
        unsupported(__doc__ or "")
    role, bind, peer, entity, remote, cfdp_class, datagram, rate, timeout, path, name = given
    return Arguments(
        role=role,
        bind=address(bind),
        peer=address(peer),
        entity=int(entity),
        remote=int(remote),
        cfdp_class=int(cfdp_class),
        datagram=int(datagram),
        rate_bps=int(rate),
        timeout_s=float(timeout),
        path=Path(path),
        name=name,
    )


def unsupported(why: str) -> NoReturn:
    """Ends the process as a peer that cannot do what it is asked."""
    print(why, file=sys.stderr)
    sys.exit(UNSUPPORTED)


def report(seconds: float) -> None:
    """Prints how long the transfer took, from the request (or the start) to its end."""
    print(json.dumps({"elapsed_s": seconds}), flush=True)


class Pace:
    """Holds a sender back to a rate: none of the peers does that by itself."""

    def __init__(self, rate_bps: int) -> None:
        self.rate_bps = rate_bps
        self.start = time.monotonic()
        self.bytes = 0

    def sent(self, count: int) -> None:
        """Counts what was sent, and sleeps off what was sent too early."""
        self.bytes += count
        if self.rate_bps == 0:
            return
        ahead = self.start + self.bytes * 8 / self.rate_bps - time.monotonic()
        # A sleep overshoots by some 60 µs, so shorter ones are saved up.
        if ahead > 0.0005:
            time.sleep(ahead)
