"""Files of a checkout of slowlight: built-in studies and the claims of papers."""

from __future__ import annotations

from pathlib import Path


def file(name: str) -> Path | None:
    """Path of a file in the current folder or in this package's checkout; `None` without one."""
    places = [Path(name), Path(__file__).resolve().parents[2] / name]
    return next((place for place in places if place.is_file()), None)
