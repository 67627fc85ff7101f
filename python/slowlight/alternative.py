"""Alternative texts of figures, for readers who cannot see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slowlight.figures.spec import Spec
from slowlight.style import are_protocols, measure_of, protocol_label

KINDS = {
    "lines": "Line chart",
    "box": "Box plot",
    "bars": "Bar chart",
    "cdf": "Cumulative distribution",
    "best": "Map of the best",
    "sequence": "Time-sequence graph of a single run: position in the file against time",
    "rate": "Throughput and goodput over time of a single run",
}


def text(spec: Spec, axes: Mapping[str, Sequence[str]]) -> str:
    """Alternative text: kind, title, axes, series and panels."""
    parts = [f"{KINDS.get(spec.kind, spec.kind)}: {spec.title or spec.name}."]
    if spec.kind == "best" and len(spec.y) == 2:
        parts.append(
            f"Horizontal: {_name(spec.x)}; vertical: {_name(spec.y[0])}; "
            f"decided by: {measure_of(spec.y[1]).label}."
        )
    elif spec.y:
        what = ", ".join(measure_of(column).label for column in spec.y)
        against = f" against {_name(spec.x)}" if spec.x else ""
        parts.append(f"{what}{against}.")
    for role, column in (("Series", spec.series), ("Panels", spec.panels)):
        if column:
            labels = spec.where.get(column) or axes.get(column, ())
            shown = [protocol_label(one) for one in labels] if are_protocols(labels) else labels
            values = f": {', '.join(shown)}" if shown else ""
            parts.append(f"{role} by {_name(column).lower()}{values}.")
    return " ".join(parts)


def _name(column: str) -> str:
    return measure_of(column, column).label
