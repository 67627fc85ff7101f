"""What captures hold: datagrams and TCP segments with their times.

Reads the captures that slowlight writes, pcapng with raw IPv4; `segments` and `datagrams` of
anything else are empty. Other captures are for `slowlight decode` and Wireshark.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from slowlight.errors import UserError

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_TCP, _UDP = 6, 17
_ETHERNET, _RAW = 1, (101, 228)
# Options of TCP (RFC 9293 §3.1, RFC 7323 §2.2, RFC 2018 §3).
_SCALE, _SACK = 3, 5


@dataclass(frozen=True)
class Packet:
    """An IPv4 packet: seconds, the interface's number, protocol, addresses, and what it has."""

    at_s: float
    interface: int
    protocol: int
    source: str
    destination: str
    ip_bytes: int
    body: bytes


@dataclass(frozen=True)
class Datagram:
    """A UDP datagram: its ports and the length of its data in bytes."""

    at_s: float
    interface: int
    source: str
    destination: str
    ports: tuple[int, int]
    data: bytes


@dataclass(frozen=True)
class Segment:
    """A TCP segment. `window` is in bytes, scaled as the connection agreed (RFC 7323 §2)."""

    at_s: float
    interface: int
    source: str
    destination: str
    ports: tuple[int, int]
    sequence: int
    acknowledgment: int
    # Bytes of data.
    data: int
    window: int
    syn: bool
    ack: bool
    fin: bool
    rst: bool
    # Pairs of the left and right edge of what was received out of order.
    sack: tuple[tuple[int, int], ...]


def _options(block: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    while len(block) >= 4:
        code, length = struct.unpack(f"{order}HH", block[:4])
        yield code, block[4 : 4 + length]
        block = block[4 + (length + 3) // 4 * 4 :]


def _resolution(block: bytes, order: str) -> float:
    """Seconds of a unit of time stamps: `if_tsresol`, a microsecond if it is not said."""
    for code, value in _options(block, order):
        if code == 9 and value:
            power = value[0] & 0x7F
            return 2.0**-power if value[0] & 0x80 else 10.0**-power
    return 1e-6


def packets(capture: bytes) -> Iterator[Packet]:
    """The IPv4 packets of a capture. Raises `UserError` where it is no pcapng."""
    if len(capture) < 12 or struct.unpack("<I", capture[:4])[0] != _SECTION:
        raise UserError("this is no pcapng capture")
    order = "<" if capture[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
    interfaces: list[tuple[int, float]] = []
    at = 0
    while at + 12 <= len(capture):
        kind, length = struct.unpack(f"{order}II", capture[at : at + 8])
        if length < 12 or at + length > len(capture):
            return
        block = capture[at + 8 : at + length - 4]
        at += length
        if kind == _INTERFACE:
            link = struct.unpack(f"{order}H", block[:2])[0]
            interfaces.append((link, _resolution(block[8:], order)))
        elif kind == _PACKET and len(block) >= 20:
            number, high, low, size = struct.unpack(f"{order}IIII", block[:16])
            if number < len(interfaces):
                link, unit = interfaces[number]
                frame = block[20 : 20 + size]
                ip = frame[14:] if link == _ETHERNET else frame
                if link == _ETHERNET or link in _RAW:
                    yield from _packet((high << 32 | low) * unit, number, ip)


def _packet(at_s: float, interface: int, ip: bytes) -> Iterator[Packet]:
    if len(ip) < 20 or ip[0] >> 4 != 4:
        return
    header = 4 * (ip[0] & 15)
    total = struct.unpack("!H", ip[2:4])[0]
    addresses = [".".join(map(str, ip[start : start + 4])) for start in (12, 16)]
    body = ip[header:total]
    yield Packet(at_s, interface, ip[9], addresses[0], addresses[1], total, body)


def datagrams(capture: bytes) -> list[Datagram]:
    """The UDP datagrams of a capture."""
    return [
        Datagram(
            packet.at_s, packet.interface, packet.source, packet.destination,
            struct.unpack("!HH", packet.body[:4]), packet.body[8:],
        )
        for packet in packets(capture)
        if packet.protocol == _UDP and len(packet.body) >= 8
    ]  # fmt: skip


def segments(capture: bytes) -> list[Segment]:
    """The TCP segments of a capture."""
    scales: dict[tuple[int, str, tuple[int, int]], int] = {}
    found = []
    for packet in packets(capture):
        if packet.protocol == _TCP and len(packet.body) >= 20:
            found.append(_segment(packet, scales))
    return found


def _segment(packet: Packet, scales: dict[tuple[int, str, tuple[int, int]], int]) -> Segment:
    body = packet.body
    source, destination, sequence, acknowledgment = struct.unpack("!HHII", body[:12])
    header, flags, window = 4 * (body[12] >> 4), body[13], struct.unpack("!H", body[14:16])[0]
    key = (packet.interface, packet.source, (source, destination))
    sack: tuple[tuple[int, int], ...] = ()
    for kind, value in _tcp_options(body[20:header]):
        if kind == _SCALE and value:
            scales[key] = value[0]
        elif kind == _SACK:
            edges = struct.unpack(f"!{len(value) // 8 * 2}I", value[: len(value) // 8 * 8])
            sack = tuple(zip(edges[::2], edges[1::2], strict=True))
    syn = bool(flags & 2)
    return Segment(
        packet.at_s, packet.interface, packet.source, packet.destination, (source, destination),
        sequence, acknowledgment, len(body) - header,
        # The window of a SYN is never scaled (RFC 7323 §2.2).
        window << (0 if syn else scales.get(key, 0)),
        syn, bool(flags & 16), bool(flags & 1), bool(flags & 4), sack,
    )  # fmt: skip


def _tcp_options(options: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(options) and options[at] != 0:
        if options[at] == 1:
            at += 1
            continue
        length = options[at + 1] if at + 1 < len(options) else 0
        if length < 2:
            return
        yield options[at], options[at + 2 : at + length]
        at += length


def after(this: int, that: int) -> bool:
    """Whether a sequence number comes after another, in numbers that go around at 2^32."""
    return 0 < (this - that) % 2**32 < 2**31
