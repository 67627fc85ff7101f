"""Throughput and goodput over time, from the packets at a receiver."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from slowlight.exchange import Exchange, new_bytes
from slowlight.figures.spec import Spec
from slowlight.figures.table import tick, title
from slowlight.style import MEASURES, OUTAGE

BINS = 60


def rates(exchange: Exchange, bin_s: float) -> tuple[list[float], list[float], list[float]]:
    """Middles of the bins in seconds, and throughput (with IP headers) and goodput in bit/s."""
    count = int(exchange.end_s / bin_s) + 1
    all_bits, new_bits = [0.0] * count, [0.0] * count
    for one in exchange.data:
        all_bits[int(one.at_s / bin_s)] += 8.0 * one.ip_bytes
    for at_s, fresh in new_bytes(exchange.data):
        new_bits[int(at_s / bin_s)] += 8.0 * fresh
    middles = [(index + 0.5) * bin_s for index in range(count)]
    return middles, [bits / bin_s for bits in all_bits], [bits / bin_s for bits in new_bits]


def draw(exchange: Exchange, spec: Spec) -> Figure:
    """Draws throughput and goodput of each bin."""
    bin_s = spec.bin_s or exchange.end_s / BINS
    middles, throughput, goodput = rates(exchange, bin_s)
    unit, factor = MEASURES["goodput_bps"].unit_for(throughput)
    figure = Figure(figsize=(7.0, 3.6), layout="constrained")
    axes = figure.subplots()
    for index, (start, end) in enumerate(exchange.outages):
        axes.axvspan(start, end, color=OUTAGE, lw=0, label="" if index else "link down")
    for values, color, style, label in (
        (throughput, "#E69F00", "--", "throughput: data with IP headers"),
        (goodput, "#0072B2", "-", "goodput: new bytes"),
    ):
        axes.step(
            middles, [value / factor for value in values], where="mid", color=color,
            linestyle=style, label=label,
        )  # fmt: skip
    low_s, high_s = spec.span or (0.0, exchange.end_s)
    axes.set_xlim(low_s, high_s)
    axes.set_ylim(0.0, 1.08 * max(throughput) / factor)
    axes.set_xlabel("Time (s)")
    axes.set_ylabel(f"Rate ({unit}, mean of {tick(round(bin_s, 3))} s)")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    title(figure, spec.title)
    figure.legend(loc="outside lower center", ncols=3)
    return figure
