"""Refuses dependencies under a licence that `deny.toml` does not allow, or from another source.

Reads Cargo's metadata of all workspaces, so it needs only Cargo. `cargo deny` checks more
(advisories, for example), where it is installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = ("Cargo.toml", "interop/Cargo.toml", "examples/embed/Cargo.toml")
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
TOKEN = re.compile(r"\(|\)|/|[\w.+-]+")


class Expression:
    """An SPDX licence expression: OR binds loosest, then AND, then WITH."""

    def __init__(self, text: str, allowed: frozenset[str]) -> None:
        self.tokens = TOKEN.findall(text)
        self.allowed = allowed

    def holds(self) -> bool:
        """Whether some choice of licences is allowed."""
        found = self.any_of()
        if self.tokens:
            raise ValueError(f"left over: {self.tokens}")
        return found

    def take(self, *words: str) -> bool:
        """Drops the next token if it is one of these."""
        if self.tokens and self.tokens[0] in words:
            self.tokens.pop(0)
            return True
        return False

    def any_of(self) -> bool:
        """Terms with OR between them; `/` is how older crates write it."""
        found = self.all_of()
        while self.take("OR", "/"):
            # Parses both sides in any case.
            found = self.all_of() or found
        return found

    def all_of(self) -> bool:
        """Terms with AND between them."""
        found = self.one()
        while self.take("AND"):
            found = self.one() and found
        return found

    def one(self) -> bool:
        """A licence, perhaps with an exception, or an expression in parentheses."""
        if self.take("("):
            found = self.any_of()
            if not self.take(")"):
                raise ValueError("a parenthesis is not closed")
            return found
        if not self.tokens:
            raise ValueError("a licence is missing")
        name = self.tokens.pop(0)
        if self.take("WITH"):
            name += " WITH " + self.tokens.pop(0)
        return name in self.allowed


def objections(package: dict[str, Any], allowed: frozenset[str]) -> list[str]:
    """Returns the objections against a package."""
    found = []
    source = package["source"]
    # A package without a source is a folder, which must be in the repository.
    inside = Path(package["manifest_path"]).is_relative_to(ROOT)
    if source != CRATES_IO and (source is not None or not inside):
        found.append(f"comes from {source or package['manifest_path']}")
    licence = package["license"] or ""
    try:
        fine = Expression(licence, allowed).holds()
    except (ValueError, IndexError):
        fine = False
    if not fine:
        found.append(f"has the licence {licence or '(none)'!r}")
    return found


def main() -> int:
    """Checks all workspaces; 1 if something is not allowed."""
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    allowed = frozenset(rules["licenses"]["allow"])
    refused = checked = 0
    for manifest in MANIFESTS:
        command = ["cargo", "metadata", "--locked", "--all-features", "--format-version", "1"]
        for target in rules["graph"]["targets"]:
            command += ["--filter-platform", target]
        output = subprocess.run(
            [*command, "--manifest-path", str(ROOT / manifest)], stdout=subprocess.PIPE, check=True
        )
        for package in json.loads(output.stdout)["packages"]:
            checked += 1
            for objection in objections(package, allowed):
                refused += 1
                print(f"{manifest}: {package['name']} {package['version']} {objection}")
    if checked == 0:
        print("no packages found")
    return 1 if refused or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
