"""Families of lines: the mean of each cell, with its standard error, against an axis."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slowlight.errors import UserError
from slowlight.figures import table
from slowlight.figures.spec import Spec
from slowlight.figures.table import Chosen, Labels, Positions
from slowlight.results import summary
from slowlight.style import BOUND, Look

# Markers of the first series and of the last, in points.
LARGEST, LEAST = 8.0, 4.8


def points(rows: Chosen, frame: pl.DataFrame, at: Positions, column: str) -> pl.DataFrame:
    """`x`, `label`, `mean`, `sem`, `n` and `missing` of each cell, in the order of the axis."""
    told = summary(frame, [rows.spec.x], column)
    order = {label: place for place, label in enumerate(rows.labels(rows.spec.x))}
    label = pl.col(rows.spec.x).cast(pl.String)
    return (
        told.with_columns(
            label.alias("label"),
            label.replace_strict(dict(at.at), return_dtype=pl.Float64).alias("x"),
            label.replace_strict(order, return_dtype=pl.Int64).alias("order"),
        )
        .sort("order")
        .select("x", "label", "mean", "sem", "n", "missing")
    )


def _one(
    axes: Axes, found: pl.DataFrame, look: Look, factor: float, at: Positions, size: float = 5.0
) -> None:
    there = found.filter(pl.col("mean").is_not_null())
    x, y = there["x"].to_list(), [mean / factor for mean in there["mean"]]
    error = [sem / factor for sem in there["sem"]]
    face = look.color if look.filled else "white"
    zero = [place for place, value in enumerate(x) if value == at.zero]
    first = zero[0] + 1 if zero else 0
    axes.errorbar(
        x[first:], y[first:], yerr=error[first:], label=look.label, color=look.color,
        marker=look.marker, linestyle=look.line, markerfacecolor=face, capsize=2.5,
        elinewidth=1.0, markersize=size,
    )  # fmt: skip
    if zero:
        # What stands at zero is beyond the break, so no line leads there.
        axes.errorbar(
            x[:first], y[:first], yerr=error[:first], color=look.color, marker=look.marker,
            linestyle="none", markerfacecolor=face, capsize=2.5, elinewidth=1.0,
            markersize=size,
        )  # fmt: skip


def _panel(axes: Axes, rows: Chosen, frame: pl.DataFrame, column: str) -> None:
    spec = rows.spec
    at = table.positions(rows, spec.x, spec.x_scale)
    every = summary(rows.frame, [c for c in (spec.x, spec.series, spec.panels) if c], column)
    values = [value for value in every["mean"].to_list() if value is not None]
    if not values:
        raise UserError(f"{spec.heading or spec.kind}: no row has a value of {column!r}")
    # A share of the whole is read against the whole.
    scale = "linear" if column == "efficiency" and spec.y_scale == "auto" else spec.y_scale
    factor = table.dress_y(axes, column, values, scale)
    if not spec.series:
        _one(axes, points(rows, frame, at, column), Look("", "#0072B2", "o", "-"), factor, at)
    series = rows.looks(spec.series) if spec.series else {}
    for place, (key, look) in enumerate(series.items()):
        of_it = frame.filter(pl.col(spec.series).cast(pl.String) == key)
        found = points(rows, of_it, at, column)
        told = replace(look, label=table.failed(look.label, rows.of(spec.series, key), column))
        # Later ones are smaller, so that what lies below another is seen.
        size = LARGEST - (LARGEST - LEAST) * place / max(len(series) - 1, 1)
        _one(axes, found, told, factor, at, size)
    table.dress_x(axes, rows, spec.x, at)
    if column == "efficiency":
        axes.axhline(100.0, color=BOUND, linewidth=0.9, linestyle="--")
        axes.text(
            1.0, 100.0, "bound ", transform=axes.get_yaxis_transform(), ha="right", va="bottom",
            fontsize=8, color=BOUND,
        )  # fmt: skip


def draw(frame: pl.DataFrame, spec: Spec, axes: Labels) -> Figure:
    """Mean ± standard error of each column of `y` against `x`, a line a value of `series`."""
    rows = table.choose(frame, spec, axes)
    if not spec.x:
        raise UserError(f"figures: kind {spec.kind!r} needs the key 'x', an axis of the sheet")
    columns = table.measures(spec)
    parts = rows.labels(spec.panels) if spec.panels else [""]
    shown = [(part, column) for part in parts for column in columns]
    figure, panels = table.grid(len(shown), wide=3 if len(shown) in (3, 5, 6, 7, 9) else 2)
    titles = []
    for panel, (part, column) in zip(panels, shown, strict=True):
        of_part = rows.of(spec.panels, part) if part else rows.frame
        _panel(panel, rows, of_part, column)
        titles.append(table.panel_title(spec, part, column if len(columns) > 1 else ""))
    if spec.panels:
        table.same_limits(panels, len(columns))
    for panel in panels:
        table.finish_y(panel)
    table.title_panels(figure, panels, spec, titles)
    table.legend(figure, panels, rows.heading(spec.series) if spec.series else "")
    return figure
