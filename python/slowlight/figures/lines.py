"""Line charts: mean and standard error of each cell against an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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

# Marker sizes of the first and the last series, in points.
LARGEST, SMALLEST = 8.0, 4.8
# Maximum relative difference of the means of series that the legend marks as coinciding (≈), and of
# those that it marks as equal (=).
SAME, EQUAL = 0.01, 1e-6
# Points closer than the share NEAR of the vertical axis look equal. A series covers another if at
# least the share MOST of its points look equal.
NEAR, MOST = 0.015, 0.5

# Means by series, then by the label on the horizontal axis.
Means = Mapping[str, Mapping[str, float]]


def points(rows: Chosen, frame: pl.DataFrame, at: Positions, column: str) -> pl.DataFrame:
    """`x`, `label`, `mean`, `sem`, `n` and `missing` of each cell, in the order of the axis."""
    cells = summary(frame, [rows.spec.x], column)
    order = {label: place for place, label in enumerate(rows.labels(rows.spec.x))}
    label = pl.col(rows.spec.x).cast(pl.String)
    return (
        cells.with_columns(
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
        # Points at zero are beyond the axis break, so no line connects them.
        axes.errorbar(
            x[:first], y[:first], yerr=error[:first], color=look.color, marker=look.marker,
            linestyle="none", markerfacecolor=face, capsize=2.5, elinewidth=1.0,
            markersize=size,
        )  # fmt: skip


def _means(rows: Chosen, frame: pl.DataFrame, column: str) -> Means:
    spec = rows.spec
    found: dict[str, dict[str, float]] = {key: {} for key in rows.labels(spec.series)}
    for row in summary(frame, [spec.series, spec.x], column).iter_rows(named=True):
        if row["mean"] is not None:
            found[str(row[spec.series])][str(row[spec.x])] = row["mean"]
    return found


def _apart(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Maximum relative difference of two series; infinite if they have different points."""
    if not one or set(one) != set(other):
        return math.inf
    pairs = ((value, other[label]) for label, value in one.items())
    return max(abs(a - b) / max(abs(a), abs(b), 1e-300) for a, b in pairs)


def coinciding(means: Means) -> dict[str, str]:
    """Series whose means equal an earlier series' within `SAME`, with the first such series."""
    return _first_below(means, lambda one, other: _apart(one, other) <= SAME)


def lying(means: Means, is_log: bool) -> dict[str, str]:
    """Series that cover an earlier series on the axes, with the first such series."""
    every = [value for values in means.values() for value in values.values()]
    high = max(every, default=0.0)
    low = min(every, default=0.0)
    height = math.log(high / low) if is_log and low > 0 else high

    def is_near(one: float, other: float) -> bool:
        apart = abs(math.log(one / other)) if is_log and low > 0 else abs(one - other)
        return apart <= NEAR * height

    def lies(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
        shared = [label for label in one if label in other]
        near = sum(is_near(one[label], other[label]) for label in shared)
        return bool(shared) and near >= MOST * len(shared)

    return _first_below(means, lies)


def _first_below(
    means: Means, lies: Callable[[Mapping[str, float], Mapping[str, float]], bool]
) -> dict[str, str]:
    keys = list(means)
    found: dict[str, str] = {}
    for place, key in enumerate(keys):
        below = (k for k in keys[:place] if k not in found and lies(means[key], means[k]))
        first = next(below, None)
        if first is not None:
            found[key] = first
    return found


def named(looks: Mapping[str, Look], panels: Sequence[Means]) -> dict[str, Look]:
    """Looks whose labels name the earlier series that coincides in all panels."""
    found = dict(looks)
    for key, below in coinciding(panels[0]).items():
        apart = max(_apart(means[key], means[below]) for means in panels)
        if apart <= SAME:
            sign = "=" if apart <= EQUAL else "≈"
            found[key] = replace(
                looks[key], label=f"{looks[key].label} {sign} {looks[below].label}"
            )
    return found


def uncovered(looks: Mapping[str, Look], covers: Sequence[Mapping[str, str]]) -> dict[str, Look]:
    """Looks in which dashes show the series below, if one covers another in any panel.

    They are the same in all panels, as in the legend.
    """
    upon: dict[str, str] = {}
    for cover in covers:
        for key, below in cover.items():
            upon.setdefault(key, below)
    found = dict(looks)
    for key, below in upon.items():
        others = [k for k in upon if upon[k] == below]
        dashes = table.UPON[min(others.index(key), len(table.UPON) - 1)]
        found[key] = replace(looks[key], line=dashes, filled=False)
    return found


def _scale(rows: Chosen, column: str) -> tuple[list[float], str]:
    """Means of all panels in a column, and the scale of its axis."""
    spec = rows.spec
    every = summary(rows.frame, [c for c in (spec.x, spec.series, spec.panels) if c], column)
    values = [value for value in every["mean"].to_list() if value is not None]
    if not values:
        raise UserError(f"{spec.heading or spec.kind}: no row has a value of {column!r}")
    # The axis of a share starts at zero and is linear.
    is_share = column == "efficiency" and spec.y_scale == "auto"
    return values, "linear" if is_share else spec.y_scale


def _panel(
    axes: Axes, rows: Chosen, frame: pl.DataFrame, column: str, series: Mapping[str, Look]
) -> None:
    spec = rows.spec
    at = table.positions(rows, spec.x, spec.x_scale)
    factor = table.dress_y(axes, column, *_scale(rows, column))
    if not spec.series:
        _one(axes, points(rows, frame, at, column), Look("", "#0072B2", "o", "-"), factor, at)
    for place, (key, look) in enumerate(series.items()):
        of_it = frame.filter(pl.col(spec.series).cast(pl.String) == key)
        found = points(rows, of_it, at, column)
        shown = replace(look, label=table.failed(look.label, rows.of(spec.series, key), column))
        # Later markers are smaller, so that markers below them remain visible.
        size = LARGEST - (LARGEST - SMALLEST) * place / max(len(series) - 1, 1)
        _one(axes, found, shown, factor, at, size)
    table.dress_x(axes, rows, spec.x, at)
    if column == "efficiency":
        axes.axhline(100.0, color=BOUND, linewidth=0.9, linestyle="--")
        axes.text(
            1.0, 100.0, "bound ", transform=axes.get_yaxis_transform(), ha="right", va="bottom",
            fontsize=8, color=BOUND,
        )  # fmt: skip


def draw(frame: pl.DataFrame, spec: Spec, axes: Labels) -> Figure:
    """Draws mean ± standard error of each column of `y` against `x`, one line per `series`."""
    rows = table.choose(frame, spec, axes)
    if not spec.x:
        raise UserError(f"figures: kind {spec.kind!r} needs the key 'x', an axis of the sheet")
    columns = table.measures(spec)
    parts = rows.labels(spec.panels) if spec.panels else [""]
    shown = [(part, column) for part in parts for column in columns]
    figure, panels = table.grid(len(shown), wide=3 if len(shown) in (3, 5, 6, 7, 9) else 2)
    frames = [rows.of(spec.panels, part) if part else rows.frame for part, _ in shown]
    series: dict[str, Look] = {}
    if spec.series:
        means = [_means(rows, of_it, c) for of_it, (_, c) in zip(frames, shown, strict=True)]
        covers = []
        for mean, (_, column) in zip(means, shown, strict=True):
            values, scale = _scale(rows, column)
            covers.append(lying(mean, table.scaled(scale, values)))
        series = uncovered(named(rows.looks(spec.series), means), covers)
    titles = []
    for panel, of_part, (part, column) in zip(panels, frames, shown, strict=True):
        _panel(panel, rows, of_part, column, series)
        titles.append(table.panel_title(spec, part, column if len(columns) > 1 else ""))
    if spec.panels:
        table.same_limits(panels, len(columns))
    for panel in panels:
        table.finish_y(panel)
    table.title_panels(figure, panels, spec, titles)
    table.legend(figure, panels, rows.heading(spec.series) if spec.series else "")
    return figure
