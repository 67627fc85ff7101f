"""The map of the best: which of several is best under each pair of conditions, and by how much."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from slowlight.errors import UserError
from slowlight.figures import table
from slowlight.figures.spec import Spec
from slowlight.figures.table import Chosen, Labels
from slowlight.results import summary
from slowlight.style import Look, measure_of

# A lead of this much has the full colour; no lead has a third of it.
FULL_LEAD = 0.5


def winners(rows: Chosen, frame: pl.DataFrame) -> pl.DataFrame:
    """For each `x` and `y`: `best`, `second`, and `lead`, by how much the mean of best is better.

    Times are better where less, everything else where more. Cells in which a run of a series
    failed are no place for it to be best.
    """
    spec = rows.spec
    column = spec.y[1]
    less = column.endswith("_s")
    told = summary(frame, [spec.x, spec.y[0], spec.series], column)
    told = told.filter(pl.col("mean").is_not_null() & (pl.col("missing") == 0))
    ordered = told.sort("mean", descending=not less, maintain_order=True)
    found = ordered.group_by([spec.x, spec.y[0]], maintain_order=True).agg(
        pl.col(spec.series).first().alias("best"),
        pl.col(spec.series).get(1, null_on_oob=True).alias("second"),
        pl.col("mean").first().alias("value"),
        pl.col("mean").get(1, null_on_oob=True).alias("next"),
    )
    ratio = pl.col("next") / pl.col("value") if less else pl.col("value") / pl.col("next")
    return found.with_columns((ratio - 1.0).alias("lead"))


def names(looks: Mapping[str, Look]) -> dict[str, str]:
    """What is written into a tile: the family where that tells the series apart."""
    first = {key: look.label.split(" ")[0] for key, look in looks.items()}
    told = list(first.values())
    return {
        key: name if told.count(name) == 1 else looks[key].label.replace(" (", "\n(")
        for key, name in first.items()
    }


def draw(frame: pl.DataFrame, spec: Spec, axes: Labels) -> Figure:
    """`x` and the first of `y` are axes, the second of `y` is what decides among `series`."""
    if len(spec.y) != 2 or not spec.x or not spec.series:
        raise UserError(
            'figures: kind "best" needs x, y and series: x = "per", '
            'y = ["delay", "goodput_bps"], series = "protocol"'
        )
    rows = table.choose(frame, spec, axes)
    looks = rows.looks(spec.series)
    short = names(looks)
    across, up = rows.labels(spec.x), rows.labels(spec.y[0])
    parts = rows.labels(spec.panels) if spec.panels else [""]
    figure, panels = table.grid(len(parts))
    shown: dict[str, None] = {}
    for panel, part in zip(panels, parts, strict=True):
        found = winners(rows, rows.of(spec.panels, part) if part else rows.frame)
        for row in found.iter_rows(named=True):
            x, y = across.index(str(row[spec.x])), up.index(str(row[spec.y[0]]))
            shown[str(row["best"])] = None
            lead = 1.0 if row["lead"] is None else min(row["lead"] / FULL_LEAD, 1.0)
            share = 0.25 + 0.55 * lead
            red, green, blue = (1.0 - share * (1.0 - part) for part in to_rgb(
                looks[str(row["best"])].color))  # fmt: skip
            panel.add_patch(_tile(x, y, (red, green, blue)))
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
            panel.text(
                x, y, f"{short[str(row['best'])]}\n{_lead(row['lead'])}", ha="center",
                va="center", fontsize=6.5, color="white" if dark else "black",
            )  # fmt: skip
        panel.set_xticks(range(len(across)), across)
        panel.set_yticks(range(len(up)), up)
        panel.set_xlim(-0.5, len(across) - 0.5)
        panel.set_ylim(-0.5, len(up) - 0.5)
        panel.grid(visible=False)
        panel.set_xlabel(measure_of(spec.x, spec.x).label)
        panel.set_ylabel(measure_of(spec.y[0], spec.y[0]).label)
    table.title_panels(figure, panels, spec, [table.panel_title(spec, part) for part in parts])
    handles = [Patch(facecolor=looks[key].color) for key in looks if key in shown]
    called = [looks[key].label for key in looks if key in shown]
    note = f"Best by {measure_of(spec.y[1]).label.lower()}"
    figure.legend(handles, called, loc="outside right center", title=note, title_fontsize=8.0)
    return figure


def _tile(x: int, y: int, color: tuple[float, float, float]) -> Rectangle:
    return Rectangle((x - 0.49, y - 0.49), 0.98, 0.98, facecolor=color, edgecolor="none")


def _lead(lead: float | None) -> str:
    if lead is None:
        return "alone"
    if lead < 0.005:
        return "< 1 %"
    return f"{100 * lead:+.0f} %" if lead < 9.995 else f"{lead + 1:.0f} times"
