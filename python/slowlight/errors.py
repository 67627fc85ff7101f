"""Errors that a user can fix: a wrong key, a missing folder."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator


class UserError(ValueError):
    """Names the fault, its location, and a remedy."""


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Converts errors of the compiled module to `UserError`."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(str(error)) from None


def unknown(what: str, name: str, known: Iterable[str], where: str = "") -> UserError:
    """Returns the error for a name that is not in `known`, with the nearest of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    place = f"{where}: " if where else ""
    listed = ", ".join(names) or "none"
    return UserError(f"{place}there is no {what} {name!r}{hint} ({what}s: {listed})")
