"""Claims of S0 about LTP, NORM and Saratoga, from the grid; bounds as in `s0`."""

from __future__ import annotations

import statistics

from slowlight.claims.evidence import (
    Evidence,
    Finding,
    cannot,
    falling,
    found,
    joined,
    near,
    rising,
)
from slowlight.claims.s0 import ERRORS, GOODPUT, by_errors, mean, samples, sizes
from slowlight.claims.s0_worlds import CFDP, LTP, NORM, PAPER, SARATOGA, STUDY


@PAPER.claim("S0-12")
def ltp_by_size(evidence: Evidence) -> list[Finding]:
    """a holds if each larger file has more, b if LTP's goodput deviates more than CFDP's."""
    goodput = sizes(evidence, LTP)
    spread = [statistics.pstdev(samples(evidence, GOODPUT, p)) / 1e3 for p in (LTP, CFDP)]
    return [
        found(
            "a", "LTP, 10 Mbit/s, 25 ms: Mbit/s of 10 kB to 10 MB", "rises with size",
            joined(goodput, ".3f"), holds=rising(goodput),
        ),
        found(
            "b", "deviation of LTP; of CFDP without errors, kbit/s", "much higher",
            joined(spread, ".1f"), holds=spread[0] > spread[1],
            why="Without errors nothing is drawn here, so runs are alike. The study itself takes "
            "LTPlib's variance for the implementation's (S0-31).",
        ),
    ]  # fmt: skip


@PAPER.claim("S0-13")
def ltpby_errors(evidence: Evidence) -> list[Finding]:
    """a holds if the best runs of all rates are within a third, c if 1e-5 is no more than 1 %
    below no errors.
    """
    best = [max(samples(evidence, GOODPUT, LTP, per=per)) / 1e3 for per in ERRORS]
    last = [mean(evidence, GOODPUT, p, per="1e-1") / 1e3 for p in (LTP, CFDP)]
    clean, few = by_errors(evidence, GOODPUT, LTP)[:2]
    return [
        found(
            "a", "LTP, 10 MB: best run of each rate of errors, kbit/s", "very similar",
            joined(best), holds=min(best) >= max(best) * 2 / 3,
        ),
        found(
            "b", "LTP; CFDP at 0.1, kbit/s", "LTP is better", joined(last),
            holds=last[0] > last[1],
        ),
        found(
            "c", "LTP at 1e-5 against no errors", "at least as high",
            f"{100 * (few / clean - 1):+.3f} %", holds=few >= 0.99 * clean,
        ),
    ]  # fmt: skip


@PAPER.claim("S0-14")
def ltp_sent(evidence: Evidence) -> list[Finding]:
    """Holds if without errors 1,000 packets more are sent than at every other rate."""
    sent = by_errors(evidence, "packets_str", LTP)
    return [
        found(
            "", "LTP, 10 MB: packets from the sender by rate of errors",
            "without errors thousands more than with any", joined(sent),
            holds=all(sent[0] >= count + 1000 for count in sent[1:]),
            why="Without errors nothing is sent twice here; a sender has no cause to. What LTPlib "
            "did there, the paper does not say, and no capture of that case is printed.",
        )
    ]  # fmt: skip


@PAPER.claim("S0-15")
def ltp_answers(evidence: Evidence) -> list[Finding]:
    """Holds if all runs have the counts that the paper gives."""
    why = (
        "One checkpoint, one report: 1. The study's 2 say that LTPlib reported again before its "
        "report was acknowledged."
    )
    clean = samples(evidence, "packets_rts", LTP)
    few = samples(evidence, "packets_rts", LTP, per="1e-5")
    return [
        found(
            "a", "LTP, 10 MB: packets from the receiver, no errors", "2",
            f"{min(clean):.0f} to {max(clean):.0f}", holds=set(clean) == {2.0}, why=why,
        ),
        found(
            "b", "the same at 1e-5", "2 to 6", f"{min(few):.0f} to {max(few):.0f}",
            holds=min(few) >= 2 and max(few) <= 6, why=why,
        ),
    ]  # fmt: skip


@PAPER.claim("S0-16")
def norm_by_size(evidence: Evidence) -> list[Finding]:
    """a holds if each larger file has more, b within ten times at 10 MB, c by the means."""
    norm, cfdp = sizes(evidence, NORM), sizes(evidence, CFDP)
    return [
        found(
            "a", "NORM, 10 Mbit/s, 25 ms: Mbit/s of 10 kB to 10 MB", "rises with size",
            joined(norm, ".3f"), holds=rising(norm),
        ),
        found(
            "b", "10 MB: NORM; CFDP, Mbit/s", "the same order", joined((norm[3], cfdp[3]), ".2f"),
            holds=cfdp[3] < 10 * norm[3] < 100 * cfdp[3],
        ),
        found(
            "c", "1 MB: NORM; CFDP, Mbit/s", "CFDP is better", joined((norm[2], cfdp[2]), ".2f"),
            holds=cfdp[2] > norm[2],
        ),
    ]  # fmt: skip


@PAPER.claim("S0-17")
def normby_errors(evidence: Evidence) -> list[Finding]:
    """Holds if means never rise with errors, and the deviation at 0.1 is the largest."""
    goodput = [value / 1e6 for value in by_errors(evidence, GOODPUT, NORM)]
    spread = [statistics.pstdev(samples(evidence, GOODPUT, NORM, per=per)) for per in ERRORS]
    # A millionth is rounding.
    steps = [round(value, 4) for value in goodput]
    return [
        found(
            "", "NORM, 10 MB by errors: Mbit/s; deviation at 0 and 0.1, kbit/s",
            "goodput falls, variance rises",
            f"{joined(goodput, '.2f')}; {spread[0] / 1e3:.0f} and {spread[-1] / 1e3:.0f}",
            holds=falling(steps) and spread[-1] == max(spread) > spread[0],
        )
    ]  # fmt: skip


@PAPER.claim("S0-18")
def norm_sent(evidence: Evidence) -> list[Finding]:
    """a holds if deviations up to 0.01 are less than half of that at 0.1, b if means never fall."""
    each = [samples(evidence, "packets_str", NORM, per=per) for per in ERRORS]
    spread = [statistics.pstdev(counts) for counts in each]
    means = [statistics.fmean(counts) for counts in each]
    ltp = mean(evidence, "packets_str", LTP, per="1e-1")
    return [
        found(
            "a", "NORM, 10 MB: deviation of packets sent, by errors", "minimal until 0.1",
            joined(spread, ".1f"), holds=2 * max(spread[:-1]) < spread[-1],
        ),
        found(
            "b", "packets sent, by errors", "a clear progression", joined(means),
            holds=falling(means[::-1]) and means[-1] > means[0],
        ),
        found(
            "c", "packets sent at 0.1: LTP; NORM", "LTP sends fewer", joined((ltp, means[-1])),
            holds=ltp < means[-1],
            why="A packet of LTP holds 992 bytes of the file and one of NORM 1,024, so LTP needs "
            "more for the same file; at 0.1 either sends a ninth of them again.",
        ),
    ]  # fmt: skip


@PAPER.claim("S0-19")
def norm_answers(evidence: Evidence) -> list[Finding]:
    """At 0.1: a holds within a factor of two, b by the means; c at every rate with errors."""
    counts = {p: by_errors(evidence, "packets_rts", p) for p in (NORM, LTP, CFDP)}
    norm, ltp, cfdp = (counts[p] for p in (NORM, LTP, CFDP))
    return [
        found(
            "a", "packets from the receiver at 0.1: NORM; LTP", "similar",
            joined((norm[-1], ltp[-1]), ".1f"), holds=0.5 < norm[-1] / ltp[-1] < 2,
            why="NORM's receiver requests again, after the hold-off time, what a lost request "
            "asked for; how often the library of 2011 did is not known.",
        ),
        found(
            "b", "the same against CFDP", "fewer", f"{cfdp[-1]:.1f}",
            holds=max(norm[-1], ltp[-1]) < cfdp[-1],
        ),
        found(
            "c", "NORM against CFDP at 1e-5 to 0.01", "fewer",
            f"{joined(norm[1:-1], '.1f')} against {joined(cfdp[1:-1], '.1f')}",
            holds=all(one < two for one, two in zip(norm[1:-1], cfdp[1:-1], strict=True)),
            why="NORM's receiver answers a probe every few seconds and asks for repairs while the "
            "file is under way; CFDP's asks once, behind its end.",
        ),
    ]  # fmt: skip


@PAPER.claim("S0-20")
def saratoga_by_size(evidence: Evidence) -> list[Finding]:
    """a holds within a factor of two for 10 MB, b within ten times, c if r² of goodput over the
    logarithm of the size is above 0.9.
    """
    goodput = sizes(evidence, SARATOGA)
    cfdp, ltp = (mean(evidence, GOODPUT, p) / 1e6 for p in (CFDP, LTP))
    fit = statistics.correlation([1.0, 2.0, 3.0, 4.0], goodput) ** 2
    return [
        found(
            "a", "10 MB without errors: Saratoga; CFDP, Mbit/s", "the same class",
            joined((goodput[3], cfdp), ".2f"), holds=0.5 < goodput[3] / cfdp < 2,
        ),
        found(
            "b", "the same; LTP, Mbit/s", "the same class", joined((goodput[3], ltp), ".2f"),
            holds=0.1 < goodput[3] / ltp < 10,
            why="The study's own capture has a segment of LTP each 20.25 ms (S0-T3), 0.4 Mbit/s "
            "whatever the link, 22 times less.",
        ),
        found(
            "c", "r² of goodput over the logarithm of size", "a clear logarithmic relation",
            f"{fit:.2f}", holds=fit > 0.9,
        ),
    ]  # fmt: skip


@PAPER.claim("S0-21")
def saratogaby_errors(evidence: Evidence) -> list[Finding]:
    """a holds if its mean is the highest of the four at every rate up to 0.01."""
    leads = []
    for per in ERRORS[:-1]:
        others = max(mean(evidence, GOODPUT, p, per=per) for p in (CFDP, LTP, NORM))
        leads.append(100 * (mean(evidence, GOODPUT, SARATOGA, per=per) / others - 1))
    rows = evidence.rows(STUDY, "grid", protocol=SARATOGA, per="1e-1")
    here = f"{int(rows['completed'].sum())} of {rows.height} runs at 0.1 complete"
    return [
        found(
            "a", "10 MB: Saratoga against the best other at 0 to 0.01", "best of the four",
            f"{joined(leads, '+.1f')} %", holds=min(leads) > 0,
            why="Holes wait for the sender's next poll, one a second as its captures have it: at "
            "0.01 that is a tenth of the time. In one run of ten METADATA was lost, and all of the "
            "file sent again.",
        ),
        cannot(
            "b", "at 0.1", "does not work: its Perl crashed",
            "That is of the program, as the study says itself.", here,
        ),
    ]  # fmt: skip


@PAPER.claim("S0-22")
def saratoga_sent(evidence: Evidence) -> list[Finding]:
    """Holds if the median at 0.01 is 100 above that at 0, to a third; a chart of boxes shows
    medians.
    """
    clean, lossy = (samples(evidence, "packets_str", SARATOGA, per=p) for p in ("0", "1e-2"))
    more = statistics.median(lossy) - statistics.median(clean)
    means = statistics.fmean(lossy) - statistics.fmean(clean)
    return [
        found(
            "", "Saratoga, 10 MB at 0.01: packets more than without errors", "about 100",
            f"{more:.0f} (mean {means:.0f}, most {max(lossy) - clean[0]:,.0f})",
            holds=near(more, 100, 1 / 3),
        )
    ]  # fmt: skip


@PAPER.claim("S0-23")
def saratoga_answers(evidence: Evidence) -> list[Finding]:
    """a holds if the means below 0.01 are at most those of CFDP and one more; b and c by means."""
    saratoga, cfdp = (by_errors(evidence, "packets_rts", p) for p in (SARATOGA, CFDP))
    norm, ltp = (mean(evidence, "packets_rts", p, per="1e-2") for p in (NORM, LTP))
    return [
        found(
            "a", "Saratoga, 10 MB: packets from the receiver at 0 to 1e-3", "minimal",
            joined(saratoga[:4], ".1f"),
            holds=all(one <= two + 1 for one, two in zip(saratoga[:4], cfdp[:4], strict=True)),
        ),
        found(
            "b", "at 0.01: Saratoga; CFDP", "more than CFDP's 7 to 9",
            joined((saratoga[4], cfdp[4]), ".1f"), holds=saratoga[4] > max(cfdp[4], 9),
            why="A list of holes fits many into a packet here (100 of them into 810 bytes), so "
            "two or three packets ask for all; CFDP's NAK has 20 gaps at most.",
        ),
        found(
            "c", "at 0.01: NORM; LTP; Saratoga", "NORM and LTP send fewer than Saratoga",
            joined((norm, ltp, saratoga[4]), ".1f"), holds=max(norm, ltp) < saratoga[4],
            why="LTP sends fewer. NORM's receiver also answers probes and asks for repairs while "
            "the file is under way (S0-19).",
        ),
    ]  # fmt: skip
