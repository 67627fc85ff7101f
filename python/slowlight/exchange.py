"""An exchange as one node saw it: what was sent, sent again, lost, acknowledged and asked for.

Places in the file are bytes; of TCP they count from the first byte of data, of NORM from the
first symbol of the object. It is what time-sequence graphs and throughput over time are drawn from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from slowlight.errors import UserError
from slowlight.packets import Segment, datagrams, segments
from slowlight.single import DELIVERED, captured, decoded, single

_RANGE = re.compile(r"(\d+)\.\.(=?)(\d+)")
_DATA = re.compile(r"(?:File Data|(?:red|green) data(?: (?:CP|EORP|EOB))*|\bDATA) (\d+)\.\.(\d+)")
_SYMBOL = re.compile(r"DATA object \d+ symbol (\d+):(\d+) of (\d+) B")
_NORM_FILE = re.compile(r"FTI (\d+) B in (\d+) B, blocks of (\d+)\+")
_NORM_NEEDS = re.compile(r"(\d+):(\d+):(\d+)(?:\u2013\d+:\d+:(\d+))?")
_PROGRESS = re.compile(r"STATUS (?:\w+ )?(\d+) of \d+")
# A packet does not wait longer than this for the link that loses it.
LATEST_S = 60.0
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Sent:
    """A packet with data: when, from which byte to which, and what is particular of it."""

    at_s: float
    low: int
    high: int
    ip_bytes: int
    again: bool = False
    parity: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Span:
    """Bytes that a receiver told of at some time: those that it has, or those that it lacks."""

    at_s: float
    low: int
    high: int


@dataclass(frozen=True)
class Mark:
    """A packet without data of the file: when, what it is, and who sent it."""

    at_s: float
    name: str
    is_answer: bool


@dataclass
class Exchange:
    """What a node saw of a transfer."""

    node: str
    data: list[Sent] = field(default_factory=list)
    # When the sender learned that all bytes below are there, and up to where it may send.
    acks: list[tuple[float, int]] = field(default_factory=list)
    window: list[tuple[float, int]] = field(default_factory=list)
    arrived: list[Span] = field(default_factory=list)
    asked: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    # From when to when a link was down, in seconds.
    outages: list[tuple[float, float]] = field(default_factory=list)
    is_tcp: bool = False

    @property
    def end_s(self) -> float:
        """When the last packet was seen."""
        times = [one.at_s for one in self.data] + [one.at_s for one in self.marks]
        return max([*times, *(at for at, _ in self.acks)], default=0.0)

    @property
    def high(self) -> int:
        """The end of the data."""
        return max((one.high for one in self.data), default=0)


def seconds(quantity: str) -> float:
    """A time like `60 s` or `1250 ms` in seconds."""
    found = re.fullmatch(r"\s*([0-9.eE+-]+)\s*([a-z]+)\s*", quantity)
    if not found or found[2] not in _UNITS:
        raise UserError(f"{quantity!r} is no time; a time is like '60 s'")
    return float(found[1]) * _UNITS[found[2]]


def outages(world: Mapping[str, Any]) -> list[tuple[float, float]]:
    """When links of a scenario are down, each span once."""
    spans = {
        (seconds(one["at"]), seconds(one["at"]) + seconds(one["for"]))
        for link in world.get("links", [])
        for one in link.get("outages", [])
        if isinstance(one, dict) and "at" in one and "for" in one
    }
    return sorted(spans)


def watch(world: Mapping[str, Any], at: str = "", seed: int | None = None) -> Exchange:
    """Runs a scenario: what a node, the sender if none is named, saw of its first transfer.

    Raises `UserError` where there is no such node, or it saw no data.
    """
    transfer = world["transfers"][0]
    node = at or str(transfer["from"])
    capture = captured(world, node, seed)
    _, trace = single({**world, "capture": {"at": node, "pcap": True}}, seed)
    found = segments(capture)
    if sum(one.data > 0 for one in found) > len(datagrams(capture)) // 2:
        exchange = _tcp(node, found, trace)
    else:
        exchange = _udp(node, capture, trace)
    if not exchange.data:
        exchange = _counted(node, trace)
    if not exchange.data:
        raise UserError(f"{node} saw no data of {transfer['protocol']}")
    exchange.outages = outages(world)
    return exchange


def _sequences(trace: pl.DataFrame, column: str, node: str) -> set[int]:
    """Sequence numbers of data that left a node, or came to it."""
    there = trace.filter((pl.col(column) == node) & pl.col("kind").str.contains("data"))
    return set(there["offset"].drop_nulls().to_list())


@dataclass(frozen=True)
class _Flow:
    """One direction of a connection on one interface: a gateway that splits a connection has two
    of the same addresses and ports.
    """

    interface: int
    source: str
    ports: tuple[int, int]

    @classmethod
    def of(cls, one: Segment) -> _Flow:
        return cls(one.interface, one.source, one.ports)

    def has(self, one: Segment) -> bool:
        return self == _Flow.of(one)

    def is_answered_by(self, one: Segment) -> bool:
        is_back = one.ports == self.ports[::-1] and one.source != self.source
        return is_back and one.interface == self.interface


def _flows(node: str, found: Sequence[Segment], trace: pl.DataFrame) -> list[_Flow]:
    """The connection with most data, and those between the same programs, in their order.

    What a node sends counts before what it receives: a relay has two connections of one file.
    """
    sides = []
    for column in ("from", "to"):
        those, count = _sequences(trace, column, node), dict[_Flow, int]()
        for one in found:
            if one.data and one.sequence in those:
                count[_Flow.of(one)] = count.get(_Flow.of(one), 0) + one.data
        sides.append(count)
    sent, received = sides
    most = [max(count.values(), default=0) for count in sides]
    chosen = sent if 2 * most[0] >= most[1] else received
    if not chosen:
        raise UserError(f"{node} saw no data of a connection")
    most_of_all = max(chosen, key=lambda flow: chosen[flow])
    # A connection that is made again goes from a new port to the same one.
    well_known, least = min(most_of_all.ports), chosen[most_of_all] / 20
    order = {_Flow.of(one): one.at_s for one in reversed(found)}
    alike = [
        flow
        for flow, octets in chosen.items()
        if (flow.interface, flow.source) == (most_of_all.interface, most_of_all.source)
        and well_known in flow.ports
        and octets >= least
    ]
    return sorted(alike, key=lambda flow: order[flow])


def _tcp(node: str, found: Sequence[Segment], trace: pl.DataFrame) -> Exchange:
    exchange = Exchange(node, is_tcp=True)
    flows = _flows(node, found, trace)
    lost, start = _losses(trace), 0
    for flow in flows:
        _connection(exchange, found, flow, start, lost)
        # The next one goes on where this one was acknowledged.
        start = max([start, *(value for _, value in exchange.acks)])
    known = {flow.ports for flow in flows}
    for one in found:
        # Tries for a connection of which nothing came.
        is_try = one.syn and not one.ack and one.ports not in known
        if is_try and (one.interface, one.source) == (flows[0].interface, flows[0].source):
            exchange.marks.append(Mark(one.at_s, "SYN", False))
    return exchange


def _connection(
    exchange: Exchange, found: Sequence[Segment], flow: _Flow, start: int,
    lost: dict[int, list[float]],
) -> None:  # fmt: skip
    """Adds a connection, whose first byte of data stands at `start`."""
    of_it = [one for one in found if flow.has(one) and one.data]
    base, reached = of_it[0].sequence, start

    def place(sequence: int) -> int:
        ahead = (sequence - base) % 2**32
        return start + (ahead if ahead < 2**31 else ahead - 2**32)

    for one in found:
        is_control = one.syn or one.fin or one.rst
        if flow.has(one):
            if one.data:
                low = place(one.sequence)
                gone = _is_lost(lost, one.sequence, one.at_s)
                sent = Sent(one.at_s, low, low + one.data, one.data + 40, low < reached, lost=gone)
                exchange.data.append(sent)
                reached = max(reached, sent.high)
            elif is_control:
                exchange.marks.append(Mark(one.at_s, _flags(one), False))
        elif flow.is_answered_by(one):
            if is_control:
                exchange.marks.append(Mark(one.at_s, _flags(one), True))
            low = place(one.acknowledgment)
            if one.ack and low >= start and not one.syn:
                exchange.acks.append((one.at_s, low))
                exchange.window.append((one.at_s, low + one.window))
                exchange.arrived += [Span(one.at_s, place(a), place(b)) for a, b in one.sack]


def _flags(one: Segment) -> str:
    return "SYN" if one.syn else "RST" if one.rst else "FIN"


def _losses(trace: pl.DataFrame) -> dict[int, list[float]]:
    """When data was lost on any link, by its offset."""
    gone = trace.filter(
        (pl.col("fate") != DELIVERED) & pl.col("kind").str.contains("data")
        & pl.col("offset").is_not_null()
    )  # fmt: skip
    found: dict[int, list[float]] = {}
    for offset, at in gone.select("offset", "sent_s").sort("sent_s").iter_rows():
        found.setdefault(offset, []).append(at)
    return found


def _is_lost(lost: dict[int, list[float]], sequence: int, at_s: float) -> bool:
    """Whether this sending was lost.

    The link that loses it may be farther on, where it waits for its turn: so the first loss of
    these bytes after the sending belongs to it, and to no later one.
    """
    times = lost.get(sequence, [])
    while times and times[0] < at_s - 1e-9:
        times.pop(0)
    if not times or times[0] - at_s > LATEST_S:
        return False
    times.pop(0)
    return True


@dataclass(frozen=True)
class _Line:
    """A datagram: when, between whom, how long with its headers, and what it says."""

    at_s: float
    source: str
    destination: str
    ip_bytes: int
    says: str


def _lines(capture: bytes) -> list[_Line]:
    found = datagrams(capture)
    lines = decoded(capture)
    if len(lines) != len(found):
        return []
    return [
        _Line(one.at_s, one.source, one.destination, len(one.data) + 28, line.split(" ", 4)[-1])
        for one, line in zip(found, lines, strict=True)
    ]


class _Norm:
    """Where symbols of a NORM object stand (RFC 5052 §9.1)."""

    def __init__(self, length: int, symbol: int, block: int) -> None:
        count = math.ceil(length / symbol)
        blocks = math.ceil(count / block)
        self.symbol, self.length = symbol, length
        self.large, self.small = math.ceil(count / blocks), count // blocks
        # So many blocks are large ones.
        self.first = count - self.small * blocks

    def place(self, block: int, symbol: int) -> tuple[int, int, bool]:
        """The bytes of a symbol; of parity those of the block's last symbol."""
        before = min(block, self.first) * self.large + max(block - self.first, 0) * self.small
        held = self.large if block < self.first else self.small
        low = (before + min(symbol, held - 1)) * self.symbol
        return low, min(low + self.symbol, self.length), symbol >= held


def _is_data(says: str) -> bool:
    """Whether a packet carries some of the file."""
    return bool(_DATA.search(says) or _SYMBOL.search(says))


def _sender(lines: Sequence[_Line], node: str, trace: pl.DataFrame) -> str:
    """Who sends the data that is drawn: the node itself if it sends any, else who sends most."""
    data = [one for one in lines if _is_data(one.says)]
    mine = {round(at, 9) for at in trace.filter(pl.col("from") == node)["sent_s"].to_list()}
    sent = [one.source for one in data if round(one.at_s, 9) in mine]
    sources = sent if 2 * len(sent) >= len(data) > 0 else [one.source for one in data]
    return max(sorted(set(sources)), key=sources.count) if sources else ""


def _udp(node: str, capture: bytes, trace: pl.DataFrame) -> Exchange:
    exchange, norm, reached = Exchange(node), None, 0
    seen: set[tuple[int, int, bool]] = set()
    lines = _lines(capture)
    sender = _sender(lines, node, trace)
    peers = {one.destination for one in lines if one.source == sender and _is_data(one.says)}
    for one in lines:
        at_s, source, ip_bytes, says = one.at_s, one.source, one.ip_bytes, one.says
        # To a group, which begins with 224 to 239, any may answer.
        is_peer = source in peers or any(224 <= int(peer.split(".")[0]) < 240 for peer in peers)
        if source != sender and (not is_peer or _is_data(says)):
            # Of another hop.
            continue
        told = _NORM_FILE.search(says)
        if told and norm is None:
            norm = _Norm(*map(int, told.groups()))
        if source != sender:
            _answer(exchange, at_s, says, norm)
            continue
        found, symbol = _DATA.search(says), _SYMBOL.search(says)
        if found:
            low, high, parity = int(found[1]), int(found[2]), False
        elif symbol and norm:
            low, high, parity = norm.place(int(symbol[1]), int(symbol[2]))
        else:
            exchange.marks.append(Mark(at_s, _name(says), False))
            continue
        again = (low, high, parity) in seen or (not parity and low < reached)
        seen.add((low, high, parity))
        reached = max(reached, high)
        exchange.data.append(Sent(at_s, low, high, ip_bytes, again, parity, "(lost" in says))
    return exchange


def _answer(exchange: Exchange, at_s: float, says: str, norm: _Norm | None) -> None:
    """What a receiver says: what it has (LTP, Saratoga) or lacks (CFDP, NORM, Saratoga)."""
    exchange.marks.append(Mark(at_s, _name(says), True))
    spans = [
        Span(at_s, int(low), int(high) + (1 if closed else 0))
        for low, closed, high in _RANGE.findall(says)
    ]
    if "NAK" in says:
        # The first pair is what the list is about.
        exchange.asked += spans[1:]
    elif "received" in says:
        exchange.arrived += spans[1:]
        if len(spans) > 1 and spans[1].low == 0:
            exchange.acks.append((at_s, spans[1].high))
    elif "STATUS" in says:
        exchange.asked += spans
        progress = _PROGRESS.search(says)
        if progress:
            exchange.acks.append((at_s, int(progress[1])))
    elif "NACK" in says and norm:
        needs = says.partition("needs segments ")[2].partition(", ")[0]
        for _, block, first, last in _NORM_NEEDS.findall(needs):
            low, _, _ = norm.place(int(block), int(first))
            _, high, _ = norm.place(int(block), int(last or first))
            exchange.asked.append(Span(at_s, low, high))


_NAMES = ("ACK EOF", "ACK Finished", "Finished", "EOF", "Metadata", "METADATA", "NAK", "NACK",
          "STATUS", "REQUEST", "accepted", "poll", "FLUSH", "CC", "INFO", "EOT", "ANNOUNCE",
          "cancel", "acknowledged", "report", "Prompt", "Keep Alive", "BEACON")  # fmt: skip


def _name(says: str) -> str:
    """A packet's name: `ACK(FLUSH)` and `ACK(CC)` of NORM are answers of their own."""
    answer = re.search(r"ACK\((\w+)\)", says)
    if answer:
        return answer[0]
    if "report" in says and "acknowledged" in says:
        return "report acknowledgement"
    return next((name for name in _NAMES if name in says), "other")


def _counted(node: str, trace: pl.DataFrame) -> Exchange:
    """Of packets that do not say where their data stands: bytes in the order of sending."""
    exchange, reached = Exchange(node), 0
    rows = trace.filter((pl.col("from") == node) & (pl.col("ip_bytes") > 100))
    if rows.is_empty():
        rows = trace.filter((pl.col("to") == node) & (pl.col("ip_bytes") > 100))
    for at_s, ip_bytes, fate in (
        rows.sort("sent_s").select("sent_s", "ip_bytes", "fate").iter_rows()
    ):
        high = reached + ip_bytes - 28
        exchange.data.append(Sent(at_s, reached, high, ip_bytes, lost=fate != DELIVERED))
        reached = high
    return exchange


def new_bytes(data: Iterable[Sent]) -> list[tuple[float, int]]:
    """Of packets at a receiver: when, and how many bytes of each are there for the first time."""
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
