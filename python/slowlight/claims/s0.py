"""Claims of S0: CFDP, LTP, NORM and Saratoga over NASA's channel emulator, from the grid.

A value that the paper read from a chart holds within a third, as on the pages of
docs/reproduction. Orders compare means, or medians and quartiles where the paper has box plots.
"The same order" is within a factor of ten. Claims about captures are in `s0_packets`.
"""

from __future__ import annotations

import statistics

from slowlight.claims.evidence import (
    Evidence,
    Finding,
    cannot,
    found,
    joined,
    near,
    rising,
)
from slowlight.claims.s0_worlds import (
    ALL,
    CFDP,
    LTP,
    NORM,
    PAPER,
    SARATOGA,
    STUDY,
)

RATES = ("1 Mbit/s", "10 Mbit/s")
DELAYS = ("25 ms", "250 ms", "1250 ms")
ERRORS = ("0", "1e-5", "1e-4", "1e-3", "1e-2", "1e-1")
SIZES = ("10 kB", "100 kB", "1 MB", "10 MB")
GOODPUT = "goodput_grc_bps"


def samples(
    evidence: Evidence, column: str, protocol: str, *, rate: str = "10 Mbit/s",
    delay: str = "25 ms", per: str = "0", size: str = "10 MB",
) -> list[float]:  # fmt: skip
    return evidence.samples(
        STUDY, "grid", column, protocol=protocol, rate=rate, delay=delay, per=per, size=size
    )


def mean(evidence: Evidence, column: str, protocol: str, **cell: str) -> float:
    """Mean of a cell; by default of 10 MB at 10 Mbit/s, 25 ms and no errors."""
    return statistics.fmean(samples(evidence, column, protocol, **cell))


def by_errors(evidence: Evidence, column: str, protocol: str) -> list[float]:
    return [mean(evidence, column, protocol, per=per) for per in ERRORS]


def sizes(evidence: Evidence, protocol: str) -> list[float]:
    return [mean(evidence, GOODPUT, protocol, size=size) / 1e6 for size in SIZES]


def _quartiles(samples: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, middle, high


def _baseline(evidence: Evidence, column: str) -> dict[str, float]:
    return {p: evidence.mean(STUDY, "baseline", column, protocol=p) for p in ALL}


@PAPER.claim("S0-02")
def unrestricted(evidence: Evidence) -> list[Finding]:
    """b: the goodputs are within a factor of ten; c: LTP's goodput is the minimum."""
    goodput = _baseline(evidence, GOODPUT)
    three = [goodput[protocol] / 1e6 for protocol in (CFDP, NORM, SARATOGA)]
    return [
        cannot(
            "a", "maximum Mbit/s of NORM; Saratoga", "about 60; below 60",
            "The hosts' processors and Perl were the limit; here processing takes no time.",
            joined(three[1:], ".1f"),
        ),
        found(
            "b", "Mbit/s of CFDP; NORM; Saratoga", "the same order of magnitude",
            joined(three, ".1f"), holds=max(three) < 10 * min(three),
            why="CFDP has no rate limit, so it fills gigabit Ethernet here. The study's host "
            "limited it.",
        ),
        found(
            "c", "Mbit/s of LTP", "consistently lower", f"{goodput[LTP] / 1e6:.2f}",
            holds=goodput[LTP] < 1e6 * min(three),
        ),
    ]  # fmt: skip


@PAPER.claim("S0-03")
def baseline_packets(evidence: Evidence) -> list[Finding]:
    """Holds if each protocol sends 100,000 packets for 100 MB, within 5 %."""
    packets = _baseline(evidence, "packets_str")
    shown = [packets[protocol] for protocol in (CFDP, NORM, SARATOGA)]
    return [
        found(
            "", "packets from the sender for 100 MB: CFDP; NORM; Saratoga", "about 100,000",
            joined(shown), holds=all(near(count, 1e5, 0.05) for count in shown),
        )
    ]  # fmt: skip


@PAPER.claim("S0-05")
def baseline_answers(evidence: Evidence) -> list[Finding]:
    """a: each receiver sends 2 to 9 packets; b: NORM and LTP send more than the others."""
    packets = _baseline(evidence, "packets_rts")
    why = (
        "The profile's receiver sends one report per checkpoint. The study counted two even "
        "without errors (S0-15), and its captures show three copies of a report."
    )
    shown = joined(packets.values(), ".0f")
    few = max(packets[CFDP], packets[SARATOGA])
    return [
        found(
            "a", "packets from the receiver: CFDP; LTP; NORM; Saratoga", "2 to 9", shown,
            holds=all(2 <= count <= 9 for count in packets.values()), why=why,
        ),
        found(
            "b", "the same", "NORM and LTP send many more", shown,
            holds=min(packets[NORM], packets[LTP]) > few, why=why,
        ),
    ]  # fmt: skip


@PAPER.claim("S0-06")
def average_chart(_: Evidence) -> list[Finding]:
    """Cannot be checked: the values of the chart are lost."""
    why = "The chart's values are lost in the paper's text. S0-T7 checks the derivable values."
    return [cannot("", "mean goodput at 25 ms", "a chart", why)]


@PAPER.claim("S0-07")
def cfdp_by_size(evidence: Evidence) -> list[Finding]:
    """a: goodput rises with each size; b: it stays below the limit by the packet interval."""
    goodput = sizes(evidence, CFDP)
    ceilings = (5.7, 8.5, 8.97)
    return [
        found(
            "a", "CFDP, 10 Mbit/s, 25 ms: Mbit/s of 10 kB to 10 MB", "rises with size",
            joined(goodput, ".2f"), holds=rising(goodput),
        ),
        found(
            "b", "Mbit/s of 100 kB; 1 MB; 10 MB", "at most 5.7; 8.5; 8.97",
            joined(goodput[1:], ".2f"),
            holds=all(g <= ceiling for g, ceiling in zip(goodput[1:], ceilings, strict=True)),
        ),
    ]  # fmt: skip


@PAPER.claim("S0-08")
def cfdpby_errors(evidence: Evidence) -> list[Finding]:
    """Holds if box heights up to 0.01 are below 5 % of the median, and the median at 0.1 is below
    half of the median at 0.01.
    """
    boxes = [_quartiles(samples(evidence, GOODPUT, CFDP, per=per)) for per in ERRORS]
    heights = [(high - low) / middle for low, middle, high in boxes]
    drop = boxes[-1][1] / boxes[-2][1]
    return [
        found(
            "", "CFDP, 10 MB: box height / median, 0 to 0.01; medians, 0.1 / 0.01",
            "remarkably little variance; a steep drop",
            f"at most {100 * max(heights[:-1]):.1f} %; {drop:.2f}",
            holds=max(heights[:-1]) < 0.05 and drop < 0.5,
        )
    ]  # fmt: skip


@PAPER.claim("S0-09")
def cfdp_sent(evidence: Evidence) -> list[Finding]:
    """Holds if 0.1 causes 20,000 additional packets compared with 0, within a third."""
    sent = by_errors(evidence, "packets_str", CFDP)
    retransmissions = 10_031 * 0.1 / 0.9
    return [
        found(
            "", "CFDP, 10 MB: additional packets at 0.1 compared with 0", "nearly 20,000",
            f"{sent[-1] - sent[0]:,.0f}", holds=near(sent[-1] - sent[0], 20_000, 1 / 3),
            why=f"Each lost packet is retransmitted until it arrives: {retransmissions:,.0f} "
            "packets in the mean. 20,000 packets are twice the file, so the study's engine "
            "retransmitted data that had arrived. Here a NAK requests 20 gaps, and the next NAK "
            "follows when these have arrived. A lost NAK is retransmitted after 50 s.",
        )
    ]  # fmt: skip


@PAPER.claim("S0-10")
def cfdp_asked(evidence: Evidence) -> list[Finding]:
    """Holds if the receiver sends 70 kB at 0.1, with IP headers, within a third."""
    size = mean(evidence, "bytes_rts", CFDP, per="1e-1")
    packets = mean(evidence, "packets_rts", CFDP, per="1e-1")
    return [
        found(
            "", "CFDP, 10 MB at 0.1: kB from the receiver", "about 70", f"{size / 1e3:.1f}",
            holds=near(size, 70e3, 1 / 3),
            why="NAKs of 20 gaps (207 bytes with headers) request each of about 1,000 gaps once, "
            f"and again after a second loss: {packets:.0f} packets. 70 kB are about 340 NAKs, so "
            "the study's receiver requested each gap six times. This also explains the 20,000 "
            "additional packets (S0-09).",
        )
    ]  # fmt: skip


@PAPER.claim("S0-11")
def cfdp_answers(evidence: Evidence) -> list[Finding]:
    """Holds if nine of ten runs have 7 to 9 packets."""
    counts = samples(evidence, "packets_rts", CFDP, per="1e-2")
    usual = sum(7 <= count <= 9 for count in counts)
    return [
        found(
            "", "CFDP, 10 MB at 0.01: runs with 7 to 9 packets from the receiver", "all",
            f"{usual} of {len(counts)}", holds=10 * usual >= 9 * len(counts),
        )
    ]  # fmt: skip
