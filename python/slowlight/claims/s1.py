"""Claims of S1: LTP, LTP-T, bundles and sftp over one and two hops.

Bounds are in docs/reproduction/001-ltpt-bp-sftp.md: the sign and the value within a third, and
bundles of Table 1 within 5 %. Goodput is file size / (time - one light trip time), in KiB/s.
"""

from __future__ import annotations

import itertools
import math

import polars as pl

from slowlight.claims.evidence import (
    Evidence,
    Finding,
    Paper,
    cannot,
    found,
    joined,
    near,
    rising,
)
from slowlight.single import once

PAPER = Paper("S1", "ltpt-2007")
STUDY = PAPER.study
SFTP, RED, BUNDLES, BLOCKS = "sftp", "ltp", "bp-udp", "ltp-t"
LTP = (RED, "ltp-green", "ltp-1k-red")
LTTS = ("0 ms", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s")
FAR = ("10 ms", "100 ms", "1 s", "10 s")
SIZES = tuple(f"{2**power} KiB" for power in range(13))
LARGE = SIZES[-1]
# Table 1, 4 MiB to 512 KiB: mean and standard deviation of bundles, then of LTP-T, KB/s.
TABLE = {
    "4096 KiB": ((36.15, 0.05), (64.00, 3.09)),
    "2048 KiB": ((36.51, 0.34), (54.03, 16.25)),
    "1024 KiB": ((36.23, 0.35), (45.25, 22.34)),
    "512 KiB": ((36.61, 0.35), (43.13, 28.57)),
}


def seconds(label: str) -> float:
    """Seconds of a light trip time's label."""
    number, unit = label.split()
    return float(number) * (1e-3 if unit == "ms" else 1.0)


def time(evidence: Evidence, who: str, ltt: str, size: str) -> float:
    """Seconds until delivery of the file; infinite if the transfer fails."""
    return evidence.mean(STUDY, "one-hop", "delivered_s", protocol=who, ltt=ltt, size=size)


def _gain(evidence: Evidence, ltt: str, size: str) -> float:
    """Ratio of LTP's time and sftp's."""
    return time(evidence, RED, ltt, size) / time(evidence, SFTP, ltt, size)


def _trace(evidence: Evidence, sheet: str, **labels: str) -> pl.DataFrame:
    return once(evidence.results(STUDY).cell(sheet, labels)).trace


@PAPER.claim("S1-01")
def samples(evidence: Evidence) -> list[Finding]:
    """Holds if the grid has 91 cells per protocol; five iterations make the paper's 455."""
    rows = evidence.rows(STUDY, "one-hop", protocol=SFTP)
    cells = rows.select("ltt", "size").unique().height
    return [
        found(
            "", "cells per protocol, times five", "455", f"{5 * cells}", holds=5 * cells == 455,
        )
    ]  # fmt: skip


@PAPER.claim("S1-02")
def failures(evidence: Evidence) -> list[Finding]:
    """a: all sizes arrive at 1 s, none at 10 s; b: LoginGraceTime expires, 120 s within 0.1 s; c: 7
    round trips within a third.
    """
    times = {ltt: [time(evidence, SFTP, ltt, size) for size in SIZES] for ltt in LTTS}
    crosses = [ltt for ltt in LTTS if all(map(math.isfinite, times[ltt]))]
    fails = [ltt for ltt in LTTS if not any(map(math.isfinite, times[ltt]))]
    last, first = crosses[-1] if crosses else "none", fails[0] if fails else "none"
    why = evidence.rows(STUDY, "one-hop", protocol=SFTP, ltt="10 s", size="1 KiB")["failure"][0]
    packets = _trace(evidence, "one-hop", protocol=SFTP, ltt="10 s", size="1 KiB")
    accepted = packets.filter((pl.col("to") == "earth") & (pl.col("kind") == "ACK"))["at_s"]
    ended = packets.filter((pl.col("from") == "earth") & (pl.col("kind") == "FIN"))["sent_s"]
    grace = ended[0] - accepted[0] if len(accepted) and len(ended) else math.nan
    ready = evidence.mean(STUDY, "one-hop", "ready_s", protocol=SFTP, ltt="1 s", size="1 KiB")
    return [
        found(
            "a", "sftp: longest light trip time with success, shortest without", "1 s; 10 s",
            f"{last}; {first}", holds=(last, first) == ("1 s", "10 s"),
        ),
        found(
            "b", "sftp at 10 s: cause of failure, and s after the connection opens",
            "LoginGraceTime, 120", f"the server, {grace:.1f}",
            holds="LoginGraceTime" in str(why) and abs(grace - 120) < 0.1,
        ),
        found(
            "c", "sftp: round trips before the file", "7", f"{ready / 2:.1f}",
            holds=near(ready, 14.0, 1 / 3),
            why="The model has a round trip for each exchange from the handshake to SFTP's open. "
            "Some short messages also wait for an acknowledgment (Nagle's algorithm). With either "
            "number, the login fails at 10 s and succeeds at 1 s.",
        ),
    ]  # fmt: skip


@PAPER.claim("S1-03")
def alike(evidence: Evidence) -> list[Finding]:
    """Holds if all four are within 5 % in half of the cells."""
    count = 0
    for ltt, size in itertools.product(LTTS, SIZES):
        times = [time(evidence, who, ltt, size) for who in (*LTP, BUNDLES)]
        count += max(times) < 1.05 * min(times)
    all_cells = len(LTTS) * len(SIZES)
    return [
        found(
            "", "cells where bundles and LTP (red, green, 1k-red) are within 5 %",
            "almost identical over most of the range", f"{count} of {all_cells}",
            holds=2 * count > all_cells,
        )
    ]  # fmt: skip


@PAPER.claim("S1-04")
def near_by(evidence: Evidence) -> list[Finding]:
    """a: sftp's advantage rises with each size, and sftp is faster from some size on; b: by the
    sign; c: 50 to 60 s.
    """
    near_ltts = LTTS[:3]
    gains = {ltt: [_gain(evidence, ltt, size) for size in SIZES] for ltt in near_ltts}
    sooner = []
    for ltt in near_ltts:
        later = [index for index, gain in enumerate(gains[ltt]) if gain <= 1]
        start = later[-1] + 1 if later else 0
        sooner.append(SIZES[start] if start < len(SIZES) else "none")
    large = [gains[ltt][-1] for ltt in near_ltts]
    minute = time(evidence, RED, "0 ms", LARGE)
    return [
        found(
            "a", "file size from which sftp is faster than LTP at 0, 1, 10 ms",
            "best, especially for larger files", "; ".join(sooner),
            holds="none" not in sooner and all(rising(each) for each in gains.values()),
        ),
        found(
            "b", "4 MiB at 0, 1, 10 ms: LTP's time / sftp's", "less at 10 ms", joined(large),
            holds=large[2] < large[1] < large[0],
        ),
        found(
            "c", "4 MiB with LTP without delay, s", "almost an entire minute", f"{minute:.1f}",
            holds=50 <= minute < 60,
        ),
    ]  # fmt: skip


@PAPER.claim("S1-05")
def unusable(evidence: Evidence) -> list[Finding]:
    """Each holds if LTP is faster than sftp for every size."""
    at = {ltt: [1 / _gain(evidence, ltt, size) for size in SIZES] for ltt in ("100 ms", "1 s")}
    shown = (at["100 ms"][0], at["100 ms"][9], at["100 ms"][12])
    slower = sum(ratio > 1 for ratio in at["1 s"])
    return [
        found(
            "a", "at 100 ms: sftp's time / LTP's, 1 KiB; 512 KiB; 4 MiB",
            "effectively unusable", joined(shown, ".2f"), holds=min(at["100 ms"]) > 1,
            why="LTP sends one packet every 20 ms, 72 kB/s. After a login of 4 s, sftp's window of "
            "128 KiB allows about 370 kB/s at 100 ms. So sftp is faster from 512 KiB on.",
        ),
        found(
            "b", "at 1 s: sizes for which LTP is faster", "LTP outperforms TCP",
            f"{slower} of {len(SIZES)}", holds=slower == len(SIZES),
        ),
    ]  # fmt: skip


@PAPER.claim("S1-06")
def start_up(_: Evidence) -> list[Finding]:
    """Cannot be checked: process start-up is not simulated."""
    why = "The start-up of a process for each file takes no time in a simulator."
    return [cannot("", "small files at small delays", "large discrepancies", why)]


@PAPER.claim("S1-07")
def far_away(evidence: Evidence) -> list[Finding]:
    """a: 40 minutes within 0.1; b: TCP carries no data."""

    def packets(who: str) -> pl.DataFrame:
        world = evidence.results(STUDY).cell("one-hop", {"protocol": who, "size": "1 KiB"})
        delays = {"links.router>lander.delay": "1200 s", "links.router>earth.delay": "1200 s"}
        return once(world.changed(delays)).trace

    by_ltp = packets(RED)
    sent = by_ltp.filter(pl.col("from") == "lander")["sent_s"][0]
    received = by_ltp.filter(pl.col("to") == "lander")["at_s"][0]
    minutes = (received - sent) / 60
    connected = (packets(SFTP)["kind"] == "data").any()
    return [
        found(
            "a", "20 minutes one way: round trip of a packet, minutes", "40", f"{minutes:.1f}",
            holds=abs(minutes - 40) < 0.1,
        ),
        found(
            "b", "the same with TCP", "not delay tolerant",
            "a connection" if connected else "no connection", holds=not connected,
        ),
    ]  # fmt: skip


def _two(evidence: Evidence, who: str, ltt: str, size: str) -> float:
    return evidence.mean(STUDY, "two-hops", "delivered_s", protocol=who, ltt=ltt, size=size)


def goodput(evidence: Evidence, who: str, size: str) -> float:
    """Delay-discounted goodput over two hops in KiB/s, mean over the light trip times."""
    kib = float(size.split()[0])
    each = [kib / (_two(evidence, who, ltt, size) - seconds(ltt)) for ltt in FAR]
    return math.fsum(each) / len(each)


@PAPER.claim("S1-08")
def halves(evidence: Evidence) -> list[Finding]:
    """Holds if each is a half, within a third."""
    ratios = [
        _two(evidence, BLOCKS, ltt, LARGE) / _two(evidence, BUNDLES, ltt, LARGE) for ltt in FAR
    ]
    return [
        found(
            "", "LTP-T's time / bundles' time, 4 MiB at 10, 100 ms, 1, 10 s",
            "about half, for larger files", joined(ratios, ".2f"),
            holds=all(near(ratio, 0.5, 1 / 3) for ratio in ratios),
        )
    ]  # fmt: skip


_PACE = (
    "LTP-T's goodput is the rate of the slower hop for every size here. The study's goodput falls "
    "with smaller files, with a standard deviation of up to two thirds of it. Loading ltpd took "
    "varying time (S1-14)."
)


def _row(evidence: Evidence, size: str) -> list[Finding]:
    (bundles, _), (blocks, _) = TABLE[size]
    here = goodput(evidence, BUNDLES, size), goodput(evidence, BLOCKS, size)
    return [
        found(
            "a", f"bundles, {size}: KiB/s", f"{bundles}", f"{here[0]:.2f}",
            holds=near(here[0], bundles, 0.05),
        ),
        found(
            "b", f"LTP-T, {size}: KiB/s", f"{blocks:.2f}", f"{here[1]:.2f}",
            holds=near(here[1], blocks, 1 / 3), why=_PACE,
        ),
    ]  # fmt: skip


@PAPER.claim("S1-09")
def table_4096(evidence: Evidence) -> list[Finding]:
    """a: within 5 %; b: 61 to 73; c: 1.7 to 2.1."""
    bundles, blocks = _row(evidence, LARGE)
    here = goodput(evidence, BLOCKS, LARGE)
    gain = here / goodput(evidence, BUNDLES, LARGE)
    return [
        bundles,
        found("b", blocks.what, blocks.paper, blocks.here, holds=61 <= here < 73, why=_PACE),
        found(
            "c", "LTP-T's goodput / bundles', 4 MiB", "1.77", f"{gain:.2f}",
            holds=1.7 <= gain < 2.1,
        ),
    ]  # fmt: skip


@PAPER.claim("S1-10")
def table_2048(evidence: Evidence) -> list[Finding]:
    """a: within 5 %; b: within a third."""
    return _row(evidence, "2048 KiB")


@PAPER.claim("S1-11")
def table_1024(evidence: Evidence) -> list[Finding]:
    """a: within 5 %; b: within a third."""
    return _row(evidence, "1024 KiB")


@PAPER.claim("S1-12")
def table_512(evidence: Evidence) -> list[Finding]:
    """a: within 5 %; b: within a third."""
    return _row(evidence, "512 KiB")


@PAPER.claim("S1-13")
def definition(_: Evidence) -> list[Finding]:
    """Cannot be checked: it is a definition."""
    why = "It is a definition; S1-09 to S1-12 use it."
    return [cannot("", "goodput", "size / (time - one light trip time)", why)]


@PAPER.claim("S1-14")
def beginnings(evidence: Evidence) -> list[Finding]:
    """Holds if one constant start-up time brings all four goodputs of LTP-T within one standard
    deviation of the paper's.
    """
    spans = []
    for size, (_, (expected, deviation)) in TABLE.items():
        kib = float(size.split()[0])
        alone = kib / goodput(evidence, BLOCKS, size)
        spans.append((kib / (expected + deviation) - alone, kib / (expected - deviation) - alone))
    minimum = max(0.0, *(low for low, _ in spans))
    maximum = min(high for _, high in spans)
    return [
        found(
            "", "LTP-T: start-up time that brings all within one standard deviation, s",
            "less convincing: loading ltpd takes varying time",
            f"{minimum:.1f} to {maximum:.1f}" if minimum < maximum else "none",
            holds=minimum < maximum,
        )
    ]  # fmt: skip


def _had(evidence: Evidence, who: str) -> float:
    """Percentage of a file's packets at the orbiter when it sent its first packet."""
    packets = _trace(evidence, "two-hops", protocol=who, ltt="1 s", size="512 KiB")
    full = packets.filter(pl.col("ip_bytes") > 500)
    here = full.filter(pl.col("from") == "lander")
    on = full.filter((pl.col("from") == "orbiter") & (pl.col("to") == "router"))["sent_s"]
    return 100 * here.filter(pl.col("at_s") <= min(on.to_list())).height / here.height


@PAPER.claim("S1-15")
def causes(evidence: Evidence) -> list[Finding]:
    """Holds if bundles wait for all packets, and LTP-T for less than 1 %."""
    bundles, blocks = _had(evidence, BUNDLES), _had(evidence, BLOCKS)
    return [
        found(
            "", "share of packets received at the orbiter before its first: bundles; LTP-T",
            "all; only the first", f"{bundles:.0f} %; {blocks:.1f} %",
            holds=bundles >= 99.9 and blocks < 1,
        )
    ]  # fmt: skip
