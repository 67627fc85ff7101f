"""Map of the best series under each pair of conditions, with its lead over the next."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from slowlight.errors import UserError
from slowlight.figures import table
from slowlight.figures.spec import Spec
from slowlight.figures.table import Chosen, Labels
from slowlight.results import summary
from slowlight.style import Look, measure_of

# Lead with the full colour, and minimum share of it. Pale tiles of one series remain distinct from
# dark tiles of another.
FULL_LEAD = 0.5
MINIMUM_SHARE = 0.72
# Maximum number of tiles per row with large text.
TILES_WIDE = 6


def winners(rows: Chosen, frame: pl.DataFrame) -> pl.DataFrame:
    """For each `x` and `y`: `best`, `second`, and `lead`, the relative lead of the best mean.

    Lower times are better, and higher values of all other columns. A series with a failed run in a
    cell cannot be best there.
    """
    spec = rows.spec
    column = spec.y[1]
    less = column.endswith("_s")
    cells = summary(frame, [spec.x, spec.y[0], spec.series], column)
    cells = cells.filter(pl.col("mean").is_not_null() & (pl.col("missing") == 0))
    ordered = cells.sort("mean", descending=not less, maintain_order=True)
    found = ordered.group_by([spec.x, spec.y[0]], maintain_order=True).agg(
        pl.col(spec.series).first().alias("best"),
        pl.col(spec.series).get(1, null_on_oob=True).alias("second"),
        pl.col("mean").first().alias("value"),
        pl.col("mean").get(1, null_on_oob=True).alias("next"),
    )
    ratio = pl.col("next") / pl.col("value") if less else pl.col("value") / pl.col("next")
    return found.with_columns((ratio - 1.0).alias("lead"))


def names(looks: Mapping[str, Look]) -> dict[str, str]:
    """Text of a tile for each series: its family where that is unique."""
    first = {key: look.label.split(" ")[0] for key, look in looks.items()}
    families = list(first.values())
    return {
        key: name if families.count(name) == 1 else looks[key].label.replace(" (", "\n(")
        for key, name in first.items()
    }


def draw(frame: pl.DataFrame, spec: Spec, axes: Labels) -> Figure:
    """Draws `x` and the first of `y` as axes; the second of `y` ranks the `series`."""
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
            _tile(panel, x, y, looks[str(row["best"])], row["lead"])
            _write(panel, x, y, f"{short[str(row['best'])]}\n{_lead(row['lead'])}", len(across))
        panel.set_xticks(range(len(across)), across)
        table.turn(panel, across)
        panel.set_yticks(range(len(up)), up)
        panel.set_xlim(-0.5, len(across) - 0.5)
        panel.set_ylim(-0.5, len(up) - 0.5)
        panel.grid(visible=False)
        panel.set_xlabel(measure_of(spec.x, spec.x).label)
        panel.set_ylabel(measure_of(spec.y[0], spec.y[0]).label)
    table.title_panels(figure, panels, spec, [table.panel_title(spec, part) for part in parts])
    handles = [
        Patch(facecolor=look.color, hatch=look.hatch, edgecolor="white", linewidth=0.0)
        for key, look in looks.items()
        if key in shown
    ]
    called = [looks[key].label for key in looks if key in shown]
    note = f"Best by {measure_of(spec.y[1]).label.lower()}"
    figure.legend(
        handles, called, loc="outside right center", title=note, title_fontsize=8.0,
        alignment="left", handlelength=2.8, handleheight=1.4,
    )  # fmt: skip
    return figure


def tint(color: str, lead: float | None) -> tuple[float, float, float]:
    """Colour of a tile, paler for a smaller lead."""
    reached = 1.0 if lead is None else min(lead / FULL_LEAD, 1.0)
    share = MINIMUM_SHARE + (1.0 - MINIMUM_SHARE) * reached
    red, green, blue = (1.0 - share * (1.0 - part) for part in to_rgb(color))
    return red, green, blue


def _tile(axes: Axes, x: int, y: int, look: Look, lead: float | None) -> None:
    axes.add_patch(
        Rectangle(
            (x - 0.49, y - 0.49), 0.98, 0.98, facecolor=tint(look.color, lead), hatch=look.hatch,
            edgecolor="white", linewidth=0.0,
        )
    )  # fmt: skip


def _write(axes: Axes, x: int, y: int, text: str, across: int) -> None:
    """Writes text on a white background, readable on any colour and hatching."""
    axes.text(
        x, y, text, ha="center", va="center", fontsize=6.5 if across <= TILES_WIDE else 5.6,
        color="black", linespacing=1.25,
        bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "alpha": 0.82, "linewidth": 0},
    )  # fmt: skip


def _lead(lead: float | None) -> str:
    if lead is None:
        return "alone"
    if lead < 0.005:
        return "< 1 %"
    return f"{100 * lead:+.0f} %" if lead < 9.995 else f"{lead + 1:.0f} times"
