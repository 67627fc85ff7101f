"""The testbed of S0 for single runs, as its captures were taken: at the receiver."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

from slowlight.claims.evidence import Paper
from slowlight.packets import datagrams
from slowlight.single import captured, changed, decoded, scenario

PAPER = Paper("S0", "grc-2012")
STUDY = PAPER.study
CFDP, LTP = "cfdp/gsfc-2007", "ltp/ltplib-2011"
NORM, SARATOGA = "norm/nrl-2011", "saratoga-get/grc-perl-2011"
ALL = (CFDP, LTP, NORM, SARATOGA)
# The longest datagram of each, as captured: what the link must let pass.
DATAGRAM = {CFDP: "1029 B", LTP: "1024 B", NORM: "1056 B", SARATOGA: "1034 B"}
SMALL: dict[str, Any] = {
    "links.*.link": "grc-1m", "links.*.delay": "1250 ms", "transfers.0.size": "10 kB",
}  # fmt: skip
LARGE: dict[str, Any] = {
    "links.*.link": "grc-10m", "links.*.delay": "1250 ms", "transfers.0.size": "10 MB",
}  # fmt: skip
RECEIVER = "192.168.100.2"


@dataclass(frozen=True)
class Seen:
    """A datagram at the receiver: seconds, bytes of data, whether it sent it, and what it says."""

    at_s: float
    length: int
    is_answer: bool
    says: str


def world(protocol: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The testbed with a protocol of 2011 and datagrams of its length."""
    base = {"transfers.0.protocol": protocol, "links.*.datagram": DATAGRAM[protocol]}
    return changed(scenario("grc"), {**base, **changes})


def seen(protocol: str, changes: dict[str, Any], seed: int = 1) -> list[Seen]:
    """What a capture at the receiver has of a run."""
    capture = captured(world(protocol, changes), "dst", seed)
    lines = decoded(capture, protocol.split("/")[0].split("-")[0])
    # "0.25 192.168.100.1:2502 > 192.168.100.2:2501 what it says"
    says = [line.split(" ", 4)[-1] for line in lines]
    found = datagrams(capture)
    if len(found) != len(says):
        raise ValueError(f"{len(found)} datagrams, {len(says)} lines")
    return [
        Seen(one.at_s, len(one.data), one.source == RECEIVER, text)
        for one, text in zip(found, says, strict=True)
    ]


def is_data(one: Seen) -> bool:
    """Whether it carries some of the file."""
    return re.search(r"\b(File Data|DATA|data) ", one.says) is not None


def data_of(packets: list[Seen]) -> list[Seen]:
    """Those that carry some of the file."""
    return [one for one in packets if is_data(one)]


def gaps(packets: list[Seen]) -> list[float]:
    """Seconds between one and the next."""
    return [two.at_s - one.at_s for one, two in itertools.pairwise(packets)]
