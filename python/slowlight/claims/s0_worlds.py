"""Testbed of S0 for single runs, with captures at the receiver as in the paper."""

from __future__ import annotations

import itertools
import re
from typing import Any

from slowlight.claims.evidence import Paper
from slowlight.packets import Datagram, datagrams, read_capture
from slowlight.scenario import Scenario
from slowlight.single import once

PAPER = Paper("S0", "grc-2012")
STUDY = PAPER.study
CFDP, LTP = "cfdp/gsfc-2007", "ltp/ltplib-2011"
NORM, SARATOGA = "norm/nrl-2011", "saratoga-get/grc-perl-2011"
ALL = (CFDP, LTP, NORM, SARATOGA)
# Longest captured datagram of each protocol, which the link must pass.
DATAGRAM = {CFDP: "1029 B", LTP: "1024 B", NORM: "1056 B", SARATOGA: "1034 B"}
SMALL: dict[str, Any] = {
    "links.*.link": "grc-1m", "links.*.delay": "1250 ms", "transfers.0.size": "10 kB",
}  # fmt: skip
LARGE: dict[str, Any] = {
    "links.*.link": "grc-10m", "links.*.delay": "1250 ms", "transfers.0.size": "10 MB",
}  # fmt: skip
RECEIVER = "192.168.100.2"


def world(protocol: str, changes: dict[str, Any]) -> Scenario:
    """Returns the testbed with a protocol of 2011 and its datagram length."""
    base = {"transfers.0.protocol": protocol, "links.*.datagram": DATAGRAM[protocol]}
    return Scenario.find("grc").changed({**base, **changes})


def seen(protocol: str, changes: dict[str, Any], seed: int = 1) -> list[Datagram]:
    """Returns the datagrams of a run in a capture at the receiver."""
    run = once(world(protocol, changes), seed, "dst")
    return datagrams(read_capture(run.capture, protocol.split("/")[0].split("-")[0]))


def is_answer(one: Datagram) -> bool:
    """Whether the receiver sent it."""
    return one.source == RECEIVER


def is_data(one: Datagram) -> bool:
    """Whether it carries data of the file."""
    return re.search(r"\b(File Data|DATA|data) ", one.says) is not None


def data_of(packets: list[Datagram]) -> list[Datagram]:
    """Returns the datagrams with data of the file."""
    return [one for one in packets if is_data(one)]


def gaps(packets: list[Datagram]) -> list[float]:
    """Seconds between consecutive datagrams."""
    return [two.at_s - one.at_s for one, two in itertools.pairwise(packets)]
