"""Exchanges in datagrams, from decoded packets of CFDP, LTP, NORM and Saratoga."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import polars as pl

from slowlight.exchange import Exchange, Mark, Sent, Span
from slowlight.packets import Datagram

_RANGE = re.compile(r"(\d+)\.\.(=?)(\d+)")
_DATA = re.compile(r"(?:File Data|(?:red|green) data(?: (?:CP|EORP|EOB))*|\bDATA) (\d+)\.\.(\d+)")
_SYMBOL = re.compile(r"DATA object \d+ symbol (\d+):(\d+) of (\d+) B")
_NORM_FILE = re.compile(r"FTI (\d+) B in (\d+) B, blocks of (\d+)\+")
_NORM_NEEDS = re.compile(r"(\d+):(\d+):(\d+)(?:\u2013\d+:\d+:(\d+))?")
_PROGRESS = re.compile(r"STATUS (?:\w+ )?(\d+) of \d+")


class Norm:
    """Positions of the symbols of a NORM object (RFC 5052 §9.1)."""

    def __init__(self, length: int, symbol: int, block: int) -> None:
        count = math.ceil(length / symbol)
        blocks = math.ceil(count / block)
        self.symbol, self.length = symbol, length
        self.large, self.small = math.ceil(count / blocks), count // blocks
        # Number of large blocks.
        self.first = count - self.small * blocks

    def place(self, block: int, symbol: int) -> tuple[int, int, bool]:
        """Bytes of a symbol, or of the block's last symbol for parity, and whether it is parity."""
        before = min(block, self.first) * self.large + max(block - self.first, 0) * self.small
        held = self.large if block < self.first else self.small
        low = (before + min(symbol, held - 1)) * self.symbol
        return low, min(low + self.symbol, self.length), symbol >= held


def _is_data(says: str) -> bool:
    """Whether a packet carries data of the file."""
    return bool(_DATA.search(says) or _SYMBOL.search(says))


def _sender(lines: Sequence[Datagram], node: str, trace: pl.DataFrame) -> str:
    """Sender of the drawn data: the node itself if it sends data, else the main sender."""
    data = [one for one in lines if _is_data(one.says)]
    mine = {round(at, 9) for at in trace.filter(pl.col("from") == node)["sent_s"].to_list()}
    sent = [one.source for one in data if round(one.at_s, 9) in mine]
    sources = sent if 2 * len(sent) >= len(data) > 0 else [one.source for one in data]
    return max(sorted(set(sources)), key=sources.count) if sources else ""


def exchange_of(node: str, lines: Sequence[Datagram], trace: pl.DataFrame) -> Exchange:
    exchange, norm, reached = Exchange(node), None, 0
    seen: set[tuple[int, int, bool]] = set()
    sender = _sender(lines, node, trace)
    peers = {one.destination for one in lines if one.source == sender and _is_data(one.says)}
    for one in lines:
        at_s, source, ip_bytes, says = one.at_s, one.source, one.ip_bytes, one.says
        # Any host may reply to a multicast group (224 to 239).
        is_peer = source in peers or any(224 <= int(peer.split(".")[0]) < 240 for peer in peers)
        if source != sender and (not is_peer or _is_data(says)):
            # A packet of another hop.
            continue
        length = _NORM_FILE.search(says)
        if length and norm is None:
            norm = Norm(*map(int, length.groups()))
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
        lost = one.comment.startswith("lost")
        exchange.data.append(Sent(at_s, low, high, ip_bytes, again, parity, lost))
    return exchange


def _answer(exchange: Exchange, at_s: float, says: str, norm: Norm | None) -> None:
    """Adds a report of received (LTP, Saratoga) or missing bytes (CFDP, NORM, Saratoga)."""
    exchange.marks.append(Mark(at_s, _name(says), True))
    spans = [
        Span(at_s, int(low), int(high) + (1 if closed else 0))
        for low, closed, high in _RANGE.findall(says)
    ]
    if "NAK" in says:
        # The first pair is the scope of the list.
        exchange.requested += spans[1:]
    elif "received" in says:
        exchange.arrived += spans[1:]
        if len(spans) > 1 and spans[1].low == 0:
            exchange.acks.append((at_s, spans[1].high))
    elif "STATUS" in says:
        exchange.requested += spans
        progress = _PROGRESS.search(says)
        if progress:
            exchange.acks.append((at_s, int(progress[1])))
    elif "NACK" in says and norm:
        needs = says.partition("needs segments ")[2].partition(", ")[0]
        for _, block, first, last in _NORM_NEEDS.findall(needs):
            low, _, _ = norm.place(int(block), int(first))
            _, high, _ = norm.place(int(block), int(last or first))
            exchange.requested.append(Span(at_s, low, high))


_NAMES = ("ACK EOF", "ACK Finished", "Finished", "EOF", "Metadata", "METADATA", "NAK", "NACK",
          "STATUS", "REQUEST", "accepted", "poll", "FLUSH", "CC", "INFO", "EOT", "ANNOUNCE",
          "cancel", "acknowledged", "report", "Prompt", "Keep Alive", "BEACON")  # fmt: skip


def _name(says: str) -> str:
    """A packet's name; NORM's `ACK(FLUSH)` and `ACK(CC)` are separate replies."""
    answer = re.search(r"ACK\((\w+)\)", says)
    if answer:
        return answer[0]
    if "report" in says and "acknowledged" in says:
        return "report acknowledgement"
    return next((name for name in _NAMES if name in says), "other")
