"""Report of a study: one self-contained HTML page, and its PDF.

from slowlight import report

report.write("grc-2012", [Path(".")], Path("report"))
"""

from __future__ import annotations

import math
import platform
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import matplotlib
import polars as pl
from matplotlib.figure import Figure

from slowlight import alternative, checkout, conditions, figures, html, native, pages
from slowlight.claims import catalogue
from slowlight.conditions import Table
from slowlight.errors import UserError, unknown
from slowlight.figures.spec import Spec
from slowlight.results import Results, find, is_started, summary
from slowlight.style import measure_of

__all__ = ["Report", "Study", "load", "unknown", "write"]

# Columns of a sheet's table that the report summarises for each cell.
COLUMNS = ("delivered_s", "goodput_bps", "goodput_grc_bps", "transfer_s", "efficiency",
           "packets_str", "packets_rts")  # fmt: skip
# Labels of columns that share a label in figures.
LABELS = {"goodput_grc_bps": "Goodput as the GRC study counts it"}
# Significant digits of a mean.
DIGITS = 5


@dataclass(frozen=True)
class Study:
    """A study's text, and the results of its editions."""

    name: str
    text: Mapping[str, Any]
    editions: Mapping[str, Results]


@dataclass(frozen=True)
class Drawn:
    """A figure of the report, or the reason for its absence."""

    spec: Spec
    figure: Figure | None
    missing: str = ""
    # Text for readers who cannot see the figure.
    alternative: str = ""


@dataclass(frozen=True)
class Report:
    """Contents of the page and the PDF, in order."""

    study: Study
    # Tables of each sheet, by its heading.
    conditions: Sequence[tuple[str, Sequence[Table]]]
    drawn: Sequence[Drawn]
    tables: Sequence[Table]
    claims: Sequence[catalogue.Checked]
    provenance: Table

    @property
    def title(self) -> str:
        """Title of the study, or its name if it has none."""
        return str(self.study.text.get("about", "")) or self.study.name

    @property
    def about(self) -> list[str]:
        """Lines below the title: the source, and the date of each edition's run."""
        source = str(self.study.text.get("source", ""))
        lines = [f"Source: {source}."] if source else []
        for edition, results in sorted(self.study.editions.items()):
            kept = results.manifest
            runs = int(kept.get("runs", 0))
            lines.append(
                f"Study {self.study.name}, edition {edition}: {runs:,} run{'s'[: runs != 1]}, "
                f"{kept.get('failed', 0):,} failed; {conditions.date_of(results)}, "
                f"slowlight {kept.get('slowlight', '')}."
            )
        return lines


def load(name: str, results: Sequence[Path]) -> Study:
    """Loads a study and its results. Raises `UserError` with the command that creates them."""
    stem = Path(name).stem
    editions = find(stem, results)
    if not editions:
        looked = ", ".join(str(folder) for folder in results)
        started = is_started(stem, results)
        state = "no complete results" if started else "no results"
        resume = " --resume" if started else ""
        raise UserError(
            f"{state} of {stem!r} in {looked}; create them with "
            f"`slowlight study run {name}{resume}`"
        )
    # The current study may have more figures than at the time of the run.
    now = _current(name)
    ran = next(iter(editions.values())).study
    return Study(stem, tomllib.loads(now) if now else ran, editions)


def _current(name: str) -> str | None:
    """Text of a study now: its file, or a built-in study; `None` if neither is known."""
    given = next((path for path in (Path(name), Path(f"{name}.toml")) if path.is_file()), None)
    file = given or checkout.file(f"studies/{name}.toml")
    if file:
        return file.read_text(encoding="utf-8")
    return native.study_text(name) if native.is_compiled() else None


def _conditions(study: Study) -> list[tuple[str, Sequence[Table]]]:
    found: list[tuple[str, Sequence[Table]]] = []
    for edition, results in sorted(study.editions.items()):
        for sheet in results.sheets:
            about = str(results.sheet(sheet).get("about", ""))
            heading = f"Edition {edition}, sheet {sheet}" + (f": {about}" if about else "")
            found.append((heading, conditions.of_sheet(results, sheet)))
    return found


def _drawn(study: Study) -> list[Drawn]:
    drawn = []
    for spec in figures.of_study(study.text):
        results = study.editions.get(spec.edition)
        if results is None:
            run = f"slowlight study run {study.name} --edition {spec.edition}"
            drawn.append(Drawn(spec, None, f"the edition has no results; create them with: {run}"))
            continue
        try:
            # The caption contains the title.
            figure = figures.draw(replace(spec, title=""), results)
            axes = results.axes(spec.sheet)
            drawn.append(Drawn(spec, figure, alternative=alternative.text(spec, axes)))
        except UserError as error:
            print(f"{spec.name}: not drawn: {error}", file=sys.stderr)
            drawn.append(Drawn(spec, None, str(error)))
    return drawn


def number(value: float) -> str:
    """Formats a number of a table with four digits."""
    return f"{value:,.0f}" if value and abs(value) >= 1e4 else f"{value:.4g}"


def with_error(mean: float, error: float) -> str:
    """Formats a mean and its standard error: two digits of the error, at most five of the mean."""
    if error <= 0:
        return number(mean)
    maximum = DIGITS - 1 - math.floor(math.log10(abs(mean))) if mean else DIGITS
    places = max(0, min(1 - math.floor(math.log10(error)), maximum))
    if round(error, places) == 0:
        return number(mean)
    return f"{mean:,.{places}f} ± {error:,.{places}f}"


def _tables(study: Study) -> list[Table]:
    return [
        _table(edition, results, sheet)
        for edition, results in sorted(study.editions.items())
        for sheet in results.sheets
    ]


def _table(edition: str, results: Results, sheet: str) -> Table:
    """Means of a sheet's cells, each column in a suitable unit."""
    frame = results.table(sheet)
    # All rows of a sheet without axes belong to one cell.
    axes = list(results.axes(sheet)) or ["cell"]
    shown = [c for c in COLUMNS if c in frame.columns and frame[c].null_count() < len(frame)]
    base = frame.group_by(axes, maintain_order=True).agg(
        pl.len().alias("runs"), (~pl.col("completed")).sum().alias("failed")
    )
    heads = [*axes, "Runs", "Failed"]
    columns = [[str(value) for value in base[axis]] for axis in axes]
    columns += [[str(value) for value in base[name]] for name in ("runs", "failed")]
    for column in shown:
        cells = summary(frame, axes, column).select(*axes, "mean", "sem")
        found = base.join(cells, on=axes, how="left", maintain_order="left")
        measure = measure_of(column)
        unit, factor = measure.unit_for(v for v in found["mean"] if v is not None)
        label = LABELS.get(column, measure.label)
        heads.append(replace(measure, label=label).axis_label(unit))
        columns.append([
            "—" if mean is None else with_error(mean / factor, (error or 0.0) / factor)
            for mean, error in zip(found["mean"], found["sem"], strict=True)
        ])  # fmt: skip
    title = f"Edition {edition}, sheet {sheet}: means of completed runs ± standard error"
    return Table(title, heads, list(zip(*columns, strict=True)))


def _claims(study: Study, results: Sequence[Path]) -> list[catalogue.Checked]:
    paper = str(study.text.get("paper", ""))
    if not paper:
        return []
    entries = [entry for entry in catalogue.read() if entry.paper == paper]
    return catalogue.check(entries, results)


def _provenance(study: Study) -> Table:
    rows = [("Study", study.name)]
    for edition, results in sorted(study.editions.items()):
        kept = results.manifest
        rows.append((f"{edition}: slowlight", str(kept.get("slowlight", ""))))
        rows.append((f"{edition}: date", conditions.date_of(results)))
        rows.append((f"{edition}: runs, failed", f"{kept.get('runs')}, {kept.get('failed')}"))
        for sheet in kept.get("sheets", []):
            rows.append((f"{edition}, {sheet['name']}: first seed", str(sheet["first_seed"])))
        for file, digest in results.digests().items():
            rows.append((f"{edition}, {file}: SHA-256", digest))
    versions = {"matplotlib": matplotlib.__version__, "polars": metadata.version("polars")}
    rows += list(versions.items())
    rows.append(("Python", platform.python_version()))
    rows.append(("Host of this report", f"{platform.system()} {platform.machine()}"))
    return Table("Provenance", ("Item", "Value"), rows)


def make(name: str, results: Sequence[Path]) -> Report:
    """Gathers a study's report."""
    study = load(name, results)
    return Report(
        study, _conditions(study), _drawn(study), _tables(study), _claims(study, results),
        _provenance(study),
    )  # fmt: skip


def write(name: str, results: Sequence[Path], out: Path) -> list[Path]:
    """Writes `NAME.html` and `NAME.pdf` to the folder `out`; equal results give equal bytes.

    Without the libraries for a PDF, it writes only the page and prints the reason to stderr.
    """
    made = make(name, results)
    out.mkdir(parents=True, exist_ok=True)
    page, pdf = out / f"{made.study.name}.html", out / f"{made.study.name}.pdf"
    text = html.page(made)
    page.write_text(text, encoding="utf-8")
    try:
        pages.write(text, pdf)
    except UserError as error:
        # The PDF of an earlier report would show other results.
        pdf.unlink(missing_ok=True)
        print(f"no PDF: {error}", file=sys.stderr)
        return [page]
    return [page, pdf]
