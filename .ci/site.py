"""A hook of mkdocs: links of docs/ that lead to other files of the project lead to the repository.

In a clone, and where the repository is shown, `../scenarios/geo.toml` is a file. A site has only
what is in docs/, so there the link leads to the repository; one to a file that does not exist is a
warning, which fails a strict build.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# The target of a link, as far as a blank or what closes it: [text](target), without a scheme.
TARGET = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
log = logging.getLogger("mkdocs.hooks.site")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """The page with links out of docs/ made links to the repository."""
    folder = posixpath.dirname(page.file.src_uri)

    def leads_to(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, found[1]))
        if path.startswith("docs/"):
            return found[1]
        if not (ROOT / path).exists():
            log.warning("%s: there is no %s", page.file.src_uri, path)
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{config.repo_url.rstrip('/')}/{kind}/main/{path}"

    return TARGET.sub(leads_to, markdown)
