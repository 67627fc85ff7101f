"""Results of studies: folders that `slowlight study run` wrote, as polars tables.

from slowlight.results import find

published = find("grc-2012", ["."])["published"]
grid = published.table("grid")
print(summary(grid, ["protocol", "per"], "goodput_grc_bps"))
"""

from __future__ import annotations

import functools
import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from slowlight import native
from slowlight.errors import UserError, unknown, user_errors
from slowlight.scenario import Scenario

# Suffixes of the numeric columns of axes, which name their units.
NUMBER_SUFFIXES = ("_s", "_bps", "_bytes", "_value")


@dataclass(frozen=True)
class Results:
    """Results of one edition of a study: its TOML as it was run, manifest and tables."""

    folder: Path
    study: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Reads the results in `folder`. Raises `UserError` if it has none."""
        try:
            study = tomllib.loads((folder / "study.toml").read_text())
            manifest = json.loads((folder / "manifest.json").read_text())
        except FileNotFoundError as error:
            raise UserError(f"{folder} has no results: {error.filename} is missing") from error
        except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
            raise UserError(f"{folder}: {error}") from error
        if "edition" not in manifest or "study" not in manifest:
            raise UserError(f"{folder}/manifest.json names no study and edition")
        return cls(folder, study, manifest)

    @property
    def name(self) -> str:
        """Name of the study."""
        return str(self.manifest["study"])

    @property
    def edition(self) -> str:
        """Name of the edition."""
        return str(self.manifest["edition"])

    @property
    def sheets(self) -> list[str]:
        """Names of its sheets, in the study's order."""
        return [str(sheet["name"]) for sheet in self._sheets()]

    def _sheets(self) -> list[dict[str, Any]]:
        edition = self.study.get("editions", {}).get(self.edition, {})
        return list(edition.get("sheets", []))

    def sheet(self, name: str | None = None) -> dict[str, Any]:
        """Returns a sheet of the study; the first if none is named."""
        sheets = self._sheets()
        for sheet in sheets:
            if name is None or sheet["name"] == name:
                return sheet
        where = f"{self.name}, edition {self.edition}"
        raise unknown("sheet", name or "", self.sheets, where)

    def axes(self, sheet: str | None = None) -> dict[str, list[str]]:
        """Returns the axes of a sheet and the labels of each, in the study's order."""
        found = {}
        for axis in self.sheet(sheet).get("axes", []):
            labels = [
                str(value["label"]) if isinstance(value, dict) else str(value)
                for value in axis["values"]
            ]
            found[str(axis["name"])] = labels
        return found

    def table(self, sheet: str | None = None) -> pl.DataFrame:
        """Returns the table of a sheet, a row per transfer of a run; see docs/studies.md for its
        columns.
        """
        name = str(self.sheet(sheet)["name"])
        path = self.folder / f"{name}.parquet"
        if not path.is_file():
            run = f"slowlight study run {self.name} --edition {self.edition} --sheet {name}"
            raise UserError(f"{path} is missing; make it with `{run} --resume`")
        return _read(path)

    def cell(self, sheet: str | None, labels: Mapping[str, str]) -> Scenario:
        """Returns the scenario of a cell, with the first label of axes that are not named."""
        name = str(self.sheet(sheet)["name"])
        with user_errors():
            text, folder = native.cell(str(self.folder), self.edition, name, dict(labels))
        where = ", ".join(f"{axis} = {label}" for axis, label in labels.items())
        return Scenario(text, Path(folder), f"{self.name}, {name}, {where}")

    def scenario(self, name: str) -> Scenario:
        """Returns a scenario of the study: a file of its own, or a built-in one."""
        if not name.endswith(".toml"):
            return Scenario.find(name)
        with user_errors():
            text, folder = native.kept(str(self.folder), name)
        return Scenario(text, Path(folder), name)

    def conditions(self, sheet: str) -> dict[str, list[dict[str, list[Any]]]]:
        """Returns the links and transfers of a sheet: the values of each setting over its cells."""
        path = self.folder / f"{sheet}.conditions.json"
        if not path.is_file():
            raise UserError(f"{path} is missing: run the study again")
        text = path.read_text(encoding="utf-8")
        conditions: dict[str, list[dict[str, list[Any]]]] = json.loads(text)
        return conditions

    def metadata(self, sheet: str | None = None) -> dict[str, str]:
        """Returns the metadata of the table's file: slowlight, study, edition, sheet, paper."""
        name = str(self.sheet(sheet)["name"])
        kept = pl.read_parquet_metadata(self.folder / f"{name}.parquet")
        return {key: value for key, value in sorted(kept.items()) if key != "ARROW:schema"}

    def digests(self) -> dict[str, str]:
        """Returns SHA-256 digests of the inputs and results, by file."""
        names = ["study.toml", *(f"{sheet}.parquet" for sheet in self.sheets)]
        files = [self.folder / name for name in names]
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
            if path.is_file()
        }


@functools.lru_cache(maxsize=32)
def _read(path: Path) -> pl.DataFrame:
    return pl.read_parquet(path)


def find(name: str, folders: Iterable[Path | str]) -> dict[str, Results]:
    """Returns the results of a study by edition, in or below `folders`; the first each."""
    found: dict[str, Results] = {}
    for given in map(Path, folders):
        candidates = [given, *sorted(given.glob(f"{name}-*"))]
        candidates += sorted((given / "results").glob(f"{name}-*"))
        for folder in candidates:
            if not (folder / "manifest.json").is_file():
                continue
            results = Results.read(folder)
            # Other results of the same study may be beside them, such as the emulator's.
            is_meant = folder == given or folder.name == f"{name}-{results.edition}"
            if results.name == name and is_meant:
                found.setdefault(results.edition, results)
    return found


def is_started(name: str, folders: Iterable[Path | str]) -> bool:
    """Whether a run of a study was started in or below `folders`, and has not completed."""
    return any(
        folder.name == f"{name}-{edition}" and not (folder / "manifest.json").is_file()
        for given in map(Path, folders)
        for below in (given, given / "results")
        for folder in below.glob(f"{name}-*")
        for edition in _editions(folder)
    )


def _editions(folder: Path) -> Iterable[str]:
    """Names of the editions of the study that a folder of results was started for."""
    kept = folder / "study.toml"
    return tomllib.loads(kept.read_text()).get("editions", {}) if kept.is_file() else ()


def derived(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds columns that papers use: see docs/studies.md.

    `client_bps`: the file over the time that a program reports, or until delivery, in bit/s.
    `discounted_bps`: the file over the time until delivery minus the one-way light time, in bit/s.
    """
    if not {"file_bytes", "delivered_s", "transfer_s"} <= set(frame.columns):
        return frame
    bits, there = 8.0 * pl.col("file_bytes"), pl.col("delivered_s")
    reported = pl.coalesce("transfer_s", "delivered_s")
    light = next((name for name in ("ltt_s", "delay_s") if name in frame.columns), None)
    columns = [(bits / reported).alias("client_bps")]
    if light is not None:
        columns.append((bits / (there - pl.col(light))).alias("discounted_bps"))
    return frame.with_columns(columns)


def chosen(frame: pl.DataFrame, where: Mapping[str, str | Sequence[str]]) -> pl.DataFrame:
    """Returns the rows that have, in each named column, that text or one of those."""
    for column, wanted in where.items():
        if column not in frame.columns:
            raise unknown("column", column, frame.columns)
        values = [wanted] if isinstance(wanted, str) else list(wanted)
        # A run's folder may hold a part of the grid, so a missing value is not an error by itself,
        # but an empty result is.
        frame = frame.filter(pl.col(column).cast(pl.String).is_in(values))
    return frame


def number_column(frame: pl.DataFrame, axis: str) -> str | None:
    """Returns the column with an axis's labels as numbers, if they are quantities."""
    names = [axis + suffix for suffix in NUMBER_SUFFIXES]
    return next((name for name in names if name in frame.columns), None)


def summary(frame: pl.DataFrame, by: Sequence[str], value: str) -> pl.DataFrame:
    """Summarises a column for each of `by`: `mean`, `sem` (s / √n), `sd`, `median`, `min`, `max`
    and `n`.

    Rows without a value are only counted in `missing`; with one value `sem` is 0, because their
    spread is unknown. The unit is the column's.
    """
    if value not in frame.columns:
        raise unknown("column", value, frame.columns)
    column = pl.col(value).cast(pl.Float64)
    count = column.count()
    cells = frame.group_by(by, maintain_order=True).agg(
        column.mean().alias("mean"),
        column.std().fill_null(0.0).alias("sd"),
        column.median().alias("median"),
        column.min().alias("min"),
        column.max().alias("max"),
        count.alias("n"),
        column.null_count().alias("missing"),
    )
    return cells.with_columns((pl.col("sd") / pl.col("n").sqrt()).alias("sem"))
