"""A report as one self-contained HTML page with figures as inline SVG.

The page follows the reader's choice of light or dark colours. A print style sheet formats it as A4
pages, from which `slowlight.pages` writes the PDF.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from slowlight import style
from slowlight.claims import catalogue
from slowlight.claims.evidence import Verdict

if TYPE_CHECKING:
    from slowlight.conditions import Table
    from slowlight.report import Drawn, Report

# Number of rows of a table in print; the page lists all.
ROWS_PRINTED = 60
# Maximum number of columns of a results table on an upright page.
COLUMNS_UPRIGHT = 9
# Inner width of a printed page, and heights of a figure with two or one per page, in mm. Figures
# whose height exceeds the share TALL of their width have a separate page.
PRINT_WIDTH, PRINT_HEIGHT, PRINT_HEIGHT_ALONE, TALL = 174.0, 98.0, 220.0, 0.8

# Maximum length of cells that are not wrapped, in characters.
SHORT = 18
_CLASSES = {Verdict.HOLDS: "holds", Verdict.DIFFERS: "differs"}


def _svg(figure: Figure, prefix: str, alternative: str) -> str:
    """A figure as an element of a page, with unique names that begin with `prefix`."""
    buffer = io.StringIO()
    with style.applied():
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", text)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    width, height = (float(size[1]), float(size[2])) if size else (4.0, 3.0)
    ratio = height / width
    most = PRINT_HEIGHT_ALONE if ratio > TALL else PRINT_HEIGHT
    printed = min(PRINT_WIDTH, most / ratio)
    head = (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(alternative)}" '
        f'style="--printed: {printed:.0f}mm" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'xmlns="http://www.w3.org/2000/svg">'
    )
    return head + text[text.index(">") + 1 :]


def _rows(rows: Iterable[Sequence[str]]) -> str:
    def cell(text: str) -> str:
        # Short cells stay on one line.
        kind = ' class="short"' if len(text) <= SHORT else ""
        return f"<td{kind}>{escape(text)}</td>"

    return "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)


def _table(table: Table) -> str:
    # A word joiner keeps browsers from breaking a unit after its slash.
    heads = "".join(
        f"<th>{escape(head).replace('bit/s', 'bit/&#8288;s')}</th>" for head in table.heads
    )
    return (
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{_rows(table.rows)}</tbody></table></div>"
    )


def _condition(table: Table) -> str:
    return f"<h4>{escape(table.title)}</h4>{_table(table)}"


def _folded(table: Table, name: str) -> str:
    count = len(table.rows)
    rows = "1 row" if count == 1 else f"{count:,} rows"
    note = ""
    if count > ROWS_PRINTED:
        shown = f"Rows 1 to {ROWS_PRINTED} of {count:,}; the HTML page lists all."
        note = f'<p class="print">{shown}</p>'
    summary = f"<summary>{escape(table.title)} ({rows})</summary>"
    return f'<details class="rows" id="{name}">{summary}{_table(table)}{note}</details>'


def _figure(drawn: Drawn, number: int) -> str:
    spec = drawn.spec
    of_paper = ""
    if spec.figure:
        is_list = "," in spec.in_paper
        named = f"in the paper: {spec.in_paper}" if is_list else f"{spec.in_paper} of the paper"
        of_paper = f" ({escape(named)})"
    title = f" {escape(spec.title)}." if spec.title else ""
    caption = (
        f"<figcaption><b>Figure {number}{of_paper}.{title}</b> {escape(spec.caption)}</figcaption>"
    )
    if drawn.figure is None:
        body = f'<p class="missing">Not drawn: {escape(drawn.missing)}</p>'
    else:
        body = _svg(drawn.figure, f"f{number}-", drawn.alternative)
    return f'<figure id="figure-{number}">{body}{caption}</figure>'


def _claims(checked: Sequence[catalogue.Checked]) -> str:
    rows = []
    for one in checked:
        for finding in one.findings:
            mark = _CLASSES.get(finding.verdict, "other")
            name = one.entry.id + finding.part
            why = f'<div class="why">{escape(finding.why)}</div>' if finding.why else ""
            first = finding is one.findings[0]
            bounds = f'<div class="bounds">{escape(one.bounds)}</div>' if first else ""
            rows.append(
                f'<tr id="{escape(name)}"><td>{escape(name)}</td><td>{escape(one.entry.where)}</td>'
                f"<td>{escape(finding.what)}{bounds}</td><td>{escape(finding.paper)}</td>"
                f"<td>{escape(finding.here)}</td>"
                f'<td><span class="verdict {mark}">{finding.verdict.value}</span>{why}</td></tr>'
            )
    heads = "".join(
        f"<th>{head}</th>" for head in ("Claim", "Where", "What", "Paper", "Here", "Verdict")
    )
    return (
        f"<p>{catalogue.counted(checked)}. Small print gives the bounds of each claim."
        '</p><div class="scroll"><table class="claims">'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _contents(sections: Sequence[tuple[str, str]], report: Report) -> str:
    """Links to all sections, and in print to each figure and table."""

    def listed(links: Iterable[tuple[str, str]]) -> str:
        items = (f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in links)
        return f"<ol>{''.join(items)}</ol>"

    parts = {
        "figures": listed(
            (f"figure-{number}", f"Figure {number}. {drawn.spec.title or drawn.spec.name}")
            for number, drawn in enumerate(report.drawn, 1)
        ),
        "tables": listed(
            (f"table-{number}", table.title) for number, table in enumerate(report.tables, 1)
        ),
    }
    items = (
        f'<li><a href="#{name}">{text}</a>{parts.get(name, "")}</li>' for name, text in sections
    )
    return f'<nav aria-label="Contents"><ol>{"".join(items)}</ol></nav>'


def page(report: Report) -> str:
    """Text of the page."""
    bodies = {
        "Conditions": "".join(
            f'<section class="sheet"><h3>{escape(title)}</h3>'
            f"{''.join(map(_condition, tables))}</section>"
            for title, tables in report.conditions
        ),
        "Figures": "".join(_figure(one, number) for number, one in enumerate(report.drawn, 1)),
        "Tables": "".join(
            _folded(table, f"table-{number}") for number, table in enumerate(report.tables, 1)
        ),
        "Claims": _claims(report.claims) if report.claims else "",
        "Provenance": _table(report.provenance),
    }
    # Tables too wide for an upright page are printed in landscape.
    wide = " wide" if any(len(table.heads) > COLUMNS_UPRIGHT for table in report.tables) else ""
    shown = [(name.lower(), name) for name, body in bodies.items() if body]
    css = resources.files("slowlight").joinpath("report.css").read_text(encoding="utf-8")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(report.title)}</title><style>{css}</style></head><body>",
        f"<header><h1>{escape(report.title)}</h1>",
        *(f'<p class="about">{escape(line)}</p>' for line in report.about),
        "</header>",
        _contents(shown, report),
        *(
            f'<section class="{name}{wide if title == "Tables" else ""}">'
            f'<h2 id="{name}">{title}</h2>{bodies[title]}</section>'
            for name, title in shown
        ),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"
