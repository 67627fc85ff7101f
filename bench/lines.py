"""Lines of the table, and verdicts on the targets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Line:
    """One line of the table."""

    what: str
    note: str
    goodput_bps: float | None = None


def print_targets(judged: list[tuple[str, bool]]) -> None:
    """Prints for each target whether it holds."""
    for target, holds in judged:
        print(f"{'holds' if holds else 'does not hold':<14} {target}")
