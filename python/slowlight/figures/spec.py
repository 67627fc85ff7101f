"""Specification of a study's figure: the keys of a `[[figures]]` table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from slowlight.errors import UserError, unknown


@dataclass(frozen=True)
class Spec:
    """One figure; without `figure`, it is not in the paper."""

    # Kind of drawing; see `slowlight.figures.KINDS`.
    kind: str
    # Name in the paper: `8`, `5a`, `Chart 2`, `Table I`.
    figure: str = ""
    title: str = ""
    # Statement of the paper, and observation here.
    caption: str = ""
    # Edition and sheet; by default the first sheet.
    edition: str = "published"
    sheet: str | None = None
    # An axis of the sheet, or a column.
    x: str = ""
    # Columns, each in a separate panel.
    y: tuple[str, ...] = ()
    # Axis with one line or box per value.
    series: str = ""
    # Axis with one panel per value.
    panels: str = ""
    # Selected rows: one or several labels of each named axis.
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # `auto`, `log` or `linear`.
    x_scale: str = "auto"
    y_scale: str = "auto"
    # For figures of packets: scenario, changes to it, and seed.
    scenario: str = ""
    set: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    # Node of the capture; by default the sender, or the receiver for `rate`.
    at: str = ""
    # First and last second.
    span: tuple[float, float] | None = None
    # Averaging interval of rates over time, in seconds.
    bin_s: float | None = None
    # File name without extension.
    file: str = ""

    @property
    def name(self) -> str:
        """Name of its files."""
        if self.file:
            return self.file
        text = f"figure-{self.figure}" if self.figure else f"{self.kind}-{self.title}"
        kept = "".join(c if c.isalnum() or c == "-" else "-" for c in text.lower())
        return "-".join(part for part in kept.split("-") if part)

    @property
    def in_paper(self) -> str:
        """Name in the paper: `Fig. 8`, `Chart 2`; empty if it is not in the paper."""
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
        raise UserError(f"{where}: write a text or a list of texts")
    return tuple(values)


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{where}: write a number of seconds")
    return float(value)


def read(table: Mapping[str, Any], kinds: Sequence[str], where: str = "figures") -> Spec:
    """Reads a `[[figures]]` table. Raises `UserError` with a wrong key and a similar known one."""
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
                raise UserError(f'{place}: write a table like {{ per = "0" }}')
            values[key] = value
            if key == "where":
                values[key] = {k: _texts(v, f"{place}.{k}") for k, v in value.items()}
        elif key == "seed":
            if isinstance(value, bool) or not isinstance(value, int):
                raise UserError(f"{place}: write a whole number")
            values[key] = value
        elif key == "span":
            if not isinstance(value, list) or len(value) != 2:
                raise UserError(f"{place}: write two numbers of seconds like [0, 10]")
            values[key] = (_number(value[0], place), _number(value[1], place))
        elif key == "bin_s":
            values[key] = _number(value, place)
        elif not isinstance(value, str):
            raise UserError(f"{place}: write a text")
        else:
            values[key] = value
    spec = Spec(**values)
    if spec.kind not in kinds:
        raise unknown("kind", spec.kind, kinds, f"{where}.kind")
    for key, scale in (("x_scale", spec.x_scale), ("y_scale", spec.y_scale)):
        if scale not in SCALES:
            raise unknown("scale", scale, SCALES, f"{where}.{key}")
    return spec
