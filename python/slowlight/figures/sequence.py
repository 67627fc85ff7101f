"""Time-sequence graphs of every protocol, in the style of tcptrace."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from slowlight.exchange import Exchange, Mark, Sent
from slowlight.figures.spec import Spec
from slowlight.figures.table import tick, title
from slowlight.style import AGAIN, LOST, MARKERS, MEASURES, OUTAGE

DATA, ACKS, WINDOW, ARRIVED, REQUESTED, PARITY = (
    "#222222", "#009E73", "#E69F00", "#7B3294", "#56B4E9", "#0072B2",
)  # fmt: skip
# Packets closer than this share of the shown time are drawn as one line.
NEAR = 1 / 2500
# Maximum number of losses with large crosses.
MANY = 30
# Maximum number of kinds of packets without data that have markers.
KINDS_MAX = 8


def lines(
    data: Sequence[Sent], apart_s: float
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Packets as vertical lines; consecutive packets within `apart_s` share a stroke.

    They would coincide on the page. A file for xplot has each packet.
    """
    found: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for one in data:
        if found:
            (first, low), (_, high) = found[-1]
            if one.at_s - first < apart_s and low <= one.low <= high:
                found[-1] = ((first, low), (one.at_s, max(high, float(one.high))))
                continue
        found.append(((one.at_s, float(one.low)), (one.at_s, float(one.high))))
    return found


def _strokes(
    axes: Axes, data: Sequence[Sent], apart_s: float, factor: float, color: str, label: str
) -> None:
    if not data:
        return
    strokes = [
        [(x0, y0 / factor), (x1, y1 / factor)] for (x0, y0), (x1, y1) in lines(data, apart_s)
    ]
    drawn = LineCollection(
        strokes, colors=color, linewidths=1.3, label=label, capstyle="projecting"
    )
    axes.add_collection(drawn, autolim=True)


def _marks(axes: Axes, exchange: Exchange, marks: Sequence[Mark], factor: float) -> None:
    """Draws packets without data, at the highest position sent so far."""
    kinds = sorted({(mark.is_answer, mark.name) for mark in marks})
    usual = kinds[:KINDS_MAX]
    heights = _heights(exchange, marks)
    for index, (is_answer, name) in enumerate(usual):
        chosen = [mark for mark in marks if (mark.is_answer, mark.name) == (is_answer, name)]
        axes.plot(
            [mark.at_s for mark in chosen], [heights[mark] / factor for mark in chosen],
            linestyle="none", marker=MARKERS[index % len(MARKERS)], markersize=5.5,
            markerfacecolor="white", markeredgecolor=ACKS if is_answer else DATA,
            label=f"{name} ({'from receiver' if is_answer else 'from sender'})", zorder=4,
        )  # fmt: skip


def _heights(exchange: Exchange, marks: Sequence[Mark]) -> dict[Mark, int]:
    data = sorted(exchange.data, key=lambda one: one.at_s)
    heights, at, reached = {}, 0, 0
    for mark in sorted(marks, key=lambda one: one.at_s):
        while at < len(data) and data[at].at_s <= mark.at_s:
            reached = max(reached, data[at].high)
            at += 1
        heights[mark] = reached
    return heights


def _spans(axes: Axes, exchange: Exchange, factor: float, low_s: float, high_s: float) -> None:
    received = "received out of order" if exchange.is_tcp else "reported"
    shown = (
        (exchange.arrived, ARRIVED, received),
        (exchange.requested, REQUESTED, "requested holes"),
    )
    for spans, color, label in shown:
        strokes = [
            [(one.at_s, one.low / factor), (one.at_s, one.high / factor)]
            for one in spans
            if low_s <= one.at_s <= high_s
        ]
        if not strokes:
            continue
        # Each acknowledgment has SACK blocks; reports are few.
        width, alpha = (0.8, 0.55) if exchange.is_tcp else (3.0, 0.8)
        drawn = LineCollection(
            strokes, colors=color, linewidths=width, alpha=alpha, label=label, zorder=1.5
        )
        axes.add_collection(drawn, autolim=True)
        if spans is exchange.requested:
            # A hole of one packet would be invisible in a file of thousands.
            axes.plot(
                [x for (x, _), _ in strokes], [(a + b) / 2 for (_, a), (_, b) in strokes],
                linestyle="none", marker="_", markersize=11, markeredgewidth=3.0, color=color,
                zorder=1.5,
            )  # fmt: skip


def plot(axes: Axes, exchange: Exchange, spec: Spec) -> None:
    """Draws an exchange onto axes."""
    # Packets at time zero are beside the axis, not on it.
    low_s, high_s = spec.span or (-0.015 * exchange.end_s, exchange.end_s * 1.02)
    apart_s = (high_s - low_s) * NEAR
    unit, factor = MEASURES["bytes_str"].unit_for([exchange.high])
    shown = [one for one in exchange.data if low_s <= one.at_s <= high_s]
    for start, end in exchange.outages:
        if start < high_s and end > low_s:
            axes.axvspan(max(start, low_s), min(end, high_s), color=OUTAGE, lw=0, label="link down")
    for points, color, label in (
        (exchange.window, WINDOW, "window's end"), (exchange.acks, ACKS, "acknowledged"),
    ):  # fmt: skip
        if points:
            axes.step(
                [at for at, _ in points], [value / factor for _, value in points], where="post",
                color=color, linewidth=1.1, label=label,
            )  # fmt: skip
    _spans(axes, exchange, factor, low_s, high_s)
    plain = [one for one in shown if not one.again and not one.parity]
    _strokes(axes, plain, apart_s, factor, DATA, "data")
    _strokes(axes, [one for one in shown if one.parity], apart_s, factor, PARITY, "parity")
    again = [one for one in shown if one.again and not one.parity]
    if again:
        axes.plot(
            [one.at_s for one in again], [one.high / factor for one in again], linestyle="none",
            marker="_", markersize=5, markeredgecolor=AGAIN, markeredgewidth=1.6,
        )  # fmt: skip
    _strokes(axes, again, 0.0, factor, AGAIN, "retransmitted")
    lost = [one for one in shown if one.lost]
    if lost:
        axes.plot(
            [one.at_s for one in lost], [(one.low + one.high) / 2 / factor for one in lost],
            linestyle="none", marker="x", markersize=5 if len(lost) <= MANY else 3,
            color=LOST, label="lost", zorder=3,
        )  # fmt: skip
    marks = [mark for mark in exchange.marks if low_s <= mark.at_s <= high_s]
    _marks(axes, exchange, marks, factor)
    axes.set_xlim(low_s, high_s)
    _limit(axes, shown, factor, spec.span is not None)
    axes.set_xlabel("Time (s)")
    axes.set_ylabel(f"Position in the {'stream' if exchange.is_tcp else 'file'} ({unit})")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))


def _limit(axes: Axes, shown: Sequence[Sent], factor: float, is_part: bool) -> None:
    """Limits the height to the shown data, because windows may be far above it."""
    if not shown:
        return
    low = min(one.low for one in shown) / factor if is_part else 0.0
    high = max(one.high for one in shown) / factor
    room = 0.06 * (high - low)
    axes.set_ylim(low - room / 2, high + room)


def draw(exchange: Exchange, spec: Spec) -> Figure:
    """Draws a figure with the time-sequence graph of an exchange."""
    figure = Figure(figsize=(7.6, 4.3), layout="constrained")
    axes = figure.subplots()
    plot(axes, exchange, spec)
    title(figure, spec.title)
    handles, labels = axes.get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    figure.legend(list(entries.values()), list(entries), loc="outside right center")
    return figure
