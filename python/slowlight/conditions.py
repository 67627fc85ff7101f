"""Conditions of a study's sheets: axes, links, transfers, runs, seeds and date."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from slowlight.errors import UserError
from slowlight.results import Results
from slowlight.scenario import inline_toml

# Keys of a link with a separate column, and its heading. All other keys share the last column.
LINK_KEYS = {
    "rate": "Rate", "rate_steps": "Rate", "delay": "One-way delay",
    "delay_points": "One-way delay", "per": "Loss", "ber": "Loss", "burst": "Loss",
    "queue": "Queue", "mtu": "MTU", "datagram": "Datagram",
}  # fmt: skip
# Keys whose values are unclear without the key.
NAMED = frozenset(("per", "ber", "burst"))
TRANSFER_KEYS = {"protocol": "Protocol", "tool": "Tool", "size": "Size", "file": "File",
                 "via": "Via"}  # fmt: skip
OTHER = "Other settings"
# Maximum number of listed values, and of their characters.
VALUES_MAX, TEXT_MAX = 12, 160
# Values of each setting of a link or transfer over all cells; `None` for cells without the setting.
Settings: TypeAlias = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def of_sheet(results: Results, sheet: str) -> list[Table]:
    """Tables of the conditions of a sheet."""
    axes = results.axes(sheet)
    tables = []
    if axes:
        rows = [(axis, ", ".join(labels)) for axis, labels in axes.items()]
        tables.append(Table("Varied", ("Axis", "Values"), rows))
    try:
        kept = results.conditions(sheet)
        tables += [_links(kept["links"]), _transfers(kept["transfers"])]
    except (UserError, ValueError) as error:
        # Results of another version may have a scenario that this version cannot read.
        tables.append(Table("Scenario", ("Setting", "Value"), [("not read", str(error))]))
    tables.append(_runs(results, sheet))
    return tables


def _text(key: str, value: Any) -> str:
    text = value if isinstance(value, str) else inline_toml(value)
    return text if len(text) <= TEXT_MAX else f"{key}: {text[:TEXT_MAX]}…"


def _of_key(key: str, values: Iterable[Any]) -> str:
    """Value of a key in all cells, or that it varies, and the values; empty without any."""
    found = list(dict.fromkeys("none" if v is None else _text(key, v) for v in values))
    if found == ["none"]:
        return ""
    shown = found[:VALUES_MAX] + (["…"] if len(found) > VALUES_MAX else [])
    values = ", ".join(shown)
    return f"varied: {values}" if len(found) > 1 else values


def _row(settings: Settings, columns: Mapping[str, str], skipped: frozenset[str]) -> dict[str, str]:
    """Texts of one link or transfer over all cells of the sheet, by heading."""
    cells: dict[str, list[str]] = {}
    for key, values in settings.items():
        text = "" if key in skipped else _of_key(key, values)
        if text:
            is_named = key in NAMED or key not in columns
            name = key.replace("_", " ")
            cells.setdefault(columns.get(key, OTHER), []).append(
                f"{name} {text}" if is_named else text
            )
    return {head: "; ".join(texts) for head, texts in cells.items()}


def _listed(
    title: str, rows: Sequence[tuple[str, dict[str, str]]], columns: Mapping[str, str]
) -> Table:
    order = [*dict.fromkeys(columns.values()), OTHER]
    heads = [head for head in order if any(head in cells for _, cells in rows)]
    # Links with equal cells share a row.
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, cells in rows:
        alike.setdefault(tuple(cells.get(head, "—") for head in heads), []).append(name)
    body = [(", ".join(names), *cells) for cells, names in alike.items()]
    return Table(title, (title.removesuffix("s"), *heads), body)


def _links(links: Sequence[Settings]) -> Table:
    skipped = frozenset(("from", "to", "link"))
    rows = [
        (f"{link['from'][0]} → {link['to'][0]}", _row(link, LINK_KEYS, skipped)) for link in links
    ]
    return _listed("Links", rows, LINK_KEYS)


def _transfers(transfers: Sequence[Settings]) -> Table:
    skipped = frozenset(("from", "to", "name", "overlay", "start"))
    rows = []
    for transfer in transfers:
        to = transfer["to"][0]
        receivers = to if isinstance(to, str) else ", ".join(to)
        name = f"{transfer['from'][0]} → {receivers}"
        rows.append((name, _row(transfer, TRANSFER_KEYS, skipped)))
    return _listed("Transfers", rows, TRANSFER_KEYS)


def _runs(results: Results, sheet: str) -> Table:
    given = results.sheet(sheet)
    # The number of runs may differ from the study's.
    frame = results.table(sheet)
    runs = frame["run"].n_unique()
    first, last = (str(frame["seed"].min()), str(frame["seed"].max()))
    seeds = first if first == last else f"{first} to {last}"
    rows = [
        ("Scenario", Path(str(given["world"])).stem),
        *((f"Set: {key}", _text(key, value)) for key, value in given.get("set", {}).items()),
        ("Runs of each cell", str(runs)),
        ("Seeds", seeds),
        ("slowlight", str(results.manifest.get("slowlight", ""))),
        ("Date of the run", date_of(results)),
    ]
    return Table("Runs", ("Setting", "Value"), rows)


def date_of(results: Results) -> str:
    """Day (UTC) on which the results were completed, from the time of their manifest."""
    changed = (results.folder / "manifest.json").stat().st_mtime
    return datetime.fromtimestamp(changed, UTC).date().isoformat()
