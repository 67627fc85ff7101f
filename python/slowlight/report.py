"""A study's report: one page of HTML that needs nothing else, and the same as PDF.

from slowlight import report

report.write("grc-2012", [Path(".")], Path("report"))
"""

from __future__ import annotations

import platform
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import matplotlib
import polars as pl
from matplotlib.figure import Figure

from slowlight import _native, figures, html, pages
from slowlight.claims import catalogue
from slowlight.errors import UserError, unknown
from slowlight.figures.spec import Spec
from slowlight.results import Results, find, summary

__all__ = ["Report", "Study", "load", "unknown", "write"]

# What tables have of each cell, where a sheet has it.
COLUMNS = ("delivered_s", "goodput_bps", "goodput_grc_bps", "transfer_s", "efficiency",
           "packets_str", "packets_rts")  # fmt: skip
# Longer tables are cut in the PDF, and folded on the page.
ROWS_MAX = 40


@dataclass(frozen=True)
class Study:
    """A study's text, and what of its editions was run."""

    name: str
    text: Mapping[str, Any]
    editions: Mapping[str, Results]


@dataclass(frozen=True)
class Drawn:
    """A figure of the report, or why there is none."""

    spec: Spec
    figure: Figure | None
    missing: str = ""


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Report:
    """What is on the page and in the PDF, in order."""

    study: Study
    conditions: Sequence[Table]
    drawn: Sequence[Drawn]
    tables: Sequence[Table]
    claims: Sequence[catalogue.Checked]
    provenance: Table


def load(name: str, results: Sequence[Path]) -> Study:
    """A study and its results. Raises `UserError` with the command that makes them."""
    stem = Path(name).stem
    editions = find(stem, results)
    if not editions:
        looked = ", ".join(str(folder) for folder in results)
        raise UserError(
            f"there are no results of {stem!r} in {looked}; "
            f"make them with `slowlight study run {name}`"
        )
    # The study as it is now may have figures that it had not when it was run.
    there = next((path for path in (Path(name), Path(f"{name}.toml")) if path.is_file()), None)
    now = there.read_text() if there else _native.study_text(name)
    ran = next(iter(editions.values())).study
    return Study(stem, tomllib.loads(now) if now else ran, editions)


def _conditions(study: Study) -> list[Table]:
    tables = []
    for edition, results in sorted(study.editions.items()):
        for sheet in results.sheets:
            told = results.sheet(sheet)
            rows = [(axis, ", ".join(labels)) for axis, labels in results.axes(sheet).items()]
            fixed = [(key, str(value)) for key, value in told.get("set", {}).items()]
            runs = ("runs of each cell, from seed", f"{told['runs']}, {told['seed']}")
            world = ("scenario", Path(str(told["world"])).stem)
            about = str(told.get("about", ""))
            title = f"Edition {edition}, sheet {sheet}: {about}" if about else sheet
            tables.append(Table(title, ("what", "values"), [world, *rows, *fixed, runs]))
    return tables


def _drawn(study: Study) -> list[Drawn]:
    drawn = []
    for spec in figures.of_study(study.text):
        results = study.editions.get(spec.edition)
        if results is None:
            run = f"slowlight study run {study.name} --edition {spec.edition}"
            drawn.append(Drawn(spec, None, f"its edition was not run; make it with: {run}"))
            continue
        try:
            drawn.append(Drawn(spec, figures.draw(spec, results)))
        except UserError as error:
            print(f"{spec.name}: not drawn: {error}", file=sys.stderr)
            drawn.append(Drawn(spec, None, str(error)))
    return drawn


def number(value: float | None) -> str:
    """A number of a table with four digits."""
    if value is None:
        return "—"
    if value and abs(value) >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _tables(study: Study) -> list[Table]:
    tables = []
    for edition, results in sorted(study.editions.items()):
        for sheet in results.sheets:
            frame = results.table(sheet)
            # Of a sheet without axes all rows are of one cell.
            axes = list(results.axes(sheet)) or ["cell"]
            shown = [
                c for c in COLUMNS if c in frame.columns and frame[c].null_count() < len(frame)
            ]
            base = frame.group_by(axes, maintain_order=True).agg(
                pl.len().alias("runs"), (~pl.col("completed")).sum().alias("failed")
            )
            for column in shown:
                told = summary(frame, axes, column).select(*axes, "mean", "sem")
                named = told.rename({"mean": column, "sem": f"{column} ±"})
                base = base.join(named, on=axes, how="left", maintain_order="left")
            rows = [
                [
                    *(str(row[axis]) for axis in axes), str(row["runs"]), str(row["failed"]),
                    *(_with_error(row[column], row[f"{column} ±"]) for column in shown),
                ]
                for row in base.iter_rows(named=True)
            ]  # fmt: skip
            title = f"Edition {edition}, sheet {sheet}: mean ± standard error of completed runs"
            tables.append(Table(title, (*axes, "runs", "failed", *shown), rows))
    return tables


def _with_error(mean: float | None, error: float | None) -> str:
    if mean is None:
        return "—"
    return number(mean) if not error else f"{number(mean)} ± {number(error)}"


def _claims(study: Study, results: Sequence[Path]) -> list[catalogue.Checked]:
    paper = str(study.text.get("paper", ""))
    entries = [entry for entry in catalogue.read() if entry.paper == paper]
    return catalogue.check(entries, results)


def _provenance(study: Study) -> Table:
    rows = [("study", study.name), ("source", str(study.text.get("source", "")))]
    for edition, results in sorted(study.editions.items()):
        told = results.manifest
        rows.append((f"{edition}: slowlight", str(told.get("slowlight", ""))))
        rows.append((f"{edition}: runs, failed", f"{told.get('runs')}, {told.get('failed')}"))
        for sheet in told.get("sheets", []):
            rows.append((f"{edition}, {sheet['name']}: first seed", str(sheet["first_seed"])))
        for file, digest in results.digests().items():
            rows.append((f"{edition}, {file}: SHA-256", digest))
    versions = {"matplotlib": matplotlib.__version__, "polars": metadata.version("polars")}
    rows += list(versions.items())
    rows.append(("Python", platform.python_version()))
    rows.append(("host of this report", f"{platform.system()} {platform.machine()}"))
    return Table("Provenance", ("what", "value"), rows)


def make(name: str, results: Sequence[Path]) -> Report:
    """Gathers a study's report."""
    study = load(name, results)
    return Report(
        study, _conditions(study), _drawn(study), _tables(study), _claims(study, results),
        _provenance(study),
    )  # fmt: skip


def write(name: str, results: Sequence[Path], out: Path) -> list[Path]:
    """Writes `NAME.html` and `NAME.pdf` to the folder `out`: the same results, the same bytes."""
    told = make(name, results)
    out.mkdir(parents=True, exist_ok=True)
    page, pdf = out / f"{told.study.name}.html", out / f"{told.study.name}.pdf"
    page.write_text(html.page(told))
    pages.write(told, pdf)
    return [page, pdf]
