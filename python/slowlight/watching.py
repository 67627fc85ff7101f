"""Runs a scenario once, and returns the packets at one of its nodes."""

from __future__ import annotations

import polars as pl

from slowlight import connections, messages
from slowlight.errors import UserError
from slowlight.exchange import Exchange, Sent, outages
from slowlight.packets import datagrams, read_capture, segments
from slowlight.scenario import DELIVERED, Scenario
from slowlight.single import once


def watch(world: Scenario, at: str = "", seed: int | None = None) -> Exchange:
    """Runs a scenario, and returns its first transfer at a node (default: the sender).

    Raises `UserError` if there is no such node, or no data at it.
    """
    table = world.table()
    transfer = table["transfers"][0]
    node = at or str(transfer["from"])
    run = once(world, seed, node)
    seen = read_capture(run.capture)
    over_tcp, over_udp = segments(seen), datagrams(seen)
    if sum(one.data > 0 for one in over_tcp) > len(over_udp) // 2:
        exchange = connections.exchange_of(node, over_tcp, run.trace)
    else:
        exchange = messages.exchange_of(node, over_udp, run.trace)
    if not exchange.data:
        exchange = _counted(node, run.trace)
    if not exchange.data:
        raise UserError(f"no data of {transfer['protocol']} at {node}")
    exchange.outages = outages(table)
    return exchange


def _counted(node: str, trace: pl.DataFrame) -> Exchange:
    """Exchange of packets without data offsets, with bytes in the order of sending."""
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
