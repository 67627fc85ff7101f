"""slowlight: transport over links where light is slow.

`Scenario` is a simulated network, `Sweep` a grid of scenarios, `Study` a named grid. Their results
are polars data frames. `slowlight.node` is a client of a bundle node and needs only Python, so
names that need the compiled module are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slowlight._native import decode, version
    from slowlight.packets import read_capture
    from slowlight.scenario import Run, Scenario, Sweep
    from slowlight.study import Study, studies

__all__ = ["Run", "Scenario", "Study", "Sweep", "decode", "read_capture", "studies", "version"]

_PLACES = {
    "Run": "scenario",
    "Scenario": "scenario",
    "Study": "study",
    "Sweep": "scenario",
    "decode": "native",
    "read_capture": "packets",
    "studies": "study",
    "version": "native",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module 'slowlight' has no attribute {name!r}")
    return getattr(import_module(f"slowlight.{_PLACES[name]}"), name)
