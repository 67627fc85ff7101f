"""Evidence for claims: results of studies, estimates, verdicts."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from slowlight.results import Results, chosen, find


class Verdict(enum.Enum):
    """Verdict on a claim."""

    HOLDS = "holds"
    DIFFERS = "differs"
    CANNOT = "cannot be checked"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Finding:
    """One part of a claim: the paper's statement, the finding, and the verdict."""

    # `a`, `b` and so on; empty if a claim has only one part.
    part: str
    what: str
    paper: str
    here: str
    verdict: Verdict
    # Reason for a difference, or why it cannot be checked.
    why: str = ""


class NotRunError(Exception):
    """Error for missing results of a claim; its text is the command that creates them."""


def found(part: str, what: str, paper: str, here: str, *, holds: bool, why: str = "") -> Finding:
    """Returns a part of a claim that holds or differs; `why` is shown if it differs."""
    verdict = Verdict.HOLDS if holds else Verdict.DIFFERS
    return Finding(part, what, paper, here, verdict, "" if holds else why)


def cannot(part: str, what: str, paper: str, why: str, here: str = "—") -> Finding:
    """Returns a part that these results cannot decide."""
    return Finding(part, what, paper, here, Verdict.CANNOT, why)


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error, in the unit of its samples."""

    mean: float
    sem: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Estimate:
        """Estimates the mean of samples; a single one has the error 0."""
        count = len(samples)
        mean = math.fsum(samples) / count
        if count < 2:
            return cls(mean, 0.0)
        variance = math.fsum((sample - mean) ** 2 for sample in samples) / (count - 1)
        return cls(mean, math.sqrt(variance / count))

    @classmethod
    def mean_of(cls, parts: Sequence[Estimate]) -> Estimate:
        """Returns the mean of several independent estimates."""
        count = len(parts)
        mean = math.fsum(part.mean for part in parts) / count
        return cls(mean, math.sqrt(math.fsum(part.sem**2 for part in parts)) / count)

    def more_than(self, base: Estimate) -> Estimate:
        """Returns the increase over `base` in percent."""
        ratio = self.mean / base.mean
        error = math.hypot(self.sem / self.mean, base.sem / base.mean)
        return Estimate(100 * (ratio - 1), 100 * ratio * error)

    def percent(self) -> str:
        """A change in percent, as text."""
        return f"{self.mean:+.1f} ± {self.sem:.1f} %"

    def is_near(self, expected: float) -> bool:
        """Whether it has the sign of a paper's value, and the value within a third."""
        return abs(self.mean - expected) <= abs(expected) / 3


def near(value: float, expected: float, share: float) -> bool:
    """Whether a value equals the expected one within this share of it."""
    return abs(value - expected) <= share * abs(expected)


def joined(values: Iterable[float], form: str = ".0f") -> str:
    """Numbers as text, separated by semicolons."""
    return "; ".join(format(value, form) for value in values)


def rising(values: Sequence[float]) -> bool:
    """Whether each is greater than the previous one."""
    return all(one < two for one, two in itertools.pairwise(values))


def falling(values: Sequence[float]) -> bool:
    """Whether none is greater than the previous one."""
    return all(one >= two for one, two in itertools.pairwise(values))


@dataclass
class Evidence:
    """Available results. Each study is searched once."""

    folders: list[Path]
    _found: dict[str, dict[str, Results]] = field(default_factory=dict)
    _cells: dict[tuple[str, str], dict[tuple[str, ...], pl.DataFrame]] = field(default_factory=dict)

    def results(self, study: str, edition: str = "published") -> Results:
        """Results of a study. Raises `NotRunError` if there are none."""
        if study not in self._found:
            self._found[study] = find(study, self.folders)
        results = self._found[study].get(edition)
        if results is None:
            raise NotRunError(f"slowlight study run {study} --edition {edition}")
        return results

    def sheet(self, study: str, sheet: str, edition: str = "published") -> pl.DataFrame:
        """Table of a sheet. Raises `NotRunError` if it is missing."""
        results = self.results(study, edition)
        if sheet not in results.sheets or not (results.folder / f"{sheet}.parquet").is_file():
            raise NotRunError(f"slowlight study run {study} --edition {edition} --again")
        return results.table(sheet)

    def rows(self, study: str, sheet: str, **labels: str) -> pl.DataFrame:
        """Rows of one or several cells. Raises `NotRunError` if there are none."""
        axes = list(self.results(study).axes(sheet))
        if set(labels) == set(axes):
            # Claims look up complete cells by the thousand.
            found = self._by_cell(study, sheet, axes).get(tuple(labels[axis] for axis in axes))
            rows = pl.DataFrame() if found is None else found
        else:
            rows = chosen(self.sheet(study, sheet), labels)
        if rows.is_empty():
            raise NotRunError(f"slowlight study run {study} --edition published --resume")
        return rows

    def _by_cell(
        self, study: str, sheet: str, axes: list[str]
    ) -> dict[tuple[str, ...], pl.DataFrame]:
        if (study, sheet) not in self._cells:
            parts = self.sheet(study, sheet).partition_by(axes, as_dict=True)
            self._cells[study, sheet] = {tuple(map(str, key)): part for key, part in parts.items()}
        return self._cells[study, sheet]

    def samples(self, study: str, sheet: str, column: str, **labels: str) -> list[float]:
        """Values of a cell's runs, without missing ones."""
        rows = self.rows(study, sheet, **labels)
        return [float(value) for value in rows[column].drop_nulls().to_list()]

    def estimate(self, study: str, sheet: str, column: str, **labels: str) -> Estimate:
        """Mean and standard error of a cell; infinite if no run has a value."""
        samples = self.samples(study, sheet, column, **labels)
        return Estimate.of(samples) if samples else Estimate(math.inf, 0.0)

    def mean(self, study: str, sheet: str, column: str, **labels: str) -> float:
        """Mean of a cell."""
        return self.estimate(study, sheet, column, **labels).mean


Check = Callable[[Evidence], list[Finding]]


@dataclass(frozen=True)
class Claim:
    """A claim of a paper and its check."""

    id: str
    check: Check

    @property
    def bounds(self) -> str:
        """Condition under which it holds, from the check's docstring."""
        return " ".join((self.check.__doc__ or "").split())


class Paper:
    """Claims of a paper, in its order."""

    def __init__(self, name: str, study: str) -> None:
        self.name = name
        self.study = study
        self.claims: dict[str, Claim] = {}

    def claim(self, claim_id: str) -> Callable[[Check], Check]:
        """Registers a function as the check of a claim."""

        def registered(check: Check) -> Check:
            if claim_id in self.claims:
                raise ValueError(f"{claim_id} is checked twice")
            self.claims[claim_id] = Claim(claim_id, check)
            return check

        return registered
