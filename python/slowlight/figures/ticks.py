"""Tick labels that do not touch each other."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator

# Rows of labels below a horizontal axis, and the least gap between two labels, in pixels at the
# figure's resolution.
ROWS = 2
GAP = 3.0

# Begin and end of a label along its axis.
Extent = tuple[float, float]


def rows(extents: Sequence[Extent], count: int) -> list[int | None]:
    """Row of each label, in the order of the axis; `None` if it touches one in each row.

    The last label, the largest value, always has a place.
    """
    found: list[int | None] = []
    ends = [float("-inf")] * count
    last = extents[-1][0] if extents else 0.0
    for place, (begin, end) in enumerate(extents):
        is_last = place == len(extents) - 1
        free = [row for row in range(count) if begin >= ends[row] + GAP]
        # One row must remain for the last label.
        if not is_last and end + GAP > last and not [row for row in free if row < count - 1]:
            free = []
        row = free[0] if free else None
        if row is not None:
            ends[row] = end
        found.append(row)
    return found


def part(figure: Figure) -> None:
    """Puts horizontal labels that touch into a second row, and omits those without a place."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        _part(axes.xaxis, is_horizontal=True)
        _part(axes.yaxis, is_horizontal=False)


def _part(axis: Axis, is_horizontal: bool) -> None:
    low, high = sorted(axis.get_view_interval())
    shown = sorted(
        (tick.get_loc(), tick.label1)
        for tick in axis.get_major_ticks()
        if tick.label1.get_text() and low <= tick.get_loc() <= high
    )
    # The boxes of turned labels overlap where their texts do not.
    if len(shown) < 2 or any(label.get_rotation() for _, label in shown):
        return
    boxes = [label.get_window_extent() for _, label in shown]
    extents = [(box.x0, box.x1) if is_horizontal else (box.y0, box.y1) for box in boxes]
    places = rows(extents, ROWS if is_horizontal else 1)
    if all(row == 0 for row in places):
        return
    texts = {
        at: "" if row is None else "\n" * row + label.get_text()
        for (at, label), row in zip(shown, places, strict=True)
    }
    ticks = [float(at) for at in axis.get_majorticklocs()]
    minor = axis.get_minor_locator()
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter([texts.get(at, "") for at in ticks]))
    axis.set_minor_locator(minor)
