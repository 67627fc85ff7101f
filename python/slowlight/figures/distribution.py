"""Cumulative distributions: share of runs with at most a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from slowlight.errors import UserError
from slowlight.figures import table
from slowlight.figures.spec import Spec
from slowlight.figures.table import Chosen, Labels
from slowlight.style import Look


def steps(frame: pl.DataFrame, column: str) -> tuple[list[float], list[float]]:
    """Values in order, and the share of all rows with at most each value."""
    values = frame[column].cast(pl.Float64).drop_nulls().sort().to_list()
    return values, [(place + 1) / frame.height for place in range(len(values))]


def _uncovered(rows: Chosen, looks: Mapping[str, Look], columns: Sequence[str]) -> dict[str, Look]:
    """Looks in which dashes show series with equal values, in all panels as in the legend."""
    found = dict(looks)
    for column in columns:
        below: list[list[float]] = []
        for key, look in looks.items():
            values, _ = steps(rows.of(rows.spec.series, key) if key else rows.frame, column)
            upon = below.count(values) if values else 0
            below.append(values)
            if upon and found[key] == look:
                dashes = table.UPON[min(upon, len(table.UPON)) - 1]
                found[key] = replace(look, line=dashes, filled=False)
    return found


def draw(frame: pl.DataFrame, spec: Spec, axes: Labels) -> Figure:
    """Draws the share of runs with at most a value, per column of `y`, one line per `series`."""
    rows = table.choose(frame, spec, axes)
    columns = table.measures(spec)
    figure, panels = table.grid(len(columns))
    looks = rows.looks(spec.series) if spec.series else {"": Look("", "#0072B2", "", "-")}
    series = _uncovered(rows, looks, columns)
    for panel, column in zip(panels, columns, strict=True):
        every = rows.frame[column].cast(pl.Float64).drop_nulls().to_list()
        if not every:
            raise UserError(f"{spec.heading or spec.kind}: no row has a value of {column!r}")
        # The values are on the horizontal axis, with their label and scale.
        factor = table.dress_y(panel, column, every, "linear")
        panel.set_xlabel(panel.get_ylabel())
        panel.set_ylabel("Cumulative share of runs (%)")
        for key, look in series.items():
            of_series = rows.of(spec.series, key) if key else rows.frame
            values, shares = steps(of_series, column)
            if not values:
                continue
            x = [values[0] / factor, *(value / factor for value in values)]
            panel.step(
                x, [0.0, *shares], where="post", color=look.color, linestyle=look.line,
                label=table.failed(look.label, of_series, column), marker=look.marker,
                markerfacecolor=look.color if look.filled else "white", markevery=0.12,
            )  # fmt: skip
        if table.scaled(spec.x_scale, every):
            panel.set_xscale("log")
            table.log_ticks(panel.xaxis, *panel.get_xlim())
            panel.xaxis.set_major_formatter(lambda value, _: table.tick(value))
        panel.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
        panel.set_ylim(0.0, 1.02)
    table.title_panels(figure, panels, spec, [""] * len(columns))
    table.legend(figure, panels, rows.heading(spec.series) if spec.series else "")
    return figure
