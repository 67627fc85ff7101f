"""Writes docs/conformance/bundles.md from lists of requirements and the tests that name them.

.ci/pics.py            writes the page
.ci/pics.py --check    fails if it is not what it would be

The lists are docs/conformance/*.toml, a table for each requirement. A line "/// Requirements: B20,
B22." above a Rust test names those that the test proves; several such lines count together. Both
forms fail if a test names an unknown requirement, or if a supported one has no test.
"""

from __future__ import annotations

import re
import sys
import textwrap
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "docs" / "conformance"
PAGE = LISTS / "bundles.md"
STANDARDS = (
    "rfc9171",
    "rfc9172",
    "rfc9758",
    "rfc9174",
    "rfc5050",
    "rfc7242",
    "rfc7122",
    "ccsds-734.2",
    "ccsds-734.20",
)
LEVELS = ("shall", "should", "may", "mandatory", "optional", "conditional")
# Support, as it is shown.
SUPPORT = {"yes": "yes", "partly": "partly", "no": "no", "inspection": "yes, by inspection"}
# Names of folders on the page.
FOLDERS = {
    "bp/": "crates/bp/src/",
    "rt/": "crates/rt/src/",
    "service/": "crates/service/src/",
    "cli/": "crates/cli/tests/it/",
}
MARKER = re.compile(r"\s*/// Requirements: (.+)\.$")
FUNCTION = re.compile(r"\s*(?:async )?fn (\w+)\(")
HEAD = re.compile(r"\s*(?:///|//|#\[)")
INTRODUCTION = """\
# Bundles: conformance

<!-- .ci/pics.py writes this page from docs/conformance and the tests. -->

Requirements of the Bundle Protocol and its convergence layers, with their support in [a
node](../node.md) and in [the library](../bundles.md), in the form of a PICS (protocol
implementation conformance statement). The wording is ours. The level is that of the document: a
requirement that it writes as "must" is a "shall" here.

* *yes*: each test in the last column proves the requirement, or a part of it.
* *partly* and *no*: with the difference.
* *yes, by inspection*: nothing to test, with the reason.

"as" leads to the tests of other requirements. In file names
{folders}.
"""


@dataclass
class Requirement:
    """A requirement as it is listed, and the tests that name it."""

    section: str
    level: str
    text: str
    support: str
    why: str = ""
    same: list[str] = field(default_factory=list)
    tests: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Standard:
    """A document and its requirements."""

    title: str
    note: str
    requirements: dict[str, Requirement]


def listed(name: str, faults: list[str]) -> Standard:
    """The requirements of a document."""
    table = tomllib.loads((LISTS / f"{name}.toml").read_text(encoding="utf-8"))
    title, note = table.pop("title"), table.pop("note")
    requirements = {}
    for key, entry in table.items():
        entry["same"] = entry.pop("as", [])
        requirement = Requirement(**entry)
        requirements[key] = requirement
        if requirement.level not in LEVELS or requirement.support not in SUPPORT:
            faults.append(f"{name}.toml: {key} has an unknown level or support")
        if (requirement.support == "yes") == bool(requirement.why):
            faults.append(f"{name}.toml: {key} needs `why` exactly if its support is not yes")
    return Standard(title, note, requirements)


def marked(faults: list[str]) -> list[tuple[str, str, str]]:
    """Requirements that tests name, with the path and the function of each."""
    found = []
    for path in sorted((ROOT / "crates").rglob("*.rs")):
        source = path.read_text(encoding="utf-8")
        if "/// Requirements: " not in source:
            continue
        shown = path.relative_to(ROOT).as_posix()
        named: list[str] = []
        is_test = is_ignored = False
        for number, line in enumerate(source.splitlines(), 1):
            if marker := MARKER.fullmatch(line):
                named += marker[1].split(", ")
            elif line.lstrip().startswith("/// Requirements:"):
                faults.append(f'{shown}:{number}: write "/// Requirements: A01, A02."')
            elif named and (function := FUNCTION.match(line)):
                if not is_test or is_ignored:
                    faults.append(f"{shown}:{number}: {function[1]} is no test that runs")
                found += [(key, shown, function[1]) for key in named]
                named = []
            elif named and not HEAD.match(line):
                faults.append(f"{shown}:{number}: no test follows `Requirements`")
                named = []
            is_test = (is_test and bool(named)) or line.strip() == "#[test]"
            is_ignored = (is_ignored and bool(named)) or line.strip().startswith("#[ignore")
    return found


def joined(standards: list[Standard], faults: list[str]) -> None:
    """Adds the tests to their requirements, and checks that supported ones have some."""
    every = {key: it for standard in standards for key, it in standard.requirements.items()}
    if len(every) != sum(len(standard.requirements) for standard in standards):
        faults.append("two requirements have the same name")
    for key, path, function in marked(faults):
        if key not in every:
            faults.append(f"{path}: {function} names {key}, which is not listed")
        elif (path, function) in every[key].tests:
            faults.append(f"{path}: {function} names {key} twice")
        else:
            every[key].tests.append((path, function))
    for key, it in every.items():
        if unknown := [other for other in it.same if other not in every]:
            faults.append(f"{key} is as {', '.join(unknown)}, which is not listed")
            continue
        if it.support != "yes":
            continue
        if less := [other for other in it.same if every[other].support in ("partly", "no")]:
            faults.append(f"{key} is supported, but {', '.join(less)} is not")
        elif not it.tests and not it.same:
            faults.append(f"{key} is supported, and no test names it")


def tested(it: Requirement) -> str:
    """The last cell of a row."""
    files: dict[str, list[str]] = {}
    for path, function in it.tests:
        files.setdefault(path, []).append(function)
    parts = [f"as {', '.join(it.same)}"] if it.same else []
    for path, functions in files.items():
        short = path
        for name, folder in FOLDERS.items():
            if path.startswith(folder):
                short = name + path.removeprefix(folder)
        parts.append(f"`{short}` ({', '.join(f'`{function}`' for function in functions)})")
    return "; ".join(parts) or "—"


def rows(standard: Standard) -> list[str]:
    """The section of a document."""
    lines = ["", f"## {standard.title}", ""]
    if standard.note:
        lines += [*textwrap.wrap(standard.note, 100), ""]
    names = ("id", "section", "level", "requirement", "support", "tests")
    lines += [f"| {' | '.join(names)} |", "|---" * 6 + "|"]
    for key, it in standard.requirements.items():
        support = SUPPORT[it.support] + (f": {it.why}" if it.why else "")
        cells = (key, it.section, it.level, it.text, support, tested(it))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def summary(standards: list[Standard]) -> list[str]:
    """The section with numbers of requirements."""
    names = ("requirements", *SUPPORT.values(), "with tests")
    lines = ["", "## Numbers", "", f"| document | {' | '.join(names)} |", "|---" * 7 + "|"]
    sums = [0] * 6
    for standard in standards:
        every = list(standard.requirements.values())
        counts = [len(every)]
        counts += [sum(it.support == support for it in every) for support in SUPPORT]
        counts.append(sum(bool(it.tests or it.same) for it in every))
        sums = [sum(pair) for pair in zip(sums, counts, strict=True)]
        lines.append(f"| {standard.title} | {' | '.join(map(str, counts))} |")
    return [*lines, f"| all | {' | '.join(map(str, sums))} |"]


def page(standards: list[Standard]) -> str:
    """The page."""
    folders = [f"`{name}` is `{folder}`" for name, folder in FOLDERS.items()]
    lines = INTRODUCTION.format(folders=",\n".join(folders)).splitlines()
    lines += summary(standards)
    for standard in standards:
        lines += rows(standard)
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """The command."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    faults: list[str] = []
    standards = [listed(name, faults) for name in STANDARDS]
    joined(standards, faults)
    written = page(standards)
    is_stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != written
    if arguments and is_stale:
        faults.append(f"{PAGE.name} is stale; run .ci/pics.py")
    elif is_stale:
        PAGE.write_text(written, encoding="utf-8")
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
