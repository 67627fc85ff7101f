"""Claims of S2: file tools, gateways and Saratoga over Global Hawk's link, from the grid.

Throughput is 100 MB / the time that the client reports, in Mbit/s. Bounds are in
docs/reproduction/002-global-hawk-pep.md: the sign and the value within a third. Where the paper
gives no number, "slightly" is up to 10 % and "none" up to 3 %. Claims about packets are in
`s2_packets`.
"""

from __future__ import annotations

import itertools
import math

from slowlight.claims.evidence import Estimate, Evidence, Finding, Paper, found, joined, near

PAPER = Paper("S2", "global-hawk-2012")
STUDY = PAPER.study
FTP, TUNED, SCP, SFTP, RSYNC, SARATOGA = "ftp", "ftp, tuned", "scp", "sftp", "rsync", "saratoga"
PROGRAMS = (FTP, SCP, SFTP, RSYNC)
SSH = PROGRAMS[1:]
NONE, SCPS = "none", "scps"
RTTS = ("0 ms", "100 ms", "300 ms", "600 ms")
BY_PACKET = ("0", "1e-7 a packet", "1e-5 a packet")
BY_BIT = ("0", "1e-7 a bit", "1e-5 a bit")
HIGHEST = BY_PACKET[-1]


def _rates(evidence: Evidence, sheet: str, **labels: str) -> Estimate:
    rows = evidence.rows(STUDY, sheet, **labels)
    taken = rows["transfer_s"].fill_null(rows["delivered_s"])
    bits = 8.0 * rows["file_bytes"].cast(float)
    rates = [rate / 1e6 for rate in (bits / taken).drop_nulls().to_list()]
    return Estimate.of(rates) if rates else Estimate(0.0, 0.0)


def throughput(evidence: Evidence, who: str, rtt: str, errors: str, pep: str = NONE) -> Estimate:
    """Throughput of the file in Mbit/s."""
    return _rates(evidence, "grid", protocol=who, rtt=rtt, errors=errors, pep=pep)


def change(evidence: Evidence, who: str, rtt: str, errors: str) -> float:
    """Change of a throughput with gateways, in percent."""
    with_them = throughput(evidence, who, rtt, errors, SCPS)
    return with_them.more_than(throughput(evidence, who, rtt, errors)).mean


def _percents(changes: list[float]) -> str:
    return f"{joined(changes, '+.1f')} %"


def _rate(estimate: Estimate) -> str:
    return f"{estimate.mean:.3f} ± {estimate.sem:.3f}"


@PAPER.claim("S2-02")
def interactive(evidence: Evidence) -> list[Finding]:
    """Holds if gateways shorten no median time per key by more than 1 %."""
    medians = {
        pep: [evidence.mean(STUDY, "telnet", "key_median_s", pep=pep, rtt=rtt) for rtt in RTTS]
        for pep in (NONE, SCPS)
    }
    return [
        found(
            "", "telnet: s per key at 0, 100, 300, 600 ms, without; with gateways",
            "no improvement", f"{joined(medians[NONE], '.3f')} and {joined(medians[SCPS], '.3f')}",
            holds=all(
                after > 0.99 * before
                for before, after in zip(medians[NONE], medians[SCPS], strict=True)
            ),
        )
    ]  # fmt: skip


@PAPER.claim("S2-03")
def no_delay(evidence: Evidence) -> list[Finding]:
    """Holds by the sign, because runs without errors are identical."""
    clean = [change(evidence, who, "0 ms", "0") for who in PROGRAMS]
    lossy = [change(evidence, who, "0 ms", HIGHEST) for who in PROGRAMS]
    return [
        found(
            "", "gateways at 0 ms, FTP, SCP, SFTP, rsync: no errors; 1e-5 per packet",
            "worse, with all", f"{_percents(clean)}; {_percents(lossy)}",
            holds=max(*clean, *lossy) < 0,
        )
    ]  # fmt: skip


_FILLED = (
    "SCP without gateways takes seven seconds to fill the link at 600 ms, and slows down after the "
    "queue overflows. Gateways send at the full rate from the first second."
)
_WINDOW = (
    "With gateways, FTP's window of 54,750 bytes spans the LAN alone. The link's window is "
    "2,000,000 bytes, so the link is full. The study does not say what limited its gateways."
)


@PAPER.claim("S2-04")
def far(evidence: Evidence) -> list[Finding]:
    """a and c: better by up to 10 %; b: better by less than 3 %."""
    lossy = [change(evidence, who, "600 ms", HIGHEST) for who in SSH]
    clean = [change(evidence, who, "600 ms", "0") for who in SSH]
    ftp = change(evidence, FTP, "600 ms", HIGHEST)
    return [
        found(
            "a", "gateways at 600 ms, SCP, SFTP, rsync, 1e-5 per packet",
            "ever so slightly better", _percents(lossy),
            holds=all(0 <= one < 10 for one in lossy),
        ),
        found(
            "b", "the same without errors", "no improvement", _percents(clean),
            holds=max(clean) < 3, why=_FILLED,
        ),
        found(
            "c", "the same with FTP, 1e-5 per packet", "ever so slightly better", _percents([ftp]),
            holds=0 <= ftp < 10, why=_WINDOW,
        ),
    ]  # fmt: skip


@PAPER.claim("S2-05")
def ftp_far(evidence: Evidence) -> list[Finding]:
    """Each holds if all are 0.73 Mbit/s within 10 %."""
    readings = (("a", "packet", BY_PACKET), ("b", "bit", BY_BIT))
    findings = []
    for part, reading, errors in readings:
        each = [throughput(evidence, FTP, "600 ms", one) for one in errors]
        findings.append(
            found(
                part, f"FTP at 600 ms, errors per {reading} 0; 1e-7; 1e-5, Mbit/s",
                "0.730, whatever the errors", "; ".join(map(_rate, each)),
                holds=all(near(one.mean, 0.73, 0.1) for one in each),
                why="With 1e-5 per bit 11 % of the packets are lost. The study saw 0.73 at every "
                "rate, so its rates were packet error rates, as its emulator counts them.",
            )
        )  # fmt: skip
    return findings


@PAPER.claim("S2-06")
def small_window(evidence: Evidence) -> list[Finding]:
    """Holds if it is 0.73 Mbit/s within 10 %."""
    here = _rates(evidence, "windows", protocol="ftp, 12000 B", pep=NONE, errors="0")
    return [
        found(
            "", "FTP at 600 ms with a window of 12,000 bytes, Mbit/s", "0.730", _rate(here),
            holds=near(here.mean, 0.73, 0.1),
            why="12,000 bytes every 600 ms are 0.16 Mbit/s. The study's two sentences contradict "
            "each other, and the throughput is the measured value.",
        )
    ]  # fmt: skip


@PAPER.claim("S2-08")
def product(_: Evidence) -> list[Finding]:
    """Holds if rate times round trip is exactly this."""
    size = 8_000_000 // 8 * 600 // 1000
    return [
        found("", "8 Mbit/s times 600 ms, bytes", "600,000", f"{size:,}",
              holds=size == 600_000)
    ]  # fmt: skip


@PAPER.claim("S2-14")
def chart_3(evidence: Evidence) -> list[Finding]:
    """a and b: minimum / maximum exceeds 0.9 and 0.8; c: more than 10 %; d: by the sign."""
    findings = []
    for part, errors, share, expected in (
        ("a", BY_PACKET, 0.9, "consistent"), ("b", BY_BIT, 0.8, "little fall-off"),
    ):  # fmt: skip
        rates = [
            throughput(evidence, SARATOGA, rtt, one).mean
            for rtt, one in itertools.product(RTTS, errors)
        ]
        findings.append(
            found(
                part, f"Saratoga at all delays, errors per {errors[1].split()[-1]}, Mbit/s",
                expected, f"{min(rates):.2f} to {max(rates):.2f}",
                holds=min(rates) > share * max(rates),
            )
        )  # fmt: skip
    ftp = change(evidence, FTP, "600 ms", HIGHEST)
    scp = [change(evidence, SCP, rtt, HIGHEST) for rtt in RTTS]
    return [
        *findings,
        found("c", "gateways at 600 ms, FTP, 1e-5 per packet", "better", _percents([ftp]),
              holds=ftp > 10),
        found("d", "gateways at 0, 100, 300, 600 ms, SCP, 1e-5 per packet", "slightly worse",
              _percents(scp), holds=max(scp) < 0, why=_FILLED),
    ]  # fmt: skip


@PAPER.claim("S2-15")
def verdicts(evidence: Evidence) -> list[Finding]:
    """a, b and e: by the sign; c: less than 3 %; d: 10 % slower or more."""

    def mean_rate(who: str, errors: str, pep: str = NONE) -> float:
        return throughput(evidence, who, "600 ms", errors, pep).mean

    gains = [
        throughput(evidence, SARATOGA, rtt, errors).more_than(
            throughput(evidence, TUNED, rtt, errors)
        ).mean
        for errors in ("0", HIGHEST) for rtt in RTTS[1:]
    ]  # fmt: skip
    pairs = [
        (mean_rate(SARATOGA, errors), mean_rate(TUNED, errors, SCPS)) for errors in ("0", HIGHEST)
    ]
    tuned = [change(evidence, TUNED, "600 ms", errors) for errors in ("0", HIGHEST)]
    wrong = _rates(evidence, "windows", protocol=TUNED, pep="scps for 100 ms", errors="0").mean
    right = mean_rate(TUNED, "0", SCPS)
    slower = 100 * (wrong / right - 1)
    best = all(
        throughput(evidence, SARATOGA, rtt, errors).mean
        > max(throughput(evidence, who, rtt, errors).mean for who in (FTP, TUNED))
        for errors, rtt in itertools.product(BY_BIT[1:], RTTS[1:])
    )
    return [
        found("a", "Saratoga compared with TCP at 100, 300, 600 ms: no errors; 1e-5 per packet",
              "better", _percents(gains), holds=min(gains) > 0,
              why="A full link carries more of TCP's data than of Saratoga's, whose headers are "
              "larger. At 100 ms slow start costs less than this difference."),
        found("b", "Saratoga; TCP with gateways at 600 ms: no errors, 1e-5 per packet, Mbit/s",
              "Saratoga is better", "; ".join(f"{one:.2f}, {two:.2f}" for one, two in pairs),
              holds=all(one > two for one, two in pairs)),
        found("c", "gateways at 600 ms, TCP: no errors; 1e-5 per packet", "nearly identical",
              _percents(tuned), holds=all(abs(one) < 3 for one in tuned)),
        found("d", "gateways at 600 ms, configured for 100 ms compared with 800 ms",
              "must be configured for the link", _percents([slower]),
              holds=math.isfinite(slower) and slower < -10),
        found("e", "Saratoga compared with TCP from 100 ms on, errors per bit", "better",
              "always" if best else "not always", holds=best),
    ]  # fmt: skip
