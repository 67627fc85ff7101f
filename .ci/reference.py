"""Writes what of docs/reference is made from code: the command line, and the columns of tables.

.ci/reference.py target/debug/slowlight            writes the pages
.ci/reference.py target/debug/slowlight --check    fails if they are not what they would be
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
COLUMN = re.compile(r'"(\w+)" = (\w+)\(\|row\| (.*)\);')
FIELD = re.compile(r"((?:^ *///.*\n)+)(?:^ *#\[.*\n)*^ *pub (?:\(\w+\) )?(\w+):", re.MULTILINE)
KINDS = {"Count": "count", "Flag": "yes or no", "Number": "number", "Text": "text"}
# Columns that have no documented field, or are documented elsewhere.
OTHERS = {
    "cell": "Which cell of the grid, from 0 on",
    "run": "Which run of the cell, from 0 on",
    "seed": "The seed of the run",
    "ended": "Why the run ended: `idle` (nothing was left to do), `time limit`, `event limit`, "
    "`cancelled` or `stuck: …`",
    "transfer": "Which transfer of the scenario, from 0 on",
    "peer_window_limited_s": "Time for which the peer's receive window stopped TCP's sender; "
    "`None` where it is not counted",
    "send_buffer_limited_s": "Time for which the send buffer stopped TCP's sender; "
    "`None` where it is not counted",
    "key_median_s": "Of a session of keys: half of them were echoed within this time",
    "key_p95_s": "Of a session of keys: 95 of 100 were echoed within this time",
}
COLUMNS_ARE = """\
A table of a study has a row for each transfer of each run. After `transfer` come the axes: for each
one a column of its labels and, where these are quantities of one kind, one of numbers: in seconds
(`_s`), bits a second (`_bps`), bytes (`_bytes`) or without unit (`_value`). What is measured, and
how, is in [metrics.md](../metrics.md); what a study is, in [studies.md](../studies.md).
"""


def helps(binary: str, words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each command below these words and itself: its name and what `--help` prints."""
    command = [binary, *words, "--help"]
    ran = subprocess.run(
        command,
        env={**os.environ, "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    yield " ".join(("slowlight", *words)), ran.stdout.rstrip()
    block = re.search(r"^Commands:\n((?: .*\n)+)", ran.stdout, re.MULTILINE)
    for name in re.findall(r"^  (\S+)", block[1] if block else "", re.MULTILINE):
        if name != "help":
            yield from helps(binary, (*words, name))


def command_line(binary: str) -> str:
    """The page of the command line."""
    parts = [
        "# The command line",
        "What `--help` of each command prints. The guides say how to use them.",
    ]
    for name, text in helps(binary, ()):
        parts.append(f"## {name}")
        parts.append("```text\n" + "\n".join(line.rstrip() for line in text.splitlines()) + "\n```")
    return "\n\n".join(parts) + "\n"


def documented(path: str, struct: str) -> dict[str, str]:
    """The public fields of a struct: the first sentence of the documentation of each."""
    source = (ROOT / path).read_text(encoding="utf-8")
    pattern = rf"^pub struct {struct}(?:<[^>]*>)? {{\n(.*?)^}}"
    body = re.search(pattern, source, re.MULTILINE | re.DOTALL)
    if body is None:
        sys.exit(f"{path} has no struct {struct}")
    found = {}
    for comment, name in FIELD.findall(body[1]):
        lines = [line.strip().removeprefix("///").strip() for line in comment.splitlines()]
        sentence = re.split(r"\.(?:\s|$)", " ".join(lines))[0]
        # Drops links to code, which have no target here.
        found[name] = re.sub(r"\[(`[^`]*`)\](\([^)]*\))?", r"\1", sentence)
    return found


def columns() -> str:
    """The page of the columns of a study's tables."""
    transfer = documented("crates/lab/src/metrics.rs", "TransferMetrics")
    # The fields of a part are more specific than the field that has the part.
    transfer |= documented("crates/lab/src/metrics.rs", "Traffic")
    transfer |= documented("crates/lab/src/metrics.rs", "Least")
    done = documented("crates/testbed/src/study/journal.rs", "Done")
    lines = [
        "# Columns of tables",
        "",
        *COLUMNS_ARE.splitlines(),
        "",
        "| column | kind | what it is |",
        "|---|---|---|",
    ]
    source = (ROOT / "crates/testbed/src/study/table.rs").read_text(encoding="utf-8")
    for name, kind, find in COLUMN.findall(source):
        field = re.search(r"row\.(transfer|done)\.(?:(?:traffic|least)\.)?(\w+)", find)
        about = OTHERS.get(name)
        if about is None and field:
            about = (transfer if field[1] == "transfer" else done).get(field[2])
        if about is None:
            sys.exit(f"table.rs: nothing says what the column {name} is; document its field")
        lines.append(f"| `{name}` | {KINDS[kind]} | {about} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """The command."""
    if not arguments or arguments[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    pages = {"command-line.md": command_line(arguments[0]), "columns.md": columns()}
    old = 0
    for name, text in pages.items():
        path = PAGES / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in arguments:
            old += 1
            print(
                f"docs/reference/{name} is not what the code says; `make reference` writes it",
                file=sys.stderr,
            )
        else:
            PAGES.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
