"""Claims and their verdicts as a table for a terminal, and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from slowlight.claims.catalogue import Checked, counted, counts

_WIDTHS = (8, 18, 44, 30, 40)


def as_json(checked: Sequence[Checked]) -> str:
    """JSON object with `claims`, in the catalogue's order, and `verdicts`, the number of each."""
    claims = [
        {
            "id": one.entry.id,
            "where": one.entry.where,
            "text": one.entry.text,
            "kind": one.entry.kind,
            "bounds": one.bounds,
            "lost": one.lost,
            "findings": [
                {
                    "part": finding.part,
                    "what": finding.what,
                    "paper": finding.paper,
                    "here": finding.here,
                    "verdict": finding.verdict.value,
                    "why": finding.why,
                }
                for finding in one.findings
            ],
        }
        for one in checked
    ]
    document = {"claims": claims, "verdicts": counts(checked)}
    return json.dumps(document, indent=2, ensure_ascii=False)


def _row(cells: Sequence[str]) -> list[str]:
    wrapped = [
        textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, _WIDTHS, strict=True)
    ]
    lines = []
    for index in range(max(map(len, wrapped))):
        parts = [
            (lines_of[index] if index < len(lines_of) else "").ljust(width)
            for lines_of, width in zip(wrapped, _WIDTHS, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def as_text(checked: Sequence[Checked]) -> str:
    """Table with one row per part of a claim, and the reason below rows that do not hold."""
    lines = _row(("claim", "verdict", "what", "paper", "here"))
    lines += _row(["-" * width for width in _WIDTHS])
    for one in checked:
        for finding in one.findings:
            name = one.entry.id + finding.part
            mark = f"{finding.verdict.value} (held)" if name in one.lost else finding.verdict.value
            lines += _row((name, mark, finding.what, finding.paper, finding.here))
            if finding.why:
                lines += textwrap.wrap(
                    finding.why, 130, initial_indent=" " * 10, subsequent_indent=" " * 10
                )
    return "\n".join([*lines, "", counted(checked)])
