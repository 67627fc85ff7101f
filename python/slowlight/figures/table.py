"""Common parts of the figures of a table: rows, order, units, axes, legends."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from slowlight.errors import UserError, unknown
from slowlight.figures.spec import Spec
from slowlight.results import chosen, number_column
from slowlight.style import Look, are_protocols, looks, measure_of

# Width and height of a panel in inches, by number of panels per row. With a legend, figures are
# about as wide as a page of a report, so their text is about as large as the report's.
PANELS = {1: (6.6, 3.9), 2: (4.6, 3.3), 3: (3.5, 2.8)}
# Lines of series that cover another, whose colour shows in the gaps. Further series on the same
# line have shorter dashes.
UPON = ((0, (4, 4)), (0, (2, 6)), (0, (1, 8)))
# On a logarithmic axis, zero is at the minimum divided by this.
ZERO_GAP = 4.0
# Minimum ratio of maximum and minimum for a logarithmic axis.
LOG_FROM = 20.0

Labels = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Chosen:
    """Rows of a figure, and its axes."""

    frame: pl.DataFrame
    spec: Spec
    # The axes of the sheet with their labels in the study's order.
    axes: Labels

    def labels(self, column: str) -> list[str]:
        """Values of a column in these rows, in the study's order."""
        if column not in self.frame.columns:
            raise unknown("column", column, self.frame.columns, "figures")
        there = self.frame[column].cast(pl.String).unique(maintain_order=True).to_list()
        if column in self.axes:
            return [label for label in self.axes[column] if label in there]
        return sorted(label for label in there if label is not None)

    def looks(self, column: str) -> dict[str, Look]:
        """Look of each series."""
        return looks(self.labels(column), column in ("protocol", "carrier", "who") or None)

    def heading(self, column: str) -> str:
        """Heading of a legend; empty for protocols, whose names suffice."""
        named = column in ("protocol", "carrier", "who") or are_protocols(self.labels(column))
        return "" if named else measure_of(column, column).label

    def of(self, column: str, label: str) -> pl.DataFrame:
        """Rows of one label."""
        return self.frame.filter(pl.col(column).cast(pl.String) == label)


def choose(frame: pl.DataFrame, spec: Spec, axes: Labels) -> Chosen:
    """Selects the rows of a figure. Raises `UserError` for wrong names and if no rows remain."""
    for key, columns in (("x", (spec.x,)), ("y", spec.y), ("series", (spec.series,))):
        for column in columns:
            if column and column not in frame.columns:
                raise unknown("column", column, frame.columns, f"figures.{key}")
    if spec.panels and spec.panels not in frame.columns:
        raise unknown("column", spec.panels, frame.columns, "figures.panels")
    for axis, wanted in spec.where.items():
        if axis not in frame.columns:
            raise unknown("column", axis, frame.columns, "figures.where")
        for label in wanted:
            if axis in axes and label not in axes[axis]:
                raise unknown("value", label, axes[axis], f"figures.where.{axis}")
    rows = chosen(frame, spec.where)
    if rows.is_empty():
        raise UserError(f"{spec.heading or spec.kind}: `where` selects no rows")
    return Chosen(rows, spec, axes)


def measures(spec: Spec) -> tuple[str, ...]:
    """Columns of the figure. Raises `UserError` if there is none."""
    if not spec.y:
        raise UserError(f"figures: kind {spec.kind!r} needs the key 'y', a column of the table")
    return spec.y


def failed(label: str, frame: pl.DataFrame, column: str) -> str:
    """Label with the number of failed runs."""
    is_there = frame["completed"] if "completed" in frame.columns else frame[column].is_not_null()
    missing = frame.height - int(is_there.sum())
    return f"{label}, {missing} of {frame.height} failed" if missing and label else label


def grid(count: int, wide: int = 2) -> tuple[Figure, list[Axes]]:
    """Returns a figure with this number of panels."""
    columns = min(count, wide)
    rows = math.ceil(count / columns)
    wide_in, high_in = PANELS[columns]
    width = wide_in * columns + (1.4 if columns == 1 else 0.6)
    figure = Figure(figsize=(width, high_in * rows + 0.3), layout="constrained")
    found = figure.subplots(rows, columns, squeeze=False)
    panels = [axes for row in found for axes in row]
    for extra in panels[count:]:
        extra.set_visible(False)
    return figure, panels[:count]


def numbers(chosen_rows: Chosen, column: str) -> dict[str, float]:
    """Labels of an axis as numbers, if they are quantities."""
    frame = chosen_rows.frame
    values = number_column(frame, column)
    if values is None:
        return {}
    pairs = frame.select(pl.col(column).cast(pl.String), pl.col(values)).unique()
    return {str(label): float(value) for label, value in pairs.iter_rows()}


def is_wide(values: Sequence[float]) -> bool:
    """Whether the range of values needs a logarithmic axis."""
    positive = [value for value in values if value > 0]
    return len(positive) > 1 and max(positive) / min(positive) >= LOG_FROM


def scaled(scale: str, values: Sequence[float]) -> bool:
    """Whether an axis is logarithmic."""
    return scale == "log" or (scale == "auto" and is_wide(values))


@dataclass(frozen=True)
class Positions:
    """Positions of the labels of an axis."""

    at: Mapping[str, float]
    # Whether positions are values instead of places in a row.
    are_values: bool
    is_log: bool
    zero: float | None
    unit: str
    factor: float


def positions(rows: Chosen, column: str, scale: str) -> Positions:
    """Positions of an axis's labels: their values, with separate zero on a logarithmic axis."""
    labels = rows.labels(column)
    values = numbers(rows, column)
    if len(values) < len(labels) or not labels:
        places = {label: float(place) for place, label in enumerate(labels)}
        return Positions(places, False, False, None, "", 1.0)
    measure = measure_of(number_column(rows.frame, column) or column, column)
    unit, factor = measure.unit_for(values.values())
    shown = {label: values[label] / factor for label in labels}
    positive = [value for value in shown.values() if value > 0]
    # Only a logarithmic axis separates zero and values a decade apart.
    has_decade = len(positive) < len(shown) and len(positive) > 1
    has_decade = has_decade and max(positive) >= 9.9 * min(positive)
    is_log = bool(positive) and (
        scaled(scale, list(shown.values())) or (scale == "auto" and has_decade)
    )
    zero = None
    if is_log and len(positive) < len(shown):
        # A logarithmic axis has no zero, so zero gets a separate place beyond an axis break.
        zero = min(positive) / ZERO_GAP
        shown = {label: value if value > 0 else zero for label, value in shown.items()}
    return Positions(shown, True, is_log, zero, unit, factor)


def dress_x(axes: Axes, rows: Chosen, column: str, at: Positions) -> None:
    """Sets labels, scale and the place of zero of the horizontal axis."""
    measure = measure_of(number_column(rows.frame, column) or column, column)
    # If ticks have units, the axis label has none.
    axes.set_xlabel(measure.label if at.is_log and _odd(at) else measure.axis_label(at.unit))
    if not at.are_values:
        axes.set_xticks(list(at.at.values()), list(at.at))
        turn(axes, list(at.at))
        return
    if not at.is_log:
        axes.margins(x=0.06)
        if len(at.at) == 1:
            # Around a single value, matplotlib would show an arbitrary range.
            axes.set_xticks(list(at.at.values()), [tick(value) for value in at.at.values()])
        return
    axes.set_xscale("log")
    ticks = texts(at)
    if at.zero is not None:
        ticks[at.zero] = "0"
        mark_break(axes, at.zero * math.sqrt(ZERO_GAP))
    axes.xaxis.set_major_locator(FixedLocator(sorted(ticks)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: nearest(ticks, value)))
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = min(at.at.values()), max(at.at.values())
    axes.set_xlim(low / 1.6, high * 1.6)


TICKS_MAX = 7
# Maximum for ticks with units.
TICKS_MAX_LONG = 5


def _odd(at: Positions) -> bool:
    """Whether numbers in the axis's unit would be long, as with KiB in MB."""
    return any(len(tick(value)) > 6 for value in at.at.values())


def texts(at: Positions) -> dict[float, str]:
    """Ticks of a logarithmic axis: its values, or some of many."""
    pairs = sorted((value, label) for label, value in at.at.items())
    step = -(-len(pairs) // (TICKS_MAX_LONG if _odd(at) else TICKS_MAX))
    # The largest value is always included.
    shown = pairs[::-1][::step]
    # Without a unit, a label is a number in the study's notation.
    is_label = _odd(at) or not at.unit
    return {value: label if is_label else tick(value) for value, label in shown}


# Maximum number of characters of horizontal labels below a panel.
WIDE = 52


def turn(axes: Axes, labels: Sequence[str]) -> None:
    """Rotates the labels of the horizontal axis if they would overlap."""
    if max(map(len, labels)) * len(labels) <= WIDE:
        return
    for text in axes.get_xticklabels():
        text.set_rotation(20)
        text.set_horizontalalignment("right")


def mark_break(axes: Axes, at: float) -> None:
    """Marks an axis break; points to the left of it are at zero."""
    axes.axvline(at, color="#BBBBBB", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0.5)
    axes.plot(
        [at], [0.0], transform=axes.get_xaxis_transform(), marker=[(-1, -2), (1, 2)],
        markersize=9, color="#444444", linestyle="none", clip_on=False,
    )  # fmt: skip


def nearest(ticks: Mapping[float, str], value: float) -> str:
    """Text of the tick at a position."""
    return next((text for at, text in ticks.items() if math.isclose(at, value)), "")


def tick(value: float) -> str:
    """Formats a short number: `25`, `1,250`, `0.01`, `1e-5`."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:,.6g}"
    mantissa, exponent = f"{value:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def dress_y(axes: Axes, column: str, values: Sequence[float], scale: str) -> float:
    """Sets label, scale and unit of the vertical axis; returns the divisor of its values.

    A linear axis begins at zero, so that lengths are proportional.
    """
    measure = measure_of(column)
    unit, factor = measure.unit_for(values)
    axes.set_ylabel(measure.axis_label(unit))
    if scaled(scale, values):
        axes.set_yscale("log")
    elif not unit:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=8, steps=(1, 2, 5, 10), integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    return factor


def finish_y(axes: Axes) -> None:
    """Starts a linear vertical axis at zero; sets the ticks of a logarithmic one."""
    low, high = axes.get_ylim()
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0.0, top=1.04 * high)
        return
    log_ticks(axes.yaxis, low, high)


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Sets ticks at powers of ten; also at 2 and 5 times them if fewer than three are in range."""
    decades = math.floor(math.log10(high) + 1e-9) - math.ceil(math.log10(low) - 1e-9) + 1
    axis.set_major_locator(LogLocator(subs=(1.0,) if decades >= 3 else (1.0, 2.0, 5.0)))
    axis.set_minor_formatter(NullFormatter())


def same_limits(panels: Sequence[Axes], columns: int) -> None:
    """Gives the panels of a column one scale, so that they are comparable."""
    for start in range(columns):
        same = panels[start::columns]
        limits = [axes.get_ylim() for axes in same]
        scales = {axes.get_yscale() for axes in same}
        if len(scales) > 1 or not all(map(math.isfinite, sum(limits, ()))):
            continue
        for axes in same:
            axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def title(figure: Figure, text: str) -> None:
    """Sets the figure's title above all panels, wrapped to its width."""
    wide = int(11.0 * figure.get_figwidth())
    wrapped = "\n".join(textwrap.wrap(text, wide))
    figure.suptitle(wrapped, x=0.01, ha="left", fontsize=10, fontweight="bold")


def panel_title(spec: Spec, part: str, column: str = "") -> str:
    """Title of a panel: `One-way delay: 25 ms`, or its column."""
    named = f"{measure_of(spec.panels, spec.panels).label}: {part}" if part else ""
    return ", ".join(text for text in (named, measure_of(column).label if column else "") if text)


def title_panels(figure: Figure, panels: Sequence[Axes], spec: Spec, titles: Sequence[str]) -> None:
    """Sets the titles of the figure and, if there are several, of its panels."""
    title(figure, spec.title)
    for axes, text in zip(panels, titles, strict=True):
        if len(panels) > 1:
            axes.set_title(text, loc="left", fontsize=9, fontweight="normal")


def legend(figure: Figure, panels: Sequence[Axes], about: str = "") -> None:
    """Adds one legend for all panels, beside them."""
    entries: dict[str, Artist] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            entries.setdefault(label, handle)
    if len(entries) < 2:
        return
    figure.legend(
        list(entries.values()), list(entries), loc="outside right center", alignment="left",
        title=about or None, title_fontsize=8.0, handlelength=2.8,
    )  # fmt: skip
