"""Claims of the papers in `studies/claims.toml`, with their last verdicts."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import StatisticsError

from slowlight import checkout, native
from slowlight.claims import PAPERS
from slowlight.claims.evidence import Evidence, Finding, NotRunError, Verdict
from slowlight.errors import UserError, unknown

FILE = "studies/claims.toml"


@dataclass(frozen=True)
class Entry:
    """A claim: place in the paper, text, kind, and which parts held."""

    id: str
    where: str
    text: str
    value: str
    kind: str
    # By part; the part of a claim with one part is "".
    held: Mapping[str, bool]

    @property
    def paper(self) -> str:
        """Short name of the paper."""
        return self.id.partition("-")[0]


@dataclass(frozen=True)
class Checked:
    """A claim with its findings."""

    entry: Entry
    # Condition under which its parts hold.
    bounds: str
    findings: tuple[Finding, ...]
    # Missing results, with the command that creates them.
    missing: str = ""

    @property
    def lost(self) -> list[str]:
        """Parts that held and no longer hold."""
        holding = {one.part for one in self.findings if one.verdict is Verdict.HOLDS}
        if self.missing:
            return []
        return [self.entry.id + part for part, held in self.entry.held.items()
                if held and part not in holding]  # fmt: skip


def read(file: Path | None = None) -> list[Entry]:
    """Reads the claims in order, from a checkout or else from the package.

    Raises a `UserError` that names a wrong key.
    """
    place = file or checkout.file(FILE)
    try:
        text = place.read_text() if place else native.claims()
        tables = tomllib.loads(text).get("claims", [])
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{place}: {error}") from error
    entries = []
    for table in tables:
        keys = ("id", "where", "text", "value", "kind", "held")
        for key in table:
            if key not in keys:
                raise unknown("key", key, keys, f"{place}, {table.get('id', 'a claim')}")
        if not isinstance(table.get("id"), str):
            raise UserError(f"{place}: a claim without an id")
        texts = {key: str(table.get(key, "")) for key in keys[:5]}
        held = table.get("held", {})
        parts = held if isinstance(held, dict) else {"": bool(held)}
        entries.append(Entry(**texts, held=parts))
    return entries


def chosen(entries: list[Entry], only: Iterable[str]) -> list[Entry]:
    """Returns the named claims: by id (`S0-08`), paper (`S0`) or study (`grc-2012`)."""
    names = list(only)
    if not names:
        return entries
    studies = {paper.study: name for name, paper in PAPERS.items()}
    found: dict[str, Entry] = {}
    for name in names:
        wanted = studies.get(name, name).upper()
        those = [entry for entry in entries if wanted in (entry.id.upper(), entry.paper)]
        if not those:
            known = [entry.id for entry in entries] + list(studies)
            raise unknown("claim", name, known)
        found.update({entry.id: entry for entry in those})
    return [entry for entry in entries if entry.id in found]


def check(entries: list[Entry], where: Iterable[Path]) -> list[Checked]:
    """Checks all claims, in the order of the entries."""
    evidence = Evidence(list(where))
    checked = []
    for entry in entries:
        claim = PAPERS[entry.paper].claims.get(entry.id) if entry.paper in PAPERS else None
        if claim is None:
            raise UserError(f"{entry.id}: nothing checks this claim")
        try:
            findings = tuple(claim.check(evidence))
        except (NotRunError, UserError, StatisticsError) as error:
            # Results, a program for a single run, or runs of a cell are missing.
            missing = str(error)
            if isinstance(error, NotRunError):
                missing = f"make the results with: {error}"
            elif isinstance(error, StatisticsError):
                missing = f"too few runs: {error}"
            finding = Finding("", entry.text, entry.value, "—", Verdict.NOT_RUN, missing)
            checked.append(Checked(entry, claim.bounds, (finding,), missing))
            continue
        checked.append(Checked(entry, claim.bounds, findings))
    return checked


def counts(checked: Iterable[Checked]) -> dict[str, int]:
    """Counts the parts of claims by verdict."""
    verdicts = [finding.verdict for one in checked for finding in one.findings]
    return {verdict.value: verdicts.count(verdict) for verdict in Verdict}


# Verbs for verdicts of one part and of several.
_VERBS = {
    Verdict.HOLDS: ("holds", "hold"),
    Verdict.DIFFERS: ("differs", "differ"),
    Verdict.CANNOT: ("cannot be checked", "cannot be checked"),
    Verdict.NOT_RUN: ("was not run", "were not run"),
}


def counted(checked: Iterable[Checked]) -> str:
    """Numbers of claims, of their parts and of verdicts, as in `2 claims in 3 parts: 3 hold`."""
    every = list(checked)
    verdicts = [finding.verdict for one in every for finding in one.findings]
    claims = "1 claim" if len(every) == 1 else f"{len(every)} claims"
    parts = "1 part" if len(verdicts) == 1 else f"{len(verdicts)} parts"
    counts = [(verdicts.count(verdict), verbs) for verdict, verbs in _VERBS.items()]
    listed = ", ".join(f"{n} {verbs[0] if n == 1 else verbs[1]}" for n, verbs in counts if n)
    return f"{claims} in {parts}: {listed}"


def with_held(text: str, checked: Iterable[Checked]) -> str:
    """Returns the catalogue's text with the current results; claims not run keep theirs."""
    now = {}
    for one in checked:
        if not one.missing:
            parts = {f.part: f.verdict is Verdict.HOLDS for f in one.findings}
            now[one.entry.id] = _held(parts)
    lines, current = [], ""
    for line in text.splitlines():
        if line.startswith("id = "):
            current = json.loads(line.removeprefix("id = "))
        if line.startswith("held = ") and current in now:
            line = f"held = {now[current]}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _held(parts: Mapping[str, bool]) -> str:
    if list(parts) == [""]:
        return json.dumps(parts[""])
    return "{ " + ", ".join(f"{part} = {json.dumps(held)}" for part, held in parts.items()) + " }"
