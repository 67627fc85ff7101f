"""Scenarios as objects, and grids of scenarios.

>>> import slowlight
>>> world = slowlight.Scenario.between("geo", protocol="cfdp", size="100 kB")
>>> sweep = world.vary("links.*.per", ["0", "1e-2"], name="per").seeds(2)
>>> frame = sweep.run()
>>> frame.select("per", "run", "completed").rows()
[('0', 0, True), ('0', 1, True), ('1e-2', 0, True), ('1e-2', 1, True)]

Times in results are in seconds, rates in bit/s, sizes in bytes. `docs/metrics.md` and
`docs/studies.md` describe the columns.
"""

from __future__ import annotations

import io
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import polars as pl

from slowlight import native
from slowlight.errors import user_errors

__all__ = ["Run", "Scenario", "Sweep", "frame_of"]

Value: TypeAlias = str | int | float | bool | Mapping[str, Any] | Sequence[Any]


@dataclass(frozen=True)
class Run:
    """Result of one run of a scenario.

    `metrics` is the output of `slowlight sim --json`. `trace` has a row for each packet of each
    link, in the order of sending, and `capture` is a pcapng of the packets at one node. Both are
    empty if not requested.
    """

    metrics: dict[str, Any]
    trace: pl.DataFrame
    capture: bytes = b""

    @property
    def transfers(self) -> list[dict[str, Any]]:
        """Returns the metrics of each transfer."""
        transfers: list[dict[str, Any]] = self.metrics["transfers"]
        return transfers


# Columns of a trace: times in seconds, lengths in bytes with the IP header. `offset` is the
# packet's position in the file (CFDP, Saratoga, LTP: bytes; TCP: its sequence number; NORM: 65,536
# times the block plus the symbol in it); `fate` is the packet's fate.
TRACE = {
    "sent_s": pl.Float64,
    "at_s": pl.Float64,
    "from": pl.String,
    "to": pl.String,
    "ip_bytes": pl.Int64,
    "kind": pl.String,
    "offset": pl.Int64,
    "fate": pl.String,
}
DELIVERED = "delivered"


@dataclass(frozen=True)
class Scenario:
    """A scenario: its TOML, and the folder of the files that it names."""

    text: str
    folder: Path = field(default_factory=Path)
    origin: str = "scenario"

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads the scenario in this file."""
        path = Path(path)
        return cls(path.read_text(encoding="utf-8"), path.parent, str(path))

    @classmethod
    def find(cls, name: str) -> Self:
        """Returns a built-in scenario such as `grc`, or a file if the name ends with `.toml`."""
        if name.endswith(".toml"):
            return cls.read(name)
        with user_errors():
            return cls(native.scenario(name), origin=name)

    @classmethod
    def between(
        cls,
        link: str,
        *,
        protocol: str = "cfdp",
        size: str = "10 MB",
        back: str | None = None,
        seed: int = 1,
    ) -> Self:
        """Returns a scenario with a file from one host to another over a named link, the same both
        ways.

        `link` and `back` are names of links with one hop, as `slowlight links` lists them.
        """
        text = f"seed = {seed}\n"
        for source, target, name in (
            ("sender", "receiver", link),
            ("receiver", "sender", back or link),
        ):
            text += f'[[links]]\nfrom = "{source}"\nto = "{target}"\nlink = {json.dumps(name)}\n'
        text += '[[transfers]]\nfrom = "sender"\nto = "receiver"\n'
        text += f"protocol = {json.dumps(protocol)}\nsize = {json.dumps(size)}\n"
        return cls(text, origin=f"a file over {link}")

    def check(self) -> None:
        """Raises `ValueError` with location and remedy if the scenario contradicts itself."""
        self.resolved()

    def resolved(self) -> str:
        """Returns the scenario with all defaults, as TOML."""
        with user_errors():
            return native.resolve(self.text, self.origin, str(self.folder))

    def changed(self, changes: Mapping[str, Any], without: Iterable[str] = ()) -> Self:
        """Returns the scenario with keys set, like `links.*.per`, after others were removed.

        >>> import slowlight
        >>> world = slowlight.Scenario.find("grc").changed({"links.*.delay": "1 s"})
        >>> [link["delay"] for link in world.table()["links"]]
        ['1 s', '1 s']
        """
        with user_errors():
            text = native.changed(self.text, self.origin, json.dumps(changes), list(without))
        return replace(self, text=text)

    def table(self) -> dict[str, Any]:
        """Returns the scenario as plain values."""
        return tomllib.loads(self.text)

    def single(
        self, *, seed: int | None = None, trace: bool = False, capture_at: str | None = None
    ) -> Run:
        """Runs this scenario once, by default with its own seed.

        With `trace` the result has all packets, with `capture_at` the packets at this node.
        """
        world = self if seed is None else self.changed({"seed": seed})
        with user_errors():
            metrics, lines, capture = native.single(
                world.text, world.origin, str(world.folder), trace, capture_at
            )
        frame = pl.DataFrame(schema=TRACE)
        if trace:
            frame = pl.read_csv(io.BytesIO(lines), separator="\t", schema=TRACE, quote_char=None)
        return Run(json.loads(metrics), frame, capture)

    def vary(self, keys: str | Sequence[str], values: Iterable[Value], name: str = "") -> Sweep:
        """Returns a grid with one axis; see `Sweep.vary`."""
        return Sweep(self).vary(keys, values, name)

    def seeds(self, count: int, first: int = 1) -> Sweep:
        """Returns a grid of this scenario with several seeds."""
        return Sweep(self).seeds(count, first)


@dataclass(frozen=True)
class Axis:
    """A parameter that varies."""

    name: str
    keys: tuple[str, ...]
    values: tuple[Value, ...]

    def table(self) -> dict[str, Any]:
        return {"name": self.name, "keys": list(self.keys), "values": list(self.values)}


@dataclass(frozen=True)
class Sweep:
    """A grid of scenarios; each cell runs with the same seeds."""

    base: Scenario
    axes: tuple[Axis, ...] = ()
    count: int = 1
    first: int = 1

    def vary(self, keys: str | Sequence[str], values: Iterable[Value], name: str = "") -> Sweep:
        """Adds an axis: keys of the scenario, like `links.*.delay`, and their values.

        A value that is a mapping has a `label`, and `value`, `set` or `unset` as in a study's file.
        The axis is a column of the results, named by the last part of its first key if no `name` is
        given.
        """
        keys = (keys,) if isinstance(keys, str) else tuple(keys)
        chosen = name or re.sub(r"[^A-Za-z0-9_-]", "-", keys[0].rsplit(".", 1)[-1])
        return replace(self, axes=(*self.axes, Axis(chosen, keys, tuple(values))))

    def seeds(self, count: int, first: int = 1) -> Sweep:
        """Runs each cell with `count` seeds, from `first` on."""
        return replace(self, count=count, first=first)

    def study(self) -> str:
        """Returns the grid as a study, in TOML."""
        sheet = {
            "name": SHEET,
            "world": WORLD,
            "runs": self.count,
            "seed": self.first,
            "axes": [axis.table() for axis in self.axes],
        }
        edition = {"sheets": [sheet]}
        study = {"about": self.base.origin, "editions": {"swept": edition}}
        return "\n".join(f"{key} = {inline_toml(value)}" for key, value in study.items()) + "\n"

    def plan(self) -> native.Plan:
        """Returns the planned runs."""
        worlds = {WORLD: self.base.text}
        return native.Plan.given(self.study(), "sweep", worlds, str(self.base.folder))

    def run(
        self,
        *,
        jobs: int | None = None,
        folder: str | Path | None = None,
        progress: bool | None = None,
    ) -> pl.DataFrame:
        """Executes the missing runs; returns a row per transfer of each run, in the grid's order.

        `jobs` is the number of threads (default: one per core); results do not depend on it. With a
        `folder`, results are stored there run by run, and another call resumes. `progress` shows a
        progress bar; by default on a terminal or in a notebook.
        """
        # Reports import this module, and show no progress.
        from tqdm.auto import tqdm

        plan = self.plan()
        hidden = None if progress is None else not progress
        with tqdm(total=len(plan), unit="run", disable=hidden) as bar:
            kept = None if folder is None else str(folder)
            return frame_of(plan.run(jobs, kept, bar.update)[SHEET])


SHEET = "sweep"
WORLD = "base.toml"

# Columns of counts, whatever their values.
COUNTS = frozenset(
    (
        *("cell", "run", "seed", "transfer", "file_bytes", "packets_str", "packets_rts"),
        *("bytes_str", "bytes_rts", "link_bytes", "repairs_str", "nacks_rts", "packets_lost"),
        "events",
    )
)


def frame_of(columns: Mapping[str, native.Column]) -> pl.DataFrame:
    """Converts the compiled module's columns to a data frame."""
    series = []
    for name, values in columns.items():
        kind: type[pl.DataType] | None = pl.UInt64 if name in COUNTS else None
        if kind is None and all(value is None for value in values):
            kind = pl.String if name == "failure" else pl.Float64
        series.append(pl.Series(name, values, dtype=kind))
    return pl.DataFrame(series)


def inline_toml(value: Any) -> str:
    """Returns a value as inline TOML. JSON writes strings and numbers the same way."""
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(str(key))} = {inline_toml(inner)}" for key, inner in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, str | bool | int | float):
        return json.dumps(value)
    return "[" + ", ".join(inline_toml(inner) for inner in value) + "]"
