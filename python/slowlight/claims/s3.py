"""Claims of S3: FTP and SCPS over a small satellite's link.

Changes compare times, `t / t0 - 1`, so a negative change is faster. Bounds are in
docs/reproduction/003-scps-tcp-sgls.md: the sign and the value within a third where the paper gives
a number, else as the check's documentation states.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import polars as pl

from slowlight.claims.evidence import Estimate, Evidence, Finding, NotRunError, Paper, found, joined
from slowlight.single import completed, once

PAPER = Paper("S3", "small-sat-2000")
STUDY = PAPER.study
FTP, VJ, VEGAS = "ftp", "fp-vj", "fp-vegas"
LARGE = ("100 kB", "1 MB")
ERRORS = ("0", "1e-6", "1e-5")
WIDE, NARROW = "115200 bit/s", "2400 bit/s"
# FTP over the symmetric link, 100 kB, with timestamps, without errors, added delay or compression.
BASE: dict[str, str] = {
    "transport": FTP, "timestamps": "on", "back": WIDE, "ber": "0", "size": "100 kB",
    "added": "0 ms", "compression": "off",
}  # fmt: skip
Cell = Mapping[str, str]


def time(evidence: Evidence, **changes: str) -> Estimate:
    """Seconds from the server's reply 150 to its reply 226, of `BASE` with these changes."""
    one = {**BASE, **changes}
    delayed, compressed = one["added"] != "0 ms", one["compression"] == "on"
    if one["transport"] not in (FTP, VJ, VEGAS):
        sheet = "readings"
    elif delayed and one["ber"] != "0":
        raise ValueError("no sheet has errors with delays")
    elif compressed:
        sheet = "compression-delays" if delayed else "compression"
    else:
        sheet = "delays" if delayed else "errors"
    axes = evidence.results(STUDY).axes(sheet)
    labels = {axis: one[axis] for axis in axes}
    return evidence.estimate(STUDY, sheet, "transfer_s", **labels)


def change(evidence: Evidence, base: Cell, by: Cell) -> Estimate:
    """Increase of a cell's time with the changes `by`, in percent."""
    return time(evidence, **{**base, **by}).more_than(time(evidence, **base))


def mean_change(evidence: Evidence, base: Cell, by: Cell, errors: Sequence[str]) -> Estimate:
    """Mean of `change` over both large files and these error rates."""
    cells = itertools.product(LARGE, errors)
    each = [change(evidence, {**base, "size": size, "ber": ber}, by) for size, ber in cells]
    return Estimate.mean_of(each)


def _percents(estimates: Sequence[Estimate]) -> str:
    return "; ".join(estimate.percent() for estimate in estimates)


def packets(evidence: Evidence, sheet: str, labels: Cell, **settings: object) -> pl.DataFrame:
    """Packets on the line to the ground and on the return line in a run of a cell."""
    results = evidence.results(STUDY)
    if sheet not in results.sheets:
        raise NotRunError(f"slowlight study run {STUDY} --edition published --again")
    trace = completed(once(results.cell(sheet, labels).changed(settings), 1)).trace
    return trace.filter((pl.col("from") != "satellite") & (pl.col("to") != "satellite"))


_OFF = {"timestamps": "off"}
_ASYMMETRIC = {"back": NARROW}
_COMPRESSED = {"compression": "on"}
_BY_VEGAS = {"transport": VEGAS}
_BY_VJ = {"transport": VJ}
_NO_LOSS_EFFECT = (
    "At 1e-5, 11 % of segments are lost. So windows are two to four segments with every "
    "congestion control, and timeouts dominate. Without losses Vegas keeps three to five segments "
    "in the queue and fills the line. To be this slow, Vegas of 1.1.34 must have stayed at one "
    "segment."
)
_STAMPS = (
    "Twelve bytes are 0.8 % of a segment. At 1e-5 timestamps gain as much as they cost: they "
    "measure the round trip of a retransmission and so end the timeout's back-off. The format does "
    "not explain the study's gains; 1.1.34 kept separate clocks."
)


@PAPER.claim("S3-01")
def asymmetry(evidence: Evidence) -> list[Finding]:
    """a and b: within a third; c: exactly."""
    each = [
        Estimate.mean_of([
            change(evidence, {"size": size, "ber": ber}, _ASYMMETRIC) for ber in ERRORS
        ])
        for size in LARGE
    ]  # fmt: skip
    seen = packets(evidence, "errors", {**_only("errors", evidence), "size": "1 kB"})
    segments = seen.filter(pl.col("ip_bytes") > 1000).height
    why = (
        "An acknowledgment takes 0.240 s on the slow line and acknowledges two segments, which "
        "take 0.264 s. So the slow line limits slow start and loss recovery, not a long transfer. "
        "With an acknowledgment for each segment, the change is 74 % here, too."
    )
    expected = "74 % slower"
    return [
        found("a", "FTP, 100 kB, all error rates: asymmetric compared with symmetric", expected,
              each[0].percent(), holds=each[0].is_near(74), why=why),
        found("b", "the same, 1 MB", expected, each[1].percent(), holds=each[1].is_near(74),
              why=why),
        found("c", "segments for 1 kB", "1", str(segments), holds=segments == 1),
    ]  # fmt: skip


def _only(sheet: str, evidence: Evidence) -> dict[str, str]:
    """Labels of `BASE` for the axes of a sheet."""
    return {axis: BASE[axis] for axis in evidence.results(STUDY).axes(sheet)}


@PAPER.claim("S3-02")
def sharp(evidence: Evidence) -> list[Finding]:
    """Holds if both times grow by less than 10 % to 1e-6, and by more than 30 % from 1e-6 to
    1e-5.
    """
    ratios = []
    for size in LARGE:
        none, few, many = (time(evidence, size=size, ber=ber).mean for ber in ERRORS)
        ratios.append((few / none, many / few))
    return [
        found(
            "", "FTP, 100 kB; 1 MB: ratios of times, 1e-6 / 0 and 1e-5 / 1e-6",
            "a sharp turn upward", "; ".join(f"{few:.2f} and {many:.2f}" for few, many in ratios),
            holds=all(few < 1.1 and many > 1.3 for few, many in ratios),
        )
    ]  # fmt: skip


def _against_ftp(evidence: Evidence, who: str, sheet_who: str = FTP) -> list[Estimate]:
    return [
        time(evidence, transport=who, size="1 MB", ber=ber).more_than(
            time(evidence, transport=sheet_who, size="1 MB", ber=ber)
        )
        for ber in ERRORS
    ]


@PAPER.claim("S3-03")
def alike(evidence: Evidence) -> list[Finding]:
    """Each holds within 2 points and two standard errors."""
    found_here = []
    for part, who, what in (("a", VJ, "without SNACK"), ("b", "fp-vj with SNACK", "with SNACK")):
        each = _against_ftp(evidence, who)
        found_here.append(
            found(
                part, f"fp with VJ {what} compared with FTP, 1 MB at 0; 1e-6; 1e-5", "within 2 %",
                _percents(each), holds=all(abs(one.mean) <= 2 + 2 * one.sem for one in each),
                why="SNACK repairs losses that duplicate acknowledgments do not. The study wanted "
                "both configured alike, so fp has no SNACK in the other claims.",
            )
        )  # fmt: skip
    return found_here


@PAPER.claim("S3-04")
def vegas_large(evidence: Evidence) -> list[Finding]:
    """Holds within a third."""
    slower = change(evidence, {"size": "1 MB", "ber": "1e-5"}, _BY_VEGAS)
    return [
        found("", "fp with Vegas compared with FTP, 1 MB at 1e-5", "+100 %", slower.percent(),
              holds=slower.is_near(100), why=_NO_LOSS_EFFECT)
    ]  # fmt: skip


@PAPER.claim("S3-05")
def stamps_vj(evidence: Evidence) -> list[Finding]:
    """a: within a third; b: within 2 points and two standard errors."""
    large = mean_change(evidence, _BY_VJ, _OFF, ["1e-5"])
    small = [
        change(evidence, {**_BY_VJ, "size": size, "ber": "1e-5"}, _OFF)
        for size in ("1 kB", "10 kB")
    ]
    return [
        found("a", "fp with VJ, symmetric, 1e-5, 100 kB and 1 MB: timestamps off", "22 % faster",
              large.percent(), holds=large.is_near(-22), why=_STAMPS),
        found("b", "the same, 1 kB and 10 kB", "no difference", _percents(small),
              holds=all(abs(one.mean) <= 2 * one.sem + 2 for one in small)),
    ]  # fmt: skip


@PAPER.claim("S3-06")
def stamps_asymmetric(evidence: Evidence) -> list[Finding]:
    """Holds by the signs."""
    base = {**_BY_VJ, **_ASYMMETRIC, "size": "1 MB"}
    each = [change(evidence, {**base, "ber": ber}, _OFF) for ber in ERRORS]
    signs = [one.mean < 0 for one in each]
    return [
        found("", "fp with VJ, asymmetric, 1 MB at 0; 1e-6; 1e-5: timestamps off",
              "faster; slower; faster", _percents(each), holds=signs == [True, False, True],
              why="An acknowledgment takes 0.240 s on the slow line with timestamps and 0.190 s "
              "without. So transfers without them are faster at every rate.")
    ]  # fmt: skip


@PAPER.claim("S3-07")
def stamps_vegas(evidence: Evidence) -> list[Finding]:
    """Each holds within a third."""
    each = [change(evidence, {**_BY_VEGAS, "size": size, "ber": "1e-5"}, _OFF) for size in LARGE]
    what = "fp with Vegas, symmetric, 1e-5: timestamps off"
    return [
        found("a", f"{what}, 100 kB", "20 % less", each[0].percent(),
              holds=each[0].is_near(-20), why=_STAMPS),
        found("b", f"{what}, 1 MB", "59 % less", each[1].percent(),
              holds=each[1].is_near(-59), why=_STAMPS),
    ]  # fmt: skip


@PAPER.claim("S3-08")
def stamps_vegas_asymmetric(evidence: Evidence) -> list[Finding]:
    """Each holds within a third."""
    base = {**_BY_VEGAS, **_ASYMMETRIC}
    mean = mean_change(evidence, base, _OFF, ERRORS)
    best = change(evidence, {**base, "size": "1 MB", "ber": "1e-5"}, _OFF)
    return [
        found("a", "fp with Vegas, asymmetric, 100 kB and 1 MB, all rates: timestamps off",
              "20 % less", mean.percent(), holds=mean.is_near(-20), why=_STAMPS),
        found("b", "the same, 1 MB at 1e-5", "47 % less", best.percent(),
              holds=best.is_near(-47), why=_STAMPS),
    ]  # fmt: skip


@PAPER.claim("S3-09")
def vegas(evidence: Evidence) -> list[Finding]:
    """Each holds within a third."""
    wide = mean_change(evidence, _BY_VJ, _BY_VEGAS, ERRORS)
    narrow = mean_change(evidence, {**_BY_VJ, **_ASYMMETRIC}, _BY_VEGAS, ERRORS)
    return [
        found("a", "Vegas compared with VJ, symmetric, 100 kB and 1 MB, all rates", "47 % slower",
              wide.percent(), holds=wide.is_near(47), why=_NO_LOSS_EFFECT),
        found("b", "the same, asymmetric", "20 % slower", narrow.percent(),
              holds=narrow.is_near(20), why=_NO_LOSS_EFFECT),
    ]  # fmt: skip


def _far(evidence: Evidence, base: Cell, at: str = "3 ms") -> Estimate:
    """Change with 120 ms compared with a shorter delay, without errors."""
    return change(evidence, {**base, "added": at}, {"added": "120 ms"})


@PAPER.claim("S3-10")
def delays(evidence: Evidence) -> list[Finding]:
    """a and b: less than 15 %; c: the slope rises by more than 0.1, then by less than 0.15; d: more
    than 0.5 %; e: by the sign.
    """
    wide = [
        _far(evidence, {**base, "size": size})
        for base in (_BY_VJ, {**_BY_VJ, **_ASYMMETRIC}, _BY_VEGAS)
        for size in LARGE
    ]
    most = max(one.mean for one in wide)
    narrow = [_far(evidence, {**_BY_VEGAS, **_ASYMMETRIC, "size": size}) for size in LARGE]
    sizes = ("1 kB", "10 kB", "100 kB", "1 MB")
    times = [time(evidence, **_BY_VJ, size=size, added="3 ms").mean for size in sizes]
    slopes = [math.log10(two / one) for one, two in itertools.pairwise(times)]
    near_by = [{"size": size, "added": "3 ms"} for size in LARGE]
    slower = [change(evidence, {**_BY_VJ, **one}, _BY_VEGAS) for one in near_by]
    on = [change(evidence, {**_BY_VEGAS, **_OFF, **one}, {"timestamps": "on"}) for one in near_by]
    return [
        found("a", "VJ, and Vegas symmetric, 100 kB and 1 MB: 120 ms compared with 3 ms",
              "no significant difference", f"at most {most:+.1f} %", holds=most < 15),
        found("b", "the same with Vegas, asymmetric", "no significant difference",
              _percents(narrow), holds=all(one.mean < 15 for one in narrow),
              why="Every nine seconds the window doubles beyond the queue of ten packets. Each "
              "duplicate acknowledgment after the loss takes 0.24 s on the slow line. The timeout "
              "expires before the acknowledgment of the retransmission arrives."),
        found("c", "slope of log(time) over log(size), from 1 kB on", "changes at 10 kB",
              joined(slopes, ".2f"),
              holds=slopes[1] - slopes[0] > 0.1 and slopes[2] - slopes[1] < 0.15),
        found("d", "Vegas compared with VJ at 3 ms, no errors, 100 kB and 1 MB", "higher",
              _percents(slower), holds=all(one.mean > 0.5 for one in slower),
              why="At 1 MB it is higher by less than 0.5 %: Vegas without losses fills the line."),
        found("e", "Vegas, symmetric, 3 ms, 100 kB and 1 MB: timestamps on compared with off",
              "faster", _percents(on), holds=all(one.mean < 0 for one in on), why=_STAMPS),
    ]  # fmt: skip


_CHANGED_HEADERS = (
    "Timestamps change with every segment, so headers compress little. Without them compression "
    "saves 37 bytes of 1,500, 2.5 %. At 1e-5 compression is harmful: after a loss the receiver "
    "cannot restore the window and sends no duplicate acknowledgments, so the timeout ends the "
    "loss."
)


@PAPER.claim("S3-11")
def compression(evidence: Evidence) -> list[Finding]:
    """a and b: within a third; c and d: within 3 points."""
    plain = dict(_OFF)
    wide = mean_change(evidence, {}, _COMPRESSED, ERRORS)
    narrow = mean_change(evidence, _ASYMMETRIC, _COMPRESSED, ERRORS)
    wide_plain = mean_change(evidence, plain, _COMPRESSED, ERRORS)
    narrow_plain = mean_change(evidence, {**plain, **_ASYMMETRIC}, _COMPRESSED, ERRORS)
    clean = mean_change(evidence, plain, _COMPRESSED, ["0"])
    return [
        found("a", "compression, symmetric, all rates, with timestamps",
              "10 % better", wide.percent(), holds=wide.is_near(-10), why=_CHANGED_HEADERS),
        found("b", "the same without timestamps", "10 % better",
              f"{wide_plain.percent()}; {clean.percent()} without errors",
              holds=wide_plain.is_near(-10), why=_CHANGED_HEADERS),
        found("c", "compression, asymmetric, all rates, with timestamps",
              "1 % better", narrow.percent(), holds=abs(narrow.mean) < 3),
        found("d", "the same without timestamps", "1 % better", narrow_plain.percent(),
              holds=abs(narrow_plain.mean) < 3, why=_CHANGED_HEADERS),
    ]  # fmt: skip


@PAPER.claim("S3-12")
def compression_far(evidence: Evidence) -> list[Finding]:
    """a: less than 5 points; b: less than 10."""
    delayed = [
        Estimate.mean_of([
            change(evidence, {**_OFF, "added": added, "size": size}, _COMPRESSED)
            for size in LARGE
        ])
        for added in ("3 ms", "120 ms", "1280 ms")
    ]  # fmt: skip
    geo = [_far(evidence, {**_OFF, **_COMPRESSED, "size": size}) for size in LARGE]
    return [
        found("a", "compression at 3, 120, 1,280 ms, no errors, 100 kB and 1 MB",
              "no significant advantage", _percents(delayed),
              holds=all(abs(one.mean) < 5 for one in delayed)),
        found("b", "with compression, 100 kB and 1 MB: 120 ms compared with 3 ms", "no penalty",
              _percents(geo), holds=all(one.mean < 10 for one in geo)),
    ]  # fmt: skip


def on_the_line(seen: pl.DataFrame) -> float:
    """Bytes per segment on the line to the ground, over segments that waited for the line."""
    data = seen.filter(pl.col("ip_bytes") == 1500).select("sent_s", "at_s").rows()
    # 11,520 bytes per second; propagation and hosts take 15.6 ms.
    lengths = [
        11_520 * (two[1] - one[1])
        for one, two in itertools.pairwise(data)
        if two[0] < one[1] - 0.016
    ]
    return math.fsum(lengths) / len(lengths)


@PAPER.claim("S3-13")
def headers(evidence: Evidence) -> list[Finding]:
    """Holds for 35.5 to 38.5 saved bytes, because one byte of the header is always escaped."""
    labels = {**_only("compression", evidence), **_OFF, "size": "1 MB"}
    plain = on_the_line(packets(evidence, "compression", labels))
    compressed = on_the_line(packets(evidence, "compression", {**labels, **_COMPRESSED}))
    saved = plain - compressed
    return [
        found("", "headers of 40 bytes become 3 to 5: bytes saved per segment, with escapes",
              "36 to 38", f"{saved:.1f}", holds=35.5 <= saved < 38.5)
    ]  # fmt: skip


@PAPER.claim("S3-14")
def verdicts(evidence: Evidence) -> list[Finding]:
    """a and c: less than 10 %; b: more than two standard errors; d: better, by less than 10 %."""
    fp = mean_change(evidence, {}, _BY_VJ, ERRORS)
    lossy = mean_change(evidence, _BY_VJ, _BY_VEGAS, ERRORS[1:])
    far = [_far(evidence, {**_BY_VJ, "size": size}, "0 ms") for size in LARGE]
    clean = mean_change(evidence, _BY_VJ, _OFF, ["0"])
    both = mean_change(evidence, {}, {**_OFF, **_COMPRESSED}, ["0"])
    return [
        found("a", "fp with VJ compared with FTP, 100 kB and 1 MB, all rates", "similar",
              fp.percent(), holds=abs(fp.mean) < 10),
        found("b", "Vegas compared with VJ with losses", "worse", lossy.percent(),
              holds=lossy.mean > 2 * lossy.sem, why=_NO_LOSS_EFFECT),
        found("c", "100 kB and 1 MB, 120 ms compared with 0 ms", "no penalty", _percents(far),
              holds=all(one.mean < 10 for one in far)),
        found("d", "no errors: timestamps off; timestamps off and compression on",
              "small advantages", _percents([clean, both]),
              holds=both.mean < clean.mean < 0 and both.mean > -10),
    ]  # fmt: skip
