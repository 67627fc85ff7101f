"""Claims of S3: FTP and SCPS over a small satellite's link.

Changes are of times, `t / t0 - 1`: less is faster. Bounds are those of
docs/reproduction/003-scps-tcp-sgls.md: the sign, and the size to a third, where the paper has a
number; else as each check says.
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
# FTP over the symmetric link, 100 kB, time stamps on, no errors, nothing added, not compressed.
BASE: dict[str, str] = {
    "transport": FTP, "timestamps": "on", "back": WIDE, "ber": "0", "size": "100 kB",
    "added": "0 ms", "compression": "off",
}  # fmt: skip
Cell = Mapping[str, str]


def time(evidence: Evidence, **changes: str) -> Estimate:
    """Seconds from the server's 150 to its 226, of the cell that differs from `BASE` by this."""
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
    """By how much what `by` makes of a cell is slower, in percent."""
    return time(evidence, **{**base, **by}).more_than(time(evidence, **base))


def mean_change(evidence: Evidence, base: Cell, by: Cell, errors: Sequence[str]) -> Estimate:
    """The mean of that over both large files and these rates of errors."""
    cells = itertools.product(LARGE, errors)
    each = [change(evidence, {**base, "size": size, "ber": ber}, by) for size, ber in cells]
    return Estimate.mean_of(each)


def _told(estimates: Sequence[Estimate]) -> str:
    return "; ".join(estimate.percent() for estimate in estimates)


def packets(evidence: Evidence, sheet: str, labels: Cell, **settings: object) -> pl.DataFrame:
    """What the line to the ground and the line back carried in a run of a cell."""
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
    "At 1e-5 a segment is lost with 11 %, so windows are two to four segments whatever the "
    "control, and what takes time are time-outs; without losses Vegas keeps three to five segments "
    "in the queue and fills the line. To be so slow, Vegas of 1.1.34 had to stay at one segment."
)
_STAMPS = (
    "Twelve bytes are 0.8 % of a segment. At 1e-5 time stamps gain as much as they cost: they "
    "tell the round trip of what was sent again, and so end the back-off of the time-out. The "
    "gains of the study are not of the format; 1.1.34 kept separate clocks."
)


@PAPER.claim("S3-01")
def asymmetry(evidence: Evidence) -> list[Finding]:
    """a and b to a third; c exactly."""
    each = [
        Estimate.mean_of([
            change(evidence, {"size": size, "ber": ber}, _ASYMMETRIC) for ber in ERRORS
        ])
        for size in LARGE
    ]  # fmt: skip
    seen = packets(evidence, "errors", {**_only("errors", evidence), "size": "1 kB"})
    segments = seen.filter(pl.col("ip_bytes") > 1000).height
    why = (
        "An acknowledgment takes 0.240 s of the slow line and stands for two segments, which take "
        "0.264 s: so the slow line holds up slow start and losses, not a long transfer. With an "
        "acknowledgment for each segment it is 74 % here, too."
    )
    said = "74 % slower"
    return [
        found("a", "FTP, 100 kB, all rates of errors: asymmetric against symmetric", said,
              each[0].percent(), holds=each[0].is_near(74), why=why),
        found("b", "the same, 1 MB", said, each[1].percent(), holds=each[1].is_near(74), why=why),
        found("c", "segments of 1 kB", "1", str(segments), holds=segments == 1),
    ]  # fmt: skip


def _only(sheet: str, evidence: Evidence) -> dict[str, str]:
    """`BASE` as far as a sheet has it."""
    return {axis: BASE[axis] for axis in evidence.results(STUDY).axes(sheet)}


@PAPER.claim("S3-02")
def sharp(evidence: Evidence) -> list[Finding]:
    """Holds if 1e-6 costs less than a tenth, and 1e-5 three tenths more than that, of either."""
    ratios = []
    for size in LARGE:
        none, few, many = (time(evidence, size=size, ber=ber).mean for ber in ERRORS)
        ratios.append((few / none, many / few))
    return [
        found(
            "", "FTP, 100 kB; 1 MB: times from 0 to 1e-6, and from there to 1e-5",
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
                part, f"fp with VJ {what} against FTP, 1 MB at 0; 1e-6; 1e-5", "within 2 %",
                _told(each), holds=all(abs(one.mean) <= 2 + 2 * one.sem for one in each),
                why="SNACK repairs losses that duplicate acknowledgments do not; the study wanted "
                "both configured alike, so fp stands without it in what follows.",
            )
        )  # fmt: skip
    return found_here


@PAPER.claim("S3-04")
def vegas_large(evidence: Evidence) -> list[Finding]:
    """Holds to a third."""
    slower = change(evidence, {"size": "1 MB", "ber": "1e-5"}, _BY_VEGAS)
    return [
        found("", "fp with Vegas against FTP, 1 MB at 1e-5", "+100 %", slower.percent(),
              holds=slower.is_near(100), why=_NO_LOSS_EFFECT)
    ]  # fmt: skip


@PAPER.claim("S3-05")
def stamps_vj(evidence: Evidence) -> list[Finding]:
    """a to a third; b within 2 points and two standard errors."""
    large = mean_change(evidence, _BY_VJ, _OFF, ["1e-5"])
    small = [
        change(evidence, {**_BY_VJ, "size": size, "ber": "1e-5"}, _OFF)
        for size in ("1 kB", "10 kB")
    ]
    return [
        found("a", "fp with VJ, symmetric, 1e-5, 100 kB and 1 MB: time stamps off", "22 % faster",
              large.percent(), holds=large.is_near(-22), why=_STAMPS),
        found("b", "the same, 1 kB and 10 kB", "no difference", _told(small),
              holds=all(abs(one.mean) <= 2 * one.sem + 2 for one in small)),
    ]  # fmt: skip


@PAPER.claim("S3-06")
def stamps_asymmetric(evidence: Evidence) -> list[Finding]:
    """Holds by the signs."""
    base = {**_BY_VJ, **_ASYMMETRIC, "size": "1 MB"}
    each = [change(evidence, {**base, "ber": ber}, _OFF) for ber in ERRORS]
    signs = [one.mean < 0 for one in each]
    return [
        found("", "fp with VJ, asymmetric, 1 MB at 0; 1e-6; 1e-5: time stamps off",
              "faster; slower; faster", _told(each), holds=signs == [True, False, True],
              why="An acknowledgment takes 0.240 s of the slow line with them and 0.190 s without: "
              "that is faster at every rate.")
    ]  # fmt: skip


@PAPER.claim("S3-07")
def stamps_vegas(evidence: Evidence) -> list[Finding]:
    """Each holds to a third."""
    each = [change(evidence, {**_BY_VEGAS, "size": size, "ber": "1e-5"}, _OFF) for size in LARGE]
    what = "fp with Vegas, symmetric, 1e-5: time stamps off"
    return [
        found("a", f"{what}, 100 kB", "20 % less", each[0].percent(),
              holds=each[0].is_near(-20), why=_STAMPS),
        found("b", f"{what}, 1 MB", "59 % less", each[1].percent(),
              holds=each[1].is_near(-59), why=_STAMPS),
    ]  # fmt: skip


@PAPER.claim("S3-08")
def stamps_vegas_asymmetric(evidence: Evidence) -> list[Finding]:
    """Each holds to a third."""
    base = {**_BY_VEGAS, **_ASYMMETRIC}
    mean = mean_change(evidence, base, _OFF, ERRORS)
    best = change(evidence, {**base, "size": "1 MB", "ber": "1e-5"}, _OFF)
    return [
        found("a", "fp with Vegas, asymmetric, 100 kB and 1 MB, all rates: time stamps off",
              "20 % less", mean.percent(), holds=mean.is_near(-20), why=_STAMPS),
        found("b", "the same, 1 MB at 1e-5", "47 % less", best.percent(),
              holds=best.is_near(-47), why=_STAMPS),
    ]  # fmt: skip


@PAPER.claim("S3-09")
def vegas(evidence: Evidence) -> list[Finding]:
    """Each holds to a third."""
    wide = mean_change(evidence, _BY_VJ, _BY_VEGAS, ERRORS)
    narrow = mean_change(evidence, {**_BY_VJ, **_ASYMMETRIC}, _BY_VEGAS, ERRORS)
    return [
        found("a", "Vegas against VJ, symmetric, 100 kB and 1 MB, all rates", "47 % slower",
              wide.percent(), holds=wide.is_near(47), why=_NO_LOSS_EFFECT),
        found("b", "the same, asymmetric", "20 % slower", narrow.percent(),
              holds=narrow.is_near(20), why=_NO_LOSS_EFFECT),
    ]  # fmt: skip


def _far(evidence: Evidence, base: Cell, at: str = "3 ms") -> Estimate:
    """120 ms against a shorter delay, without errors."""
    return change(evidence, {**base, "added": at}, {"added": "120 ms"})


@PAPER.claim("S3-10")
def delays(evidence: Evidence) -> list[Finding]:
    """a and b: less than 15 %; c: by the slopes, 0.1 and 0.15; d: half a percent; e: the sign."""
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
        found("a", "fp with VJ, and Vegas symmetric, 100 kB and 1 MB: 120 ms against 3 ms",
              "no significant difference", f"at most {most:+.1f} %", holds=most < 15),
        found("b", "the same with Vegas, asymmetric", "no significant difference", _told(narrow),
              holds=all(one.mean < 15 for one in narrow),
              why="Each nine seconds the window doubles until more than the queue of ten is sent. "
              "The duplicate acknowledgments of what follows take 0.24 s each of the slow line, "
              "and the time-out runs out before the answer to the repair has its turn."),
        found("c", "slope of time over size, both logarithmic, from 1 kB on", "changes at 10 kB",
              joined(slopes, ".2f"),
              holds=slopes[1] - slopes[0] > 0.1 and slopes[2] - slopes[1] < 0.15),
        found("d", "Vegas against VJ at 3 ms, no errors, 100 kB and 1 MB", "higher", _told(slower),
              holds=all(one.mean > 0.5 for one in slower), why="It is, by less than that at 1 MB: "
              "Vegas without losses fills the line."),
        found("e", "Vegas, symmetric, 3 ms, 100 kB and 1 MB: time stamps on against off", "faster",
              _told(on), holds=all(one.mean < 0 for one in on), why=_STAMPS),
    ]  # fmt: skip


_CHANGED_HEADERS = (
    "Time stamps change with every segment, so little is left to compress. Without them 37 bytes "
    "of 1,500 are saved, 2.5 %. At 1e-5 compression does harm: after a loss all of the window "
    "cannot be restored, duplicate acknowledgments do not come, and the time-out has to end it."
)


@PAPER.claim("S3-11")
def compression(evidence: Evidence) -> list[Finding]:
    """a and b to a third; c and d within 3 points."""
    plain = dict(_OFF)
    wide = mean_change(evidence, {}, _COMPRESSED, ERRORS)
    narrow = mean_change(evidence, _ASYMMETRIC, _COMPRESSED, ERRORS)
    wide_plain = mean_change(evidence, plain, _COMPRESSED, ERRORS)
    narrow_plain = mean_change(evidence, {**plain, **_ASYMMETRIC}, _COMPRESSED, ERRORS)
    clean = mean_change(evidence, plain, _COMPRESSED, ["0"])
    return [
        found("a", "compression, symmetric, all rates, time stamps as the kernel has them",
              "10 % better", wide.percent(), holds=wide.is_near(-10), why=_CHANGED_HEADERS),
        found("b", "the same without time stamps", "10 % better",
              f"{wide_plain.percent()}; {clean.percent()} without errors",
              holds=wide_plain.is_near(-10), why=_CHANGED_HEADERS),
        found("c", "compression, asymmetric, all rates, time stamps as the kernel has them",
              "1 % better", narrow.percent(), holds=abs(narrow.mean) < 3),
        found("d", "the same without time stamps", "1 % better", narrow_plain.percent(),
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
              "no significant advantage", _told(delayed),
              holds=all(abs(one.mean) < 5 for one in delayed)),
        found("b", "with compression, 100 kB and 1 MB: 120 ms against 3 ms", "no penalty",
              _told(geo), holds=all(one.mean < 10 for one in geo)),
    ]  # fmt: skip


def on_the_line(seen: pl.DataFrame) -> float:
    """Bytes that a segment takes of the line to the ground, of those that waited for it."""
    data = seen.filter(pl.col("ip_bytes") == 1500).select("sent_s", "at_s").rows()
    # 11,520 bytes a second; light and machines take 15.6 ms.
    lengths = [
        11_520 * (two[1] - one[1])
        for one, two in itertools.pairwise(data)
        if two[0] < one[1] - 0.016
    ]
    return math.fsum(lengths) / len(lengths)


@PAPER.claim("S3-13")
def headers(evidence: Evidence) -> list[Finding]:
    """Holds for 35.5 to 38.5 bytes less; one byte of the header is always escaped."""
    labels = {**_only("compression", evidence), **_OFF, "size": "1 MB"}
    plain = on_the_line(packets(evidence, "compression", labels))
    compressed = on_the_line(packets(evidence, "compression", {**labels, **_COMPRESSED}))
    saved = plain - compressed
    return [
        found("", "headers of 40 bytes become 3 to 5: bytes less a segment, escapes included",
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
        found("a", "fp with VJ against FTP, 100 kB and 1 MB, all rates", "similar", fp.percent(),
              holds=abs(fp.mean) < 10),
        found("b", "Vegas against VJ where packets are lost", "worse", lossy.percent(),
              holds=lossy.mean > 2 * lossy.sem, why=_NO_LOSS_EFFECT),
        found("c", "100 kB and 1 MB, 120 ms against none", "no penalty", _told(far),
              holds=all(one.mean < 10 for one in far)),
        found("d", "no errors: time stamps off; compression besides", "small advantages",
              _told([clean, both]), holds=both.mean < clean.mean < 0 and both.mean > -10),
    ]  # fmt: skip
