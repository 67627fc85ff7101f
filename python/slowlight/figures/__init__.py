"""Figures of studies.

from slowlight.figures import draw, read, save

spec = read({"kind": "lines", "x": "per", "y": "goodput_bps", "series": "protocol"})
save(draw(spec, published), Path("figures"), spec.name)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from slowlight import style, xpl
from slowlight.errors import UserError
from slowlight.exchange import Exchange
from slowlight.figures import best, boxes, distribution, lines, over_time, sequence, ticks
from slowlight.figures import spec as specs
from slowlight.figures.spec import Spec
from slowlight.figures.table import Labels
from slowlight.results import Results, derived
from slowlight.scenario import Scenario
from slowlight.watching import watch

Drawer = Callable[[pl.DataFrame, Spec, Labels], Figure]

# Kinds of figures from a sheet's table.
TABLES: dict[str, Drawer] = {
    "lines": lines.draw,
    "box": boxes.draw_boxes,
    "bars": boxes.draw_bars,
    "cdf": distribution.draw,
    "best": best.draw,
}
# Kinds of figures from the packets of a single run.
PACKETS = ("sequence", "rate")
KINDS = (*TABLES, *PACKETS)
ENDINGS = ("svg", "pdf", "png")
# Format of programs like xplot, for time-sequence graphs only.
XPLOT = "xpl"
WRITTEN = (*ENDINGS, XPLOT)


def read(table: Mapping[str, Any], where: str = "figures") -> Spec:
    """Reads a `[[figures]]` table."""
    return specs.read(table, KINDS, where)


def of_study(study: Mapping[str, Any]) -> list[Spec]:
    """All figures of a study, in its order."""
    tables: Iterable[Mapping[str, Any]] = study.get("figures", [])
    return [read(table, f"figures.{index}") for index, table in enumerate(tables)]


def draw(spec: Spec, results: Results | None = None) -> Figure:
    """Draws a figure of a study from its results; packets of a scenario need no results."""
    if spec.kind in PACKETS:
        return of_packets(spec, watched(spec, results))
    if results is None:
        raise UserError(f"figures: kind {spec.kind!r} needs results of a study")
    table, axes = derived(results.table(spec.sheet)), results.axes(spec.sheet)
    with style.applied():
        figure = TABLES[spec.kind](table, spec, axes)
        ticks.part(figure)
    return figure


def watched(spec: Spec, results: Results | None) -> Exchange:
    """Runs the scenario, or the cell of a sheet, of a figure of packets."""
    if spec.scenario:
        find = Scenario.find if results is None else results.scenario
        world = find(spec.scenario)
    elif results is not None:
        many = [axis for axis, labels in spec.where.items() if len(labels) != 1]
        if many:
            raise UserError(f"figures.where.{many[0]}: a single run needs exactly one value")
        labels = {axis: labels[0] for axis, labels in spec.where.items()}
        world = results.cell(spec.sheet, labels)
    else:
        raise UserError("figures.scenario: a single run needs a scenario, or a sheet's cell")
    world = world.changed(spec.set)
    end = "to" if spec.kind == "rate" else "from"
    return watch(world, spec.at or str(world.table()["transfers"][0][end]), spec.seed)


def of_packets(spec: Spec, exchange: Exchange) -> Figure:
    """Draws a figure of a single run."""
    with style.applied():
        drawer = sequence.draw if spec.kind == "sequence" else over_time.draw
        figure = drawer(exchange, spec)
        ticks.part(figure)
    return figure


def save(figure: Figure, folder: Path, name: str, endings: Iterable[str] = ENDINGS) -> list[Path]:
    """Writes a figure as SVG, PDF and PNG; equal figures give equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with style.applied():
        for ending in endings:
            path = folder / f"{name}.{ending}"
            figure.savefig(path, format=ending, metadata=METADATA.get(ending))
            written.append(path)
    return written


def write(
    spec: Spec, results: Results | None, folder: Path, endings: Sequence[str] = WRITTEN
) -> list[Path]:
    """Draws a figure of a study and writes it in these formats (xplot: sequence graphs only)."""
    drawn = [ending for ending in endings if ending != XPLOT]
    if spec.kind != "sequence":
        return save(draw(spec, results), folder, spec.name, drawn)
    exchange = watched(spec, results)
    written = save(of_packets(spec, exchange), folder, spec.name, drawn)
    if XPLOT in endings:
        path = folder / f"{spec.name}.{XPLOT}"
        path.write_text(xpl.text(exchange, spec.heading))
        written.append(path)
    return written


# Without a date, so that equal results give equal files.
METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
    "png": {"Software": None},
}
