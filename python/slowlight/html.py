"""A report as one page of HTML: figures are in it as SVG, and nothing is loaded from elsewhere."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from slowlight import style
from slowlight.claims import catalogue
from slowlight.claims.evidence import Verdict

if TYPE_CHECKING:
    from slowlight.report import Drawn, Report, Table

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 68rem; margin: 0 auto; padding: 1rem 1.5rem 4rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
h3 { font-size: 1rem; margin: 1.5rem 0 .3rem; }
p.about { color: #444; margin-top: .2rem; }
figure { margin: 1.5rem 0; } figure svg { max-width: 100%; height: auto; }
figcaption { color: #444; font-size: .9rem; max-width: 46rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .2rem .7rem .2rem 0;
  border-bottom: 1px solid #e5e5e5; }
th { border-bottom-color: #888; white-space: nowrap; }
td.digest { overflow-wrap: anywhere; }
.why { color: #444; } .bounds { color: #777; font-size: .78rem; }
.verdict { white-space: nowrap; font-weight: 600; }
.holds { color: #00694c; } .differs { color: #a63d00; } .other { color: #666; }
nav a { margin-right: 1.2rem; }
summary { cursor: pointer; color: #00518a; }
"""


def _svg(figure: Figure, prefix: str) -> str:
    """A figure as an element of a page; its names begin with `prefix`, so that none are twice."""
    buffer = io.StringIO()
    with style.applied():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", text)


def _table(table: Table, folded: bool = False) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in table.heads)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    body = f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>'
    body += "</table></div>"
    if folded:
        told = f"{escape(table.title)} ({len(table.rows)} rows)"
        return f"<details><summary>{told}</summary>{body}</details>"
    return f"<h3>{escape(table.title)}</h3>{body}"


def _figure(drawn: Drawn, index: int) -> str:
    spec = drawn.spec
    told = f"<b>{escape(spec.heading)}</b>. {escape(spec.caption)}"
    caption = f"<figcaption>{told}</figcaption>"
    if drawn.figure is None:
        return f"<figure><p><i>Not drawn: {escape(drawn.missing)}</i></p>{caption}</figure>"
    svg = _svg(drawn.figure, f"f{index}-")
    return f'<figure id="{escape(spec.name)}">{svg}{caption}</figure>'


_CLASSES = {Verdict.HOLDS: "holds", Verdict.DIFFERS: "differs"}


def _claims(checked: Sequence[catalogue.Checked]) -> str:
    told = ", ".join(f"{n} {name}" for name, n in catalogue.counts(checked).items() if n)
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
        f"<th>{head}</th>" for head in ("claim", "where", "what", "paper", "here", "verdict")
    )
    return (
        f"<p>{told}, of {len(checked)} claims. Small print says when a claim holds.</p>"
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def page(report: Report) -> str:
    """The page."""
    study = report.study
    about = str(study.text.get("about", ""))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(study.name)}: {escape(about)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(study.name)}</h1>",
        f'<p class="about">{escape(about)}. {escape(str(study.text.get("source", "")))}</p>',
        '<nav><a href="#conditions">Conditions</a><a href="#figures">Figures</a>'
        '<a href="#tables">Tables</a><a href="#claims">Claims</a>'
        '<a href="#provenance">Provenance</a></nav>',
        '<h2 id="conditions">Conditions</h2>',
        *(_table(table) for table in report.conditions),
        '<h2 id="figures">Figures</h2>',
        *(_figure(drawn, index) for index, drawn in enumerate(report.drawn)),
        '<h2 id="tables">Tables</h2>',
        "<p>Times in seconds, rates in bit/s.</p>",
        *(_table(table, folded=True) for table in report.tables),
        '<h2 id="claims">Claims</h2>',
        _claims(report.claims) if report.claims else "<p>The study has no paper.</p>",
        '<h2 id="provenance">Provenance</h2>',
        _table(report.provenance),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"
