"""Cached single runs, because claims and figures need the same runs."""

from __future__ import annotations

import functools

from slowlight.errors import UserError
from slowlight.scenario import Run, Scenario


@functools.lru_cache(maxsize=64)
def once(world: Scenario, seed: int | None = None, at: str | None = None) -> Run:
    """Runs a scenario with its packets, and with a capture if a node is named."""
    return world.single(seed=seed, trace=True, capture_at=at)


def completed(run: Run) -> Run:
    """Returns the run. Raises `UserError` if a transfer failed, so that claims can use it."""
    for transfer in run.transfers:
        if not transfer["completed"]:
            raise UserError(f"a run with packets failed: {transfer.get('failure')}")
    return run
