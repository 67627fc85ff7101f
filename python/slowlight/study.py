"""Studies: runs in threads or on a Dask cluster.

>>> import slowlight
>>> [name for name, about in slowlight.studies()][:2]
['grc-2012', 'ltpt-2007']
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from tqdm.auto import tqdm

from slowlight import native
from slowlight.scenario import frame_of

__all__ = ["Study", "studies"]


def studies() -> list[tuple[str, str]]:
    """Returns the built-in studies: name and description."""
    return native.studies()


@dataclass(frozen=True)
class Study:
    """A study by its name or path, and its selected runs; by default all."""

    name: str
    edition: str | None = None
    sheets: tuple[str, ...] = ()
    filters: dict[str, Sequence[str]] = field(default_factory=dict)
    runs: int | None = None

    def plan(self) -> native.Plan:
        """Returns the planned runs."""
        filters = list(self.filters.items())
        return native.Plan.find(self.name, self.edition, self.sheets, filters, self.runs)

    def folder(self) -> Path:
        """Default folder of its results."""
        plan = self.plan()
        return Path("results") / f"{plan.name}-{plan.edition_name}"

    def run(
        self,
        *,
        jobs: int | None = None,
        folder: str | Path | None = None,
        progress: bool | None = None,
    ) -> dict[str, pl.DataFrame]:
        """Executes the missing runs in threads; returns the table of each sheet.

        With a `folder`, results are stored there, and another call resumes.
        """
        plan = self.plan()
        hidden = None if progress is None else not progress
        with tqdm(total=len(plan), unit="run", disable=hidden) as bar:
            kept = None if folder is None else str(folder)
            sheets = plan.run(jobs, kept, bar.update)
        return {name: frame_of(columns) for name, columns in sheets.items() if columns}

    def run_on(
        self,
        client: Any,
        folder: str | Path,
        *,
        batch: int = 16,
        progress: bool | None = None,
    ) -> dict[str, pl.DataFrame]:
        """Executes the missing runs on the workers of a Dask client; returns the same tables as
        `run`.

        Each task is `batch` runs. Completed tasks are stored in `folder` as they arrive, so losing
        the cluster costs only the tasks under way. Workers need this package, and the study's files
        unless it is built in.
        """
        from distributed import as_completed

        plan = self.plan()
        results = native.Results(str(folder))
        missing = plan.missing(results)
        batches = [missing[at : at + batch] for at in range(0, len(missing), batch)]
        hidden = None if progress is None else not progress
        with tqdm(total=len(plan), initial=len(plan) - len(missing), disable=hidden) as bar:
            # Only a few tasks wait for each worker: a large study has many.
            waiting = iter(batches)
            most = 4 * max(1, len(client.scheduler_info()["workers"]))
            futures = as_completed([_task(client, self, one) for one in _first(waiting, most)])
            for future in futures:
                for line in future.result():
                    results.add(line)
                    bar.update()
                futures.update([_task(client, self, one) for one in _first(waiting, 1)])
        del results
        return self.run(folder=folder, progress=False)


def _first(batches: Iterator[list[int]], count: int) -> list[list[int]]:
    return [batch for _, batch in zip(range(count), batches, strict=False)]


def _task(client: Any, study: Study, batch: list[int]) -> Any:
    return client.submit(_some, study, batch, pure=False)


def _some(study: Study, batch: list[int]) -> list[str]:
    """Executes runs on a worker."""
    return study.plan().some(batch)
