"""A hook of mkdocs: links from docs/ to other files of the project lead to the repository.

In a clone, and in the repository's web view, `../scenarios/geo.toml` is a file. A site has only
docs/, so there the link leads to the repository. A link to a missing file is a warning, which fails
a strict build. A notebook is also shown as a page.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# The target of a link without a scheme, up to a blank or bracket: [text](target).
TARGET = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
# Resources that a browser loads with a page from another host.
LOADED = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)"
)
log = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Files, *, config: Any, **_: Any) -> Files:
    """The files with a page for each notebook, beside it."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            page = file.src_uri.removesuffix(".ipynb") + ".md"
            files.append(File.generated(config, page, content=told(Path(str(file.abs_src_path)))))
    return files


def told(notebook: Path) -> str:
    """Renders a notebook as a page that ends with a link to the notebook."""
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
    parts.append(f"The notebook itself: [{notebook.name}]({notebook.name}).")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Returns the page with links out of docs/ replaced by links to the repository."""
    folder = posixpath.dirname(page.file.src_uri)

    def leads_to(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, found[1]))
        if path.startswith("docs/"):
            # The page of a notebook ends with a link to the notebook itself.
            own = f"docs/{page.file.src_uri}"
            is_page = path.endswith(".ipynb") and own != path.removesuffix(".ipynb") + ".md"
            return found[1].removesuffix(".ipynb") + ".md" if is_page else found[1]
        if not (ROOT / path).exists():
            log.warning("%s: there is no %s", page.file.src_uri, path)
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{config.repo_url.rstrip('/')}/{kind}/main/{path}"

    return TARGET.sub(leads_to, markdown)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Returns the page unchanged, with a warning for each resource of another host."""
    for url in LOADED.findall(output):
        log.warning("%s: loads %s", page.file.src_uri, url)
    return output
