"""Box plots over the runs of a cell, and bars of their means."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from slowlight.errors import UserError
from slowlight.figures import table
from slowlight.figures.spec import Spec
from slowlight.figures.table import Chosen, Labels
from slowlight.results import summary
from slowlight.style import Look, looks, measure_of

# Opacity of areas.
BOX, BAR = 0.45, 0.9
# Bars below this share of the longest show their value.
SHORT = 0.02
# Look of boxes with only one series.
_ALONE = Look("", "#0072B2", "o", "-")


def samples(rows: Chosen, frame: pl.DataFrame, label: str, column: str) -> list[float]:
    """Values of the runs with this label on the horizontal axis."""
    of_label = frame.filter(pl.col(rows.spec.x).cast(pl.String) == label)
    return of_label[column].cast(pl.Float64).drop_nulls().sort().to_list()


def _series(rows: Chosen) -> dict[str, Look]:
    spec = rows.spec
    if spec.series:
        return rows.looks(spec.series)
    only = rows.labels("protocol") if "protocol" in rows.frame.columns else []
    if len(only) == 1:
        look = next(iter(looks(only, True).values()))
        return {"": Look("", look.color, look.marker, "-")}
    return {"": _ALONE}


def _boxes(axes: Axes, rows: Chosen, frame: pl.DataFrame, column: str) -> None:
    spec, labels, series = rows.spec, rows.labels(rows.spec.x), _series(rows)
    every = [value for value in frame[column].cast(pl.Float64).to_list() if value is not None]
    if not every:
        raise UserError(f"{spec.heading or spec.kind}: no row has a value of {column!r}")
    factor = table.dress_y(axes, column, every, spec.y_scale)
    width = 0.8 / len(series)
    missing = []
    for place, (key, look) in enumerate(series.items()):
        of_series = frame.filter(pl.col(spec.series).cast(pl.String) == key) if key else frame
        found = [samples(rows, of_series, label, column) for label in labels]
        at = [index - 0.4 + width * (place + 0.5) for index in range(len(labels))]
        missing += [x for x, values in zip(at, found, strict=True) if not values]
        _draw_boxes(axes, found, at, width * 0.82, look, factor, len(series) > 1)
    dress_places(axes, rows, labels)
    if len(series) > 1:
        _part(axes, len(labels))
    for x in missing:
        axes.text(
            x, 0.015, "none", transform=axes.get_xaxis_transform(), ha="center", va="bottom",
            fontsize=7, color="#777777", rotation=90,
        )  # fmt: skip


def _part(axes: Axes, count: int) -> None:
    """Draws lines between labels."""
    for index in range(1, count):
        axes.axvline(index - 0.5, color="#E4E4E4", linewidth=0.8, zorder=0.5)


def _draw_boxes(
    axes: Axes, found: list[list[float]], at: list[float], width: float, look: Look, factor: float,
    is_one_of_many: bool,
) -> None:  # fmt: skip
    # With equal runs a box is only its median, so the median has the colour of the series.
    median = look.color if is_one_of_many else "black"
    drawn = axes.boxplot(
        [[value / factor for value in values] for values in found], positions=at, widths=width,
        patch_artist=True, manage_ticks=False,
        medianprops={"color": median, "linewidth": 1.6, "solid_capstyle": "butt"},
        flierprops={"marker": ".", "markersize": 4, "markeredgecolor": look.color},
        whiskerprops={"color": look.color}, capprops={"color": look.color},
        boxprops={"edgecolor": look.color},
    )  # fmt: skip
    for box in drawn["boxes"]:
        box.set_facecolor(look.color)
        box.set_alpha(BOX)
        box.set_hatch(look.hatch)


def dress_places(axes: Axes, rows: Chosen, labels: list[str]) -> None:
    """Labels the horizontal axis of values side by side."""
    column = rows.spec.x
    texts = labels
    if column in ("protocol", "carrier", "who"):
        texts = [look.label for look in rows.looks(column).values()]
        axes.set_xlabel("")
    else:
        axes.set_xlabel(measure_of(column, column).label)
    axes.set_xticks(range(len(labels)), texts)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.grid(visible=False, axis="x")
    table.turn(axes, texts)


def _bars(axes: Axes, rows: Chosen, frame: pl.DataFrame, column: str) -> None:
    spec, labels, series = rows.spec, rows.labels(rows.spec.x), _series(rows)
    by = [spec.x, *([spec.series] if spec.series else [])]
    means = summary(frame, by, column)
    values = [value for value in means["mean"].to_list() if value is not None]
    # The length of a bar is its value, so its axis is linear by default.
    factor = table.dress_y(axes, column, values, "log" if spec.y_scale == "log" else "linear")
    width = 0.8 / len(series)
    each = rows.looks(spec.x) if spec.x in ("protocol", "carrier") else {}
    for place, (key, look) in enumerate(series.items()):
        of_series = means.filter(pl.col(spec.series).cast(pl.String) == key) if key else means
        for index, label in enumerate(labels):
            row = of_series.filter(pl.col(spec.x).cast(pl.String) == label)
            if row.is_empty() or row["mean"][0] is None:
                continue
            x = index - 0.4 + width * (place + 0.5)
            of_bar = each.get(label) or look
            # The spread of a single run is unknown.
            error = row["sem"][0] / factor if row["n"][0] > 1 else None
            axes.bar(
                x, row["mean"][0] / factor, width * 0.88, yerr=error, color=of_bar.color,
                hatch=of_bar.hatch, edgecolor="white", linewidth=0.0, alpha=BAR, capsize=2.5,
                ecolor="#222222",
            )  # fmt: skip
            if row["mean"][0] < SHORT * max(values) and spec.y_scale != "log":
                # A hardly visible bar shows its value.
                axes.annotate(
                    table.tick(float(f"{row['mean'][0] / factor:.2g}")),
                    (x, row["mean"][0] / factor), (0, 3), textcoords="offset points", ha="center",
                    fontsize=7,
                )  # fmt: skip
    dress_places(axes, rows, labels)


def _panels(frame: pl.DataFrame, spec: Spec, axes: Labels, is_box: bool) -> Figure:
    rows = table.choose(frame, spec, axes)
    if not spec.x:
        raise UserError(f"figures: kind {spec.kind!r} needs the key 'x', an axis of the sheet")
    columns = table.measures(spec)
    parts = rows.labels(spec.panels) if spec.panels else [""]
    shown = [(part, column) for part in parts for column in columns]
    figure, panels = table.grid(len(shown))
    for panel, (part, column) in zip(panels, shown, strict=True):
        of_part = rows.of(spec.panels, part) if part else rows.frame
        (_boxes if is_box else _bars)(panel, rows, of_part, column)
    if spec.panels:
        table.same_limits(panels, len(columns))
    for panel in panels:
        table.finish_y(panel)
    titles = [
        table.panel_title(spec, part, column if len(columns) > 1 else "") for part, column in shown
    ]
    table.title_panels(figure, panels, spec, titles)
    series = _series(rows)
    if len(series) > 1:
        handles = [
            Patch(
                facecolor=look.color, hatch=look.hatch, alpha=BOX if is_box else BAR,
                edgecolor=None if is_box else "white", linewidth=None if is_box else 0.0,
            )
            for look in series.values()
        ]  # fmt: skip
        names = [
            table.failed(look.label, rows.of(spec.series, key), columns[0])
            for key, look in series.items()
        ]
        figure.legend(
            handles, names, loc="outside right center", title=rows.heading(spec.series) or None,
            title_fontsize=8.0, alignment="left",
        )  # fmt: skip
    return figure


def draw_boxes(frame: pl.DataFrame, spec: Spec, axes: Labels) -> Figure:
    """Draws a box over the runs of each value of `x`, side by side for each value of `series`.

    A box shows the middle half of the runs and their median. Whiskers extend to the last run within
    1.5 times the box height; further runs are points.
    """
    return _panels(frame, spec, axes, is_box=True)


def draw_bars(frame: pl.DataFrame, spec: Spec, axes: Labels) -> Figure:
    """Draws a bar with the mean and standard error of each value of `x`."""
    return _panels(frame, spec, axes, is_box=False)
