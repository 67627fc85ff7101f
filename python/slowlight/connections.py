"""Exchanges over TCP, from the segments captured at a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from slowlight.errors import UserError
from slowlight.exchange import Exchange, Mark, Sent, Span
from slowlight.packets import Segment
from slowlight.scenario import DELIVERED

# Maximum time that a packet waits for the link that loses it.
LATEST_S = 60.0


def _sequences(trace: pl.DataFrame, column: str, node: str) -> set[int]:
    """Sequence numbers of data that left or reached a node."""
    there = trace.filter((pl.col(column) == node) & pl.col("kind").str.contains("data"))
    return set(there["offset"].drop_nulls().to_list())


@dataclass(frozen=True)
class _Flow:
    """One direction of a connection on one interface.

    A gateway that splits a connection has two flows with the same addresses and ports.
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
    """Connection with most data, and others between the same programs, in order of time.

    Sent data takes precedence over received data, because a relay has two connections per file.
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
        raise UserError(f"no data of a connection at {node}")
    largest = max(chosen, key=lambda flow: chosen[flow])
    # A repeated connection goes from a new port to the same port.
    well_known, minimum = min(largest.ports), chosen[largest] / 20
    order = {_Flow.of(one): one.at_s for one in reversed(found)}
    alike = [
        flow
        for flow, size in chosen.items()
        if (flow.interface, flow.source) == (largest.interface, largest.source)
        and well_known in flow.ports
        and size >= minimum
    ]
    return sorted(alike, key=lambda flow: order[flow])


def exchange_of(node: str, found: Sequence[Segment], trace: pl.DataFrame) -> Exchange:
    exchange = Exchange(node, is_tcp=True)
    flows = _flows(node, found, trace)
    lost, start = losses(trace), 0
    for flow in flows:
        _connection(exchange, found, flow, start, lost)
        # The next connection continues after the acknowledged data.
        start = max([start, *(value for _, value in exchange.acks)])
    known = {flow.ports for flow in flows}
    for one in found:
        # Attempts to connect that received no reply.
        is_try = one.syn and not one.ack and one.ports not in known
        if is_try and (one.interface, one.source) == (flows[0].interface, flows[0].source):
            exchange.marks.append(Mark(one.at_s, "SYN", False))
    return exchange


def _connection(
    exchange: Exchange, found: Sequence[Segment], flow: _Flow, start: int,
    lost: dict[int, list[float]],
) -> None:  # fmt: skip
    """Adds a connection whose first byte of data is at offset `start`."""
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
                gone = is_lost(lost, one.sequence, one.at_s)
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


def losses(trace: pl.DataFrame) -> dict[int, list[float]]:
    """Times of lost data on any link, by offset."""
    gone = trace.filter(
        (pl.col("fate") != DELIVERED) & pl.col("kind").str.contains("data")
        & pl.col("offset").is_not_null()
    )  # fmt: skip
    found: dict[int, list[float]] = {}
    for offset, at in gone.select("offset", "sent_s").sort("sent_s").iter_rows():
        found.setdefault(offset, []).append(at)
    return found


def is_lost(lost: dict[int, list[float]], sequence: int, at_s: float) -> bool:
    """Whether this transmission was lost.

    A later link may lose the packet after a wait in its queue. So the first loss of these bytes
    after the transmission belongs to it.
    """
    times = lost.get(sequence, [])
    while times and times[0] < at_s - 1e-9:
        times.pop(0)
    if not times or times[0] - at_s > LATEST_S:
        return False
    times.pop(0)
    return True
