"""Claims of S2 about captures: windows, acknowledgments, retransmissions.

Captures are from single runs of 10 MB, at the aircraft, at its gateway or on the ground.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from slowlight.claims.evidence import Evidence, Finding, found, near
from slowlight.claims.s2 import FTP, NONE, PAPER, SARATOGA, SCP, SCPS, STUDY
from slowlight.packets import Segment, after, datagrams, read_capture, segments
from slowlight.single import completed, once

CONTROL = 21
LOSSY = "1e-7 a bit"


def _capture(
    evidence: Evidence,
    at: str,
    labels: Mapping[str, str],
    settings: Mapping[str, Any] | None = None,
) -> pl.DataFrame:
    world = evidence.results(STUDY).cell("grid", labels)
    world = world.changed({"transfers.0.size": "10 MB", **(settings or {})})
    return read_capture(completed(once(world, 1, at)).capture)


def _of_file(evidence: Evidence, who: str, errors: str) -> tuple[list[Segment], list[Segment]]:
    """Data segments of the file at the aircraft, and the ground's segments, at 600 ms."""
    labels = {"protocol": who, "pep": NONE, "rtt": "600 ms", "errors": errors}
    all_of_it = segments(_capture(evidence, "aircraft", labels))
    there = [one for one in all_of_it if CONTROL not in one.ports]
    aircraft = _heaviest(there)[0]
    data = [one for one in there if one.source == aircraft]
    return data, [one for one in there if one.source != aircraft]


def _heaviest(there: Sequence[Segment]) -> tuple[str, tuple[int, int]]:
    """Sender and ports of the connection with most data."""
    amounts: dict[tuple[str, tuple[int, int]], int] = {}
    for one in there:
        key = (one.source, one.ports)
        amounts[key] = amounts.get(key, 0) + one.data
    return max(amounts, key=lambda key: amounts[key])


@PAPER.claim("S2-01")
def udp(evidence: Evidence) -> list[Finding]:
    """Holds within 3 % for UDP data received on the ground, in datagrams of 1,024 bytes."""
    small = {f"links.emulator>{side}-gateway.datagram": "1024 B" for side in ("aircraft", "ground")}
    labels = {"protocol": SARATOGA, "pep": NONE, "rtt": "0 ms", "errors": "0"}
    capture = _capture(evidence, "ground", labels, small)
    data = [(one.at_s, one.data) for one in datagrams(capture) if one.data > 1000]
    size = sum(length for _, length in data[1:])
    rate = 8e-6 * size / (data[-1][0] - data[0][0])
    return [
        found("", "maximum UDP rate, Mbit/s", "8.0069", f"{rate:.3f}",
              holds=near(rate, 8.0069, 0.03))
    ]  # fmt: skip


@PAPER.claim("S2-07")
def stalls(evidence: Evidence) -> list[Finding]:
    """Holds within 10 % for the median time between first segments after each pause of 0.3 s."""
    data, _ = _of_file(evidence, FTP, "0")
    bursts = [two.at_s for one, two in itertools.pairwise(data) if two.at_s - one.at_s > 0.3]
    period = statistics.median(two - one for one, two in itertools.pairwise(bursts))
    return [
        found("", "FTP at 600 ms: interval between windows, s", "0.600",
              f"{period:.3f}", holds=near(period, 0.6, 0.1))
    ]  # fmt: skip


def _most(answers: Sequence[Segment]) -> int:
    return max(one.window for one in answers)


@PAPER.claim("S2-10")
def windows(evidence: Evidence) -> list[Finding]:
    """Holds if SCP's window is more than four times FTP's."""
    scp = _most(_of_file(evidence, SCP, LOSSY)[1])
    ftp = _most(_of_file(evidence, FTP, "0")[1])
    return [
        found("", "windows of SCP; FTP, bytes", "much larger", f"{scp:,}; {ftp:,}",
              holds=scp > 4 * ftp)
    ]  # fmt: skip


@PAPER.claim("S2-12")
def growing(evidence: Evidence) -> list[Finding]:
    """Holds if it begins at or below the first size and ends at or above the second."""
    answers = _of_file(evidence, SCP, LOSSY)[1]
    first, last = answers[1].window, _most(answers)
    return [
        found("", "SCP: growth of the window, bytes", "220,000 to 1,000,000",
              f"{first:,} to {last:,}", holds=first <= 220_000 and last >= 1_000_000)
    ]  # fmt: skip


@PAPER.claim("S2-13")
def sack(evidence: Evidence) -> list[Finding]:
    """Holds if there is at least one."""
    count = sum(bool(one.sack) for one in _of_file(evidence, SCP, LOSSY)[1])
    return [found("", "segments with SACK blocks", "seen", f"{count:,}", holds=count > 0)]


@dataclass
class Side:
    """One side of a gateway: largest window of the receiver, number of retransmitted segments, and
    number of duplicate acknowledgments.
    """

    window: int = 0
    again: int = 0
    duplicates: int = 0


def side(there: Sequence[Segment]) -> Side:
    """Counts a connection's segments at one interface; the first one is from the data's sender."""
    counts, last, end = Side(), None, there[0].sequence if there else 0
    for one in there:
        if one.source == there[0].source:
            counts.again += one.data > 0 and after(end, one.sequence)
            reached = (one.sequence + one.data) % 2**32
            end = reached if after(reached, end) else end
            continue
        counts.window = max(counts.window, one.window)
        says = (one.acknowledgment, one.window)
        counts.duplicates += one.data == 0 and says == last
        last = says
    return counts


def _sides(evidence: Evidence, who: str) -> tuple[Side, Side]:
    """Returns the aircraft's and the emulator's side of the aircraft's gateway."""
    labels = {"protocol": who, "pep": SCPS, "rtt": "600 ms", "errors": LOSSY}
    there = segments(_capture(evidence, "aircraft-gateway", labels))
    large = next(one for one in there if one.data > 1000)
    of_it = [one for one in there if one.ports in (large.ports, large.ports[::-1])]
    lan = [one for one in of_it if one.interface == large.interface]
    return side(lan), side([one for one in of_it if one.interface != large.interface])


def _is_so(lan: Side, wan: Side) -> bool:
    return lan.window < 65_536 and wan.window > 600_000 and lan.again < wan.again


@PAPER.claim("S2-09")
def ftp_sides(evidence: Evidence) -> list[Finding]:
    """Holds if the windows are below 65,536 and above 600,000, and nothing is retransmitted before
    the gateway.
    """
    lan, wan = _sides(evidence, FTP)
    return [
        found("", "FTP at 600 ms, 1e-7 per bit, LAN and link: windows, bytes; "
              "retransmitted segments",
              "small and large; only on the link",
              f"{lan.window:,} and {wan.window:,}; {lan.again} and {wan.again}",
              holds=_is_so(lan, wan) and lan.again == 0)
    ]  # fmt: skip


@PAPER.claim("S2-11")
def scp_sides(evidence: Evidence) -> list[Finding]:
    """Holds with the windows of S2-09, more retransmissions on the link, and duplicates."""
    lan, wan = _sides(evidence, SCP)
    return [
        found("", "the same with SCP; duplicate acknowledgments on the link",
              "small and large; seen on the link; seen",
              f"{lan.window:,} and {wan.window:,}; {lan.again} and {wan.again}; {wan.duplicates:,}",
              holds=_is_so(lan, wan) and wan.duplicates > 0)
    ]  # fmt: skip
