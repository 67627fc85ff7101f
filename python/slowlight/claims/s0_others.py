"""Claims of S0 about LTP, NORM and Saratoga, from the grid, with the bounds of `s0`."""

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
    """a: goodput rises with each size; b: LTP's standard deviation exceeds CFDP's."""
    goodput = sizes(evidence, LTP)
    spread = [statistics.pstdev(samples(evidence, GOODPUT, p)) / 1e3 for p in (LTP, CFDP)]
    return [
        found(
            "a", "LTP, 10 Mbit/s, 25 ms: Mbit/s of 10 kB to 10 MB", "rises with size",
            joined(goodput, ".3f"), holds=rising(goodput),
        ),
        found(
            "b", "standard deviation without errors: LTP; CFDP, kbit/s", "much higher",
            joined(spread, ".1f"), holds=spread[0] > spread[1],
            why="Without errors no random draw affects these runs, so they are equal. The study "
            "itself attributes LTPlib's variance to the implementation (S0-31).",
        ),
    ]  # fmt: skip


@PAPER.claim("S0-13")
def ltpby_errors(evidence: Evidence) -> list[Finding]:
    """a: the best runs of all error rates are within a third; b: by the means; c: goodput at 1e-5
    is at most 1 % below the goodput without errors.
    """
    best = [max(samples(evidence, GOODPUT, LTP, per=per)) / 1e3 for per in ERRORS]
    last = [mean(evidence, GOODPUT, p, per="1e-1") / 1e3 for p in (LTP, CFDP)]
    clean, few = by_errors(evidence, GOODPUT, LTP)[:2]
    return [
        found(
            "a", "LTP, 10 MB: best run of each error rate, kbit/s", "very similar",
            joined(best), holds=min(best) >= max(best) * 2 / 3,
        ),
        found(
            "b", "LTP; CFDP at 0.1, kbit/s", "LTP is better", joined(last),
            holds=last[0] > last[1],
        ),
        found(
            "c", "LTP at 1e-5 compared with no errors", "at least as high",
            f"{100 * (few / clean - 1):+.3f} %", holds=few >= 0.99 * clean,
        ),
    ]  # fmt: skip


@PAPER.claim("S0-14")
def ltp_sent(evidence: Evidence) -> list[Finding]:
    """Holds if LTP sends 1,000 more packets without errors than at every other error rate."""
    sent = by_errors(evidence, "packets_str", LTP)
    return [
        found(
            "", "LTP, 10 MB: packets from the sender by error rate",
            "without errors thousands more than with any", joined(sent),
            holds=all(sent[0] >= count + 1000 for count in sent[1:]),
            why="Without errors the sender retransmits nothing here. The paper gives no reason for "
            "LTPlib's packets and prints no capture of this case.",
        )
    ]  # fmt: skip


@PAPER.claim("S0-15")
def ltp_answers(evidence: Evidence) -> list[Finding]:
    """Each holds if all runs have the paper's counts."""
    why = (
        "The receiver sends one report per checkpoint. The study's 2 show that LTPlib "
        "retransmitted its report before the sender acknowledged it."
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
    """a: goodput rises with each size; b: within a factor of ten at 10 MB; c: by the means."""
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
    """Holds if means never rise with errors, and the standard deviation peaks at 0.1."""
    goodput = [value / 1e6 for value in by_errors(evidence, GOODPUT, NORM)]
    spread = [statistics.pstdev(samples(evidence, GOODPUT, NORM, per=per)) for per in ERRORS]
    # A millionth is rounding.
    steps = [round(value, 4) for value in goodput]
    return [
        found(
            "", "NORM, 10 MB by error rate: Mbit/s; standard deviation at 0 and 0.1, kbit/s",
            "goodput falls, variance rises",
            f"{joined(goodput, '.2f')}; {spread[0] / 1e3:.0f} and {spread[-1] / 1e3:.0f}",
            holds=falling(steps) and spread[-1] == max(spread) > spread[0],
        )
    ]  # fmt: skip


@PAPER.claim("S0-18")
def norm_sent(evidence: Evidence) -> list[Finding]:
    """a: standard deviations up to 0.01 are below half of the one at 0.1; b: means never fall;
    c: by the means.
    """
    each = [samples(evidence, "packets_str", NORM, per=per) for per in ERRORS]
    spread = [statistics.pstdev(counts) for counts in each]
    means = [statistics.fmean(counts) for counts in each]
    ltp = mean(evidence, "packets_str", LTP, per="1e-1")
    return [
        found(
            "a", "NORM, 10 MB: standard deviation of packets sent, by error rate",
            "minimal until 0.1", joined(spread, ".1f"), holds=2 * max(spread[:-1]) < spread[-1],
        ),
        found(
            "b", "packets sent, by error rate", "a clear progression", joined(means),
            holds=falling(means[::-1]) and means[-1] > means[0],
        ),
        found(
            "c", "packets sent at 0.1: LTP; NORM", "LTP sends fewer", joined((ltp, means[-1])),
            holds=ltp < means[-1],
            why="An LTP packet holds 992 bytes of the file, a NORM packet 1,024, so LTP needs more "
            "packets. At 0.1 both retransmit a ninth of them.",
        ),
    ]  # fmt: skip


@PAPER.claim("S0-19")
def norm_answers(evidence: Evidence) -> list[Finding]:
    """At 0.1, a: within a factor of two; b: by the means. c: at every rate from 1e-5 to 0.01."""
    counts = {p: by_errors(evidence, "packets_rts", p) for p in (NORM, LTP, CFDP)}
    norm, ltp, cfdp = (counts[p] for p in (NORM, LTP, CFDP))
    return [
        found(
            "a", "packets from the receiver at 0.1: NORM; LTP", "similar",
            joined((norm[-1], ltp[-1]), ".1f"), holds=0.5 < norm[-1] / ltp[-1] < 2,
            why="NORM's receiver repeats a lost request after the hold-off time. How often the "
            "library of 2011 did so is not known.",
        ),
        found(
            "b", "packets from the receiver at 0.1: CFDP", "NORM and LTP send fewer",
            f"{cfdp[-1]:.1f}", holds=max(norm[-1], ltp[-1]) < cfdp[-1],
        ),
        found(
            "c", "the same at 1e-5 to 0.01: NORM against CFDP", "NORM sends fewer",
            f"{joined(norm[1:-1], '.1f')} against {joined(cfdp[1:-1], '.1f')}",
            holds=all(one < two for one, two in zip(norm[1:-1], cfdp[1:-1], strict=True)),
            why="NORM's receiver replies to a probe every few seconds and requests repairs during "
            "the transfer. CFDP's receiver requests them once, after EOF.",
        ),
    ]  # fmt: skip


@PAPER.claim("S0-20")
def saratoga_by_size(evidence: Evidence) -> list[Finding]:
    """a: within a factor of two for 10 MB; b: within a factor of ten; c: r² of goodput against the
    logarithm of size is above 0.9.
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
            why="The study's own capture shows one LTP segment every 20.25 ms (S0-T3). That is 0.4 "
            "Mbit/s on any link, 22 times less.",
        ),
        found(
            "c", "r² of goodput against the logarithm of size", "a clear logarithmic relation",
            f"{fit:.2f}", holds=fit > 0.9,
        ),
    ]  # fmt: skip


@PAPER.claim("S0-21")
def saratogaby_errors(evidence: Evidence) -> list[Finding]:
    """a: Saratoga's mean is the maximum of the four at every error rate up to 0.01."""
    leads = []
    for per in ERRORS[:-1]:
        others = max(mean(evidence, GOODPUT, p, per=per) for p in (CFDP, LTP, NORM))
        leads.append(100 * (mean(evidence, GOODPUT, SARATOGA, per=per) / others - 1))
    rows = evidence.rows(STUDY, "grid", protocol=SARATOGA, per="1e-1")
    here = f"{int(rows['completed'].sum())} of {rows.height} runs at 0.1 complete"
    return [
        found(
            "a", "10 MB: Saratoga compared with the best other at 0 to 0.01", "best of the four",
            f"{joined(leads, '+.1f')} %", holds=min(leads) > 0,
            why="The receiver reports holes after the sender's next poll. The captures show one "
            "poll per second, so at 0.01 this wait is a tenth of the time. In one run of ten "
            "METADATA was lost, and all of the file was retransmitted.",
        ),
        cannot(
            "b", "at 0.1", "does not work: its Perl crashed",
            "The study itself attributes this to the program.", here,
        ),
    ]  # fmt: skip


@PAPER.claim("S0-22")
def saratoga_sent(evidence: Evidence) -> list[Finding]:
    """Holds if the median at 0.01 exceeds the median at 0 by 100, within a third. The chart shows
    medians.
    """
    clean, lossy = (samples(evidence, "packets_str", SARATOGA, per=p) for p in ("0", "1e-2"))
    more = statistics.median(lossy) - statistics.median(clean)
    means = statistics.fmean(lossy) - statistics.fmean(clean)
    return [
        found(
            "", "Saratoga, 10 MB at 0.01: additional packets compared with no errors", "about 100",
            f"{more:.0f} (mean {means:.0f}, maximum {max(lossy) - clean[0]:,.0f})",
            holds=near(more, 100, 1 / 3),
        )
    ]  # fmt: skip


@PAPER.claim("S0-23")
def saratoga_answers(evidence: Evidence) -> list[Finding]:
    """a: means below 0.01 exceed CFDP's by at most one packet; b and c: by the means."""
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
            why="A packet holds a long list of holes here (100 holes in 810 bytes), so two or "
            "three packets request all repairs. CFDP's NAK holds at most 20 gaps.",
        ),
        found(
            "c", "at 0.01: NORM; LTP; Saratoga", "NORM and LTP send fewer than Saratoga",
            joined((norm, ltp, saratoga[4]), ".1f"), holds=max(norm, ltp) < saratoga[4],
            why="LTP sends fewer. NORM's receiver also replies to probes and requests repairs "
            "during the transfer (S0-19).",
        ),
    ]  # fmt: skip
