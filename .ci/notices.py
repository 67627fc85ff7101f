"""Prints the licences of the crates that the program contains: .ci/notices.py TARGET.

Most licences require their text beside a binary. A text that several crates share is printed once.
A crate without a file of a licence is named with its SPDX expression.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

LICENCE = re.compile(r"(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)


def contained(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Packages from registries that the program is linked with, in the order of their names."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [id for id, package in packages.items() if package["name"] == "slowlight"]
    found = set(waiting)
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_linked and dependency["pkg"] not in found:
                found.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    linked = (packages[id] for id in found if packages[id]["source"] is not None)
    return sorted(linked, key=lambda package: (package["name"], package["version"]))


def texts(package: dict[str, Any]) -> list[str]:
    """Contents of the licence files of a package."""
    folder = Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if LICENCE.match(path.name) and path.is_file())
    return [path.read_text(errors="replace").strip() for path in files]


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: .ci/notices.py TARGET", file=sys.stderr)
        return 2
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    output = subprocess.run(
        [*command, "--filter-platform", sys.argv[1]], stdout=subprocess.PIPE, check=True
    )
    crates_of: dict[str, list[str]] = defaultdict(list)
    for package in contained(json.loads(output.stdout)):
        name = f"{package['name']} {package['version']} ({package['license']})"
        for text in texts(package) or ["No file in the crate; see the SPDX licence list."]:
            crates_of[text].append(name)
    if not crates_of:
        print("notices: no packages found", file=sys.stderr)
        return 1
    for text, crates in sorted(crates_of.items(), key=lambda item: item[1]):
        print("\n".join(dict.fromkeys(crates)), f"\n{text}\n", "-" * 80, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
