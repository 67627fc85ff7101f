"""The compiled module, imported on first use: reports of results need only Python libraries.

from slowlight import native

text = native.scenario("grc")
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from slowlight.errors import UserError


def is_compiled() -> bool:
    """Whether the compiled module is there."""
    try:
        _compiled()
    except UserError:
        return False
    return True


def _compiled() -> ModuleType:
    try:
        return import_module("slowlight._native")
    except ImportError as error:
        raise UserError(
            f"this needs the compiled module ({error}); build it with `make python` in a clone"
        ) from error


if TYPE_CHECKING:
    from slowlight._native import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        # The import system looks for optional attributes such as `__path__`.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_compiled(), name)
