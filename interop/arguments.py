"""Arguments of every peer script, and the pace of a sender.

    peer.py send|recv BIND PEER ENTITY REMOTE CLASS DATAGRAM RATE TIMEOUT PATH NAME

PATH is the file to send or the directory to receive into, NAME the file's name there, DATAGRAM
the largest PDU in bytes, RATE the sender's rate in bit/s (0 = unlimited), TIMEOUT in seconds. A
peer prints the duration of the transfer as a JSON object with the key `elapsed_s`. It exits with 0
if its entity reports that the transfer is complete, 1 if not, 127 if it does not support the
request.
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
    """Command line of a peer script."""

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
    """Parses HOST:PORT."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def arguments() -> Arguments:
    """Parses the command line, or exits with an error."""
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
    """Exits as a peer that does not support the request."""
    print(why, file=sys.stderr)
    sys.exit(UNSUPPORTED)


def report(seconds: float) -> None:
    """Prints the duration of the transfer, from the request (or the start) to its end."""
    print(json.dumps({"elapsed_s": seconds}), flush=True)


class Pace:
    """Limits the rate of a sender, which none of the peers does itself."""

    def __init__(self, rate_bps: int) -> None:
        self.rate_bps = rate_bps
        self.start = time.monotonic()
        self.bytes = 0

    def sent(self, count: int) -> None:
        """Counts sent bytes, and sleeps if they were too early."""
        self.bytes += count
        if self.rate_bps == 0:
            return
        ahead = self.start + self.bytes * 8 / self.rate_bps - time.monotonic()
        # A sleep overshoots by some 60 µs, so short waits are accumulated.
        if ahead > 0.0005:
            time.sleep(ahead)
