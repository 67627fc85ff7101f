"""A report as PDF: pages of text and tables, and a page a figure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from slowlight import style
from slowlight.claims import catalogue

if TYPE_CHECKING:
    from slowlight.report import Drawn, Report, Table

# A4 across, in inches; characters of a line, and lines of a page.
PAGE = (11.69, 8.27)
WIDE, HIGH = 156, 58
# Widths of the columns of claims.
CLAIMS = (8, 38, 28, 30, 44)
# Rows of a table that are printed; the page has all.
ROWS_MAX = 60


def _text_page(lines: Sequence[str], title: str) -> Figure:
    figure = Figure(figsize=PAGE)
    figure.set_layout_engine("none")
    figure.text(0.04, 0.955, title, fontsize=13, fontweight="bold", va="bottom")
    figure.text(
        0.04, 0.94, "\n".join(lines), fontsize=8, family="DejaVu Sans Mono", va="top",
        linespacing=1.15, parse_math=False,
    )  # fmt: skip
    return figure


def _paged(lines: Iterable[str], title: str) -> Iterator[Figure]:
    every = list(lines)
    for start in range(0, max(len(every), 1), HIGH):
        more = "" if start == 0 else " (continued)"
        yield _text_page(every[start : start + HIGH], title + more)


def _widths(rows: Sequence[Sequence[str]], wide: int) -> list[int]:
    """Widths of columns: what they need, and where that is too much, less of the widest."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) + 2 * len(widths) > wide:
        most = widths.index(max(widths))
        widths[most] -= 1
    return [max(width, 4) for width in widths]


def columns(rows: Sequence[Sequence[str]], wide: int = WIDE) -> list[str]:
    """Rows as lines, with their cells wrapped to what the page holds."""
    widths = _widths(rows, wide)
    lines = []
    for row in rows:
        cells = [textwrap.wrap(cell, w) or [""] for cell, w in zip(row, widths, strict=True)]
        for index in range(max(map(len, cells))):
            parts = [
                (cell[index] if index < len(cell) else "").ljust(width)
                for cell, width in zip(cells, widths, strict=True)
            ]
            lines.append("  ".join(parts).rstrip())
    return lines


def _table(table: Table) -> list[str]:
    shown = list(table.rows[:ROWS_MAX])
    lines = ["", table.title, *columns([table.heads, *shown])]
    if len(shown) < len(table.rows):
        lines.append(f"… {len(table.rows) - len(shown)} rows more are on the page")
    return lines


def _claims(checked: Sequence[catalogue.Checked]) -> list[str]:
    rows = [("claim", "what", "paper", "here", "verdict and why")]
    for one in checked:
        for finding in one.findings:
            verdict = finding.verdict.value + (f": {finding.why}" if finding.why else "")
            rows.append(
                (one.entry.id + finding.part, finding.what, finding.paper, finding.here, verdict)
            )
    lines = []
    for row in rows:
        wrapped = [
            textwrap.wrap(cell, width) or [""] for cell, width in zip(row, CLAIMS, strict=True)
        ]
        for index in range(max(map(len, wrapped))):
            parts = [
                (cell[index] if index < len(cell) else "").ljust(width)
                for cell, width in zip(wrapped, CLAIMS, strict=True)
            ]
            lines.append("  ".join(parts).rstrip())
        lines.append("")
    return lines


def _with_caption(drawn: Drawn, figure: Figure) -> None:
    caption = f"{drawn.spec.heading}. {drawn.spec.caption}".strip()
    width = int(16 * figure.get_figwidth())
    figure.supxlabel("\n".join(textwrap.wrap(caption, width)), fontsize=7.5, color="#444444")


def write(report: Report, path: Path) -> None:
    """Writes the PDF; without dates, so that the same report is the same file."""
    study = report.study
    told = {"Title": f"{study.name}: {study.text.get('about', '')}", "CreationDate": None}
    with style.applied(), PdfPages(path, metadata=told) as pdf:
        intro = textwrap.wrap(str(study.text.get("about", "")), WIDE)
        intro += textwrap.wrap(str(study.text.get("source", "")), WIDE)
        lines = [*intro, *(line for table in report.conditions for line in _table(table))]
        for page in _paged(lines, study.name):
            pdf.savefig(page)
        for drawn in report.drawn:
            if drawn.figure is not None:
                _with_caption(drawn, drawn.figure)
                pdf.savefig(drawn.figure)
        for page in _paged(_claims(report.claims), "Claims"):
            pdf.savefig(page)
        for table in report.tables:
            for page in _paged(_table(table), "Tables"):
                pdf.savefig(page)
        for page in _paged(_table(report.provenance), "Provenance"):
            pdf.savefig(page)
