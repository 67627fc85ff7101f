"""What a figure of a study shows: the keys of a `[[figures]]` table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from slowlight.errors import UserError, unknown


@dataclass(frozen=True)
class Spec:
    """One figure. Without a study's figure number it is one that the paper does not have."""

    # What it is drawn as; see `slowlight.figures.KINDS`.
    kind: str
    # The paper's name of it: `8`, `5a`, `Chart 2`, `Table I`.
    figure: str = ""
    title: str = ""
    # What the paper shows there, and what to see.
    caption: str = ""
    # Of which edition and sheet; the first of the study if not named.
    edition: str = "published"
    sheet: str | None = None
    # An axis of the sheet, or a column.
    x: str = ""
    # Columns, each in a panel of its own.
    y: tuple[str, ...] = ()
    # The axis that tells lines or boxes apart.
    series: str = ""
    # The axis that has a panel for each of its values.
    panels: str = ""
    # Which rows: a label or several of each axis that is named.
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # `auto`, `log` or `linear`.
    x_scale: str = "auto"
    y_scale: str = "auto"
    # Of figures from packets: the scenario, changes to it, the seed, and of whom.
    scenario: str = ""
    set: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    # The node at which packets are seen; the sender if none is named, of `rate` the receiver.
    at: str = ""
    # From and to which second.
    span: tuple[float, float] | None = None
    # Seconds over which traces over time are averaged.
    bin_s: float | None = None
    # Name of the file, without its ending.
    file: str = ""

    @property
    def name(self) -> str:
        """The name of its files."""
        if self.file:
            return self.file
        text = f"figure-{self.figure}" if self.figure else f"{self.kind}-{self.title}"
        kept = "".join(c if c.isalnum() or c == "-" else "-" for c in text.lower())
        return "-".join(part for part in kept.split("-") if part)

    @property
    def in_paper(self) -> str:
        """The paper's name of it: `Fig. 8`, `Chart 2`; empty where the paper does not have it."""
        is_number = re.fullmatch(r"[A-Z]?\d+[a-z]?", self.figure)
        return f"Fig. {self.figure}" if is_number else self.figure

    @property
    def heading(self) -> str:
        """Number and title in one line."""
        if not self.figure:
            return self.title
        number = self.figure if not self.figure[:1].isdigit() else f"Figure {self.figure}"
        return f"{number}. {self.title}" if self.title else number


_KEYS = tuple(part.name for part in fields(Spec))
SCALES = ("auto", "log", "linear")


def _texts(value: Any, where: str) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(one, str) for one in values):
        raise UserError(f"{where}: a text, or a list of texts, is wanted")
    return tuple(values)


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{where}: a number of seconds is wanted")
    return float(value)


def read(table: Mapping[str, Any], kinds: Sequence[str], where: str = "figures") -> Spec:
    """Reads a `[[figures]]` table. `UserError` names a wrong key and the nearest right one."""
    for key in table:
        if key not in _KEYS:
            raise unknown("key", key, _KEYS, where)
    if "kind" not in table:
        raise UserError(f"{where}: kind is missing (kinds: {', '.join(kinds)})")
    values: dict[str, Any] = {}
    for key, value in table.items():
        place = f"{where}.{key}"
        if key == "y":
            values[key] = _texts(value, place)
        elif key in ("where", "set"):
            if not isinstance(value, dict):
                raise UserError(f'{place}: a table is wanted, as in {{ per = "0" }}')
            values[key] = value
            if key == "where":
                values[key] = {k: _texts(v, f"{place}.{k}") for k, v in value.items()}
        elif key == "seed":
            if isinstance(value, bool) or not isinstance(value, int):
                raise UserError(f"{place}: a whole number is wanted")
            values[key] = value
        elif key == "span":
            if not isinstance(value, list) or len(value) != 2:
                raise UserError(f"{place}: two numbers of seconds are wanted, as in [0, 10]")
            values[key] = (_number(value[0], place), _number(value[1], place))
        elif key == "bin_s":
            values[key] = _number(value, place)
        elif not isinstance(value, str):
            raise UserError(f"{place}: a text is wanted")
        else:
            values[key] = value
    spec = Spec(**values)
    if spec.kind not in kinds:
        raise unknown("kind", spec.kind, kinds, f"{where}.kind")
    for key, scale in (("x_scale", spec.x_scale), ("y_scale", spec.y_scale)):
        if scale not in SCALES:
            raise unknown("scale", scale, SCALES, f"{where}.{key}")
    return spec
