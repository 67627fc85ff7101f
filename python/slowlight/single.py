"""Single runs with their packets, and the scenarios of a study's cells.

Runs are made in this process where the compiled module is there, and by the program `slowlight`
otherwise; captures, and what they say, always come from the program.

from slowlight.single import changed, scenario, single

metrics, trace = single(changed(scenario("grc"), {"links.*.per": "1e-3"}), seed=7)
"""

from __future__ import annotations

import copy
import functools
import json
import os
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from slowlight.errors import UserError, unknown
from slowlight.results import Results

# The columns of a trace: times in seconds, lengths in bytes with the IP header, `offset` what the
# packet says of its place in the file (CFDP, Saratoga, LTP: bytes; TCP: its sequence number; NORM:
# 65,536 times the block and the symbol in it), `fate` what became of it.
TRACE = {
    "sent_s": pl.Float64,
    "at_s": pl.Float64,
    "from": pl.String,
    "to": pl.String,
    "ip_bytes": pl.Int64,
    "kind": pl.String,
    "offset": pl.Int64,
    "fate": pl.String,
}
DELIVERED = "delivered"


def binary() -> str:
    """The program `slowlight`: `$SLOWLIGHT`, or the one on the path."""
    found = os.environ.get("SLOWLIGHT") or shutil.which("slowlight")
    if not found:
        raise UserError("there is no slowlight on the path; install it, or set SLOWLIGHT to it")
    return found


def _call(*words: str) -> str:
    done = subprocess.run([binary(), *words], capture_output=True, text=True, check=False)
    # 1 says that a transfer failed, which the metrics say, too.
    if done.returncode not in (0, 1) or (done.returncode == 1 and not done.stdout):
        raise UserError(f"slowlight {words[0]}: {done.stderr.strip()}")
    return done.stdout


def folders() -> list[Path]:
    """Where scenarios and studies may be: here, in the checkout this package is in, and in it."""
    here = Path(__file__).resolve()
    return [Path(), here.parents[2], here.parent]


def scenario(name: str) -> dict[str, Any]:
    """A scenario that comes with slowlight, like `grc`, or a file."""
    file = name if name.endswith(".toml") else f"{name}.toml"
    places = [Path(name), *(folder / "scenarios" / Path(file).name for folder in folders())]
    for place in places:
        if place.is_file():
            return tomllib.loads(place.read_text())
    raise UserError(f"there is no scenario {name!r}; looked for {places[1]} and {places[2]}")


def _steps(place: Any, part: str) -> Iterator[tuple[Any, Any]]:
    """The containers and keys that a part of a key like `links.*.delay` leads to."""
    if isinstance(place, dict):
        yield place, part
        return
    for index, element in enumerate(place if isinstance(place, list) else []):
        ends = f"{element.get('from')}>{element.get('to')}" if isinstance(element, dict) else ""
        if part in ("*", str(index), ends):
            yield place, index


def changed(world: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario with keys set, which are written as in a study: `links.a>b.per`, `links.*.delay`.

    Raises `UserError` for a key that leads nowhere.
    """
    copied = copy.deepcopy(dict(world))
    for key, value in changes.items():
        *between, last = key.split(".")
        places: list[Any] = [copied]
        for part in between:
            inner = []
            for place in places:
                for container, index in _steps(place, part):
                    if isinstance(container, dict):
                        container.setdefault(index, {})
                    inner.append(container[index])
            places = inner
        ends = [step for place in places for step in _steps(place, last)]
        if not ends:
            raise UserError(f"{key}: the scenario has nothing there")
        for container, index in ends:
            container[index] = copy.deepcopy(value)
    return copied


def without(world: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """A scenario with keys taken away, where they are there."""
    copied = copy.deepcopy(dict(world))
    for key in keys:
        *between, last = key.split(".")
        places: list[Any] = [copied]
        for part in between:
            steps = [step for place in places for step in _steps(place, part)]
            places = [c[i] for c, i in steps if not isinstance(c, dict) or i in c]
        for place in places:
            if isinstance(place, dict):
                place.pop(last, None)
    return copied


def cell(results: Results, sheet: str | None, labels: Mapping[str, str]) -> dict[str, Any]:
    """The scenario of a cell of a study: of each axis the label that is named, else the first."""
    table = results.sheet(sheet)
    world = changed(scenario(Path(str(table["world"])).stem), table.get("set", {}))
    known = results.axes(sheet)
    for axis in labels:
        if axis not in known:
            raise unknown("axis", axis, known, results.name)
    for axis in table["axes"]:
        name = str(axis["name"])
        label = labels.get(name, known[name][0])
        if label not in known[name]:
            raise unknown("value", label, known[name], f"{results.name}, {name}")
        value = axis["values"][known[name].index(label)]
        named = value if isinstance(value, dict) else {"value": value}
        if "value" in named:
            world = changed(world, dict.fromkeys(axis.get("keys", []), named["value"]))
        world = without(world, named.get("unset", []))
        world = changed(world, named.get("set", {}))
    return world


def toml(value: Any) -> str:
    """A value as TOML in one line."""
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def text(world: Mapping[str, Any]) -> str:
    """A scenario as TOML."""
    return "".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in world.items())


@functools.lru_cache(maxsize=64)
def _run(world: str, capture_at: str) -> tuple[str, bytes, bytes]:
    """Metrics as JSON, the trace, and the capture if one is asked for."""
    with tempfile.TemporaryDirectory(prefix="slowlight-") as folder:
        place = Path(folder)
        (place / "world.toml").write_text(world)
        words = ["sim", str(place / "world.toml"), "--json", "--trace", str(place / "trace.tsv")]
        if capture_at:
            words += ["--pcap", str(place / "packets.pcapng")]
        told = _call(*words)
        capture = (place / "packets.pcapng").read_bytes() if capture_at else b""
        return told, (place / "trace.tsv").read_bytes(), capture


def single(
    world: Mapping[str, Any] | str, seed: int | None = None
) -> tuple[dict[str, Any], pl.DataFrame]:
    """Runs a scenario once: its metrics (see docs/metrics.md) and a row for each packet on a link.

    Raises `UserError` with the program's words if the scenario is none.
    """
    told, trace = _in_process(_text(world, seed))
    return json.loads(told), _frame(trace)


@functools.lru_cache(maxsize=64)
def _in_process(world: str) -> tuple[str, bytes]:
    """Metrics and trace by the compiled module; by the program where it is not there."""
    try:
        from slowlight import _native
    except ImportError:
        return _run(world, "")[:2]
    try:
        return _native.single(world, "scenario", "", True)
    except ValueError as error:
        raise UserError(str(error)) from error


def _text(world: Mapping[str, Any] | str, seed: int | None) -> str:
    given = tomllib.loads(world) if isinstance(world, str) else dict(world)
    return text(given if seed is None else {**given, "seed": seed})


def _frame(trace: bytes) -> pl.DataFrame:
    return pl.read_csv(trace, separator="\t", schema=TRACE, has_header=True, quote_char=None)


def captured(world: Mapping[str, Any] | str, at: str, seed: int | None = None) -> bytes:
    """Runs a scenario once: what a capture at the node `at` holds, as pcapng."""
    given = tomllib.loads(_text(world, seed))
    return _run(text({**given, "capture": {"at": at, "pcap": True}}), at)[2]


@functools.lru_cache(maxsize=16)
def decoded(capture: bytes, protocol: str = "") -> tuple[str, ...]:
    """A line a PDU of a capture, as `slowlight decode` writes them."""
    with tempfile.NamedTemporaryFile(prefix="slowlight-", suffix=".pcapng") as file:
        file.write(capture)
        file.flush()
        words = ["--protocol", protocol] if protocol else []
        return tuple(_call("decode", *words, file.name).splitlines())
