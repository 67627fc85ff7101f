"""An exchange at one node: data sent, retransmitted, lost, acknowledged and requested.

Positions in the file are in bytes. With TCP they count from the first byte of data, with NORM from
the first symbol of the object. Time-sequence graphs and throughput over time show an exchange.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slowlight.errors import UserError

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Sent:
    """A packet with data: its time, its first byte and end, and its kind."""

    at_s: float
    low: int
    high: int
    ip_bytes: int
    again: bool = False
    parity: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Span:
    """Bytes that a receiver reported at some time as received or missing."""

    at_s: float
    low: int
    high: int


@dataclass(frozen=True)
class Mark:
    """A packet without data of the file: its time, kind and sender."""

    at_s: float
    name: str
    is_answer: bool


@dataclass
class Exchange:
    """Packets of a transfer at a node."""

    node: str
    data: list[Sent] = field(default_factory=list)
    # Times of cumulative acknowledgments with their end, and times of the window's end.
    acks: list[tuple[float, int]] = field(default_factory=list)
    window: list[tuple[float, int]] = field(default_factory=list)
    arrived: list[Span] = field(default_factory=list)
    requested: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    # Start and end of each outage of a link, in seconds.
    outages: list[tuple[float, float]] = field(default_factory=list)
    is_tcp: bool = False

    @property
    def end_s(self) -> float:
        """Time of the last packet."""
        times = [one.at_s for one in self.data] + [one.at_s for one in self.marks]
        return max([*times, *(at for at, _ in self.acks)], default=0.0)

    @property
    def high(self) -> int:
        """End of the data, in bytes."""
        return max((one.high for one in self.data), default=0)


def seconds(quantity: str) -> float:
    """Seconds of a time like `60 s` or `1250 ms`."""
    found = re.fullmatch(r"\s*([0-9.eE+-]+)\s*([a-z]+)\s*", quantity)
    if not found or found[2] not in _UNITS:
        raise UserError(f"{quantity!r} is not a time; write a time like '60 s'")
    return float(found[1]) * _UNITS[found[2]]


def outages(world: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Start and end of the outages of a scenario's links, without duplicates."""
    spans = {
        (seconds(one["at"]), seconds(one["at"]) + seconds(one["for"]))
        for link in world.get("links", [])
        for one in link.get("outages", [])
        if isinstance(one, dict) and "at" in one and "for" in one
    }
    return sorted(spans)


def new_bytes(data: Iterable[Sent]) -> list[tuple[float, int]]:
    """Time of each packet at a receiver, and its number of new bytes."""
    have: list[tuple[int, int]] = []
    found = []
    for one in data:
        if one.parity:
            found.append((one.at_s, 0))
            continue
        fresh = one.high - one.low
        merged, low, high = [], one.low, one.high
        for start, end in have:
            if end < low or start > high:
                merged.append((start, end))
                continue
            fresh -= max(0, min(end, one.high) - max(start, one.low))
            low, high = min(low, start), max(high, end)
        merged.append((low, high))
        have = sorted(merged)
        found.append((one.at_s, max(fresh, 0)))
    return found
