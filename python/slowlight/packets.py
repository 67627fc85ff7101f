"""Contents of captures: datagrams and TCP segments with their times.

>>> import slowlight
>>> run = slowlight.Scenario.find("grc-10kb").single(capture_at="dst")
>>> frame = slowlight.read_capture(run.capture)
>>> frame.select("at_s", "source", "data_bytes").row(0)
(1.25, '192.168.100.1', 42)
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from slowlight import native
from slowlight.errors import user_errors

# Columns of IP, UDP and TCP headers, of the decoded datagram, and of the capture's comment.
# `window` is in bytes, scaled as negotiated (RFC 7323 §2); `sack` has the left and right edges of
# SACK blocks.
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "at_s": pl.Float64,
    "interface": pl.UInt32,
    "protocol": pl.UInt8,
    "source": pl.String,
    "source_port": pl.UInt16,
    "destination": pl.String,
    "destination_port": pl.UInt16,
    "ip_bytes": pl.UInt32,
    "data_bytes": pl.UInt32,
    "says": pl.String,
    "comment": pl.String,
    "sequence": pl.UInt32,
    "acknowledgment": pl.UInt32,
    "window": pl.UInt32,
    "flags": pl.String,
    "sack": pl.List(pl.List(pl.UInt32)),
}


def read_capture(capture: bytes | str | Path, protocol: str | None = None) -> pl.DataFrame:
    """Returns the IPv4 packets of a capture, one row each, from a pcapng or pcap file or its bytes.

    `says` is a decoded line for each datagram of CFDP, LTP, NORM or Saratoga. The default protocol
    is the one that decodes most datagrams. Warns if the capture ends within a packet.
    """
    content = capture if isinstance(capture, bytes) else Path(capture).read_bytes()
    with user_errors():
        columns, cut = native.packets(content, protocol)
    if cut:
        warnings.warn(cut, stacklevel=2)
    return pl.DataFrame(columns, schema=SCHEMA)


@dataclass(frozen=True)
class Datagram:
    """A UDP datagram: its lengths in bytes, with the IP header and of its payload."""

    at_s: float
    interface: int
    source: str
    destination: str
    ports: tuple[int, int]
    ip_bytes: int
    data: int
    says: str
    comment: str


@dataclass(frozen=True)
class Segment:
    """A TCP segment; `data` and `window` are in bytes."""

    at_s: float
    interface: int
    source: str
    destination: str
    ports: tuple[int, int]
    sequence: int
    acknowledgment: int
    data: int
    window: int
    syn: bool
    ack: bool
    fin: bool
    rst: bool
    # Left and right edges of SACK blocks.
    sack: tuple[tuple[int, int], ...]


def datagrams(frame: pl.DataFrame) -> list[Datagram]:
    """Returns the UDP datagrams of a capture."""
    rows = frame.filter(pl.col("says").is_not_null()).iter_rows(named=True)
    return [
        Datagram(
            row["at_s"], row["interface"], row["source"], row["destination"],
            (row["source_port"], row["destination_port"]), row["ip_bytes"], row["data_bytes"],
            row["says"], row["comment"] or "",
        )
        for row in rows
    ]  # fmt: skip


def segments(frame: pl.DataFrame) -> list[Segment]:
    """Returns the TCP segments of a capture."""
    found = []
    for row in frame.filter(pl.col("flags").is_not_null()).iter_rows(named=True):
        flags = row["flags"].split(",")
        found.append(
            Segment(
                row["at_s"], row["interface"], row["source"], row["destination"],
                (row["source_port"], row["destination_port"]), row["sequence"],
                row["acknowledgment"], row["data_bytes"], row["window"],
                "SYN" in flags, "ACK" in flags, "FIN" in flags, "RST" in flags,
                tuple((left, right) for left, right in row["sack"]),
            )
        )  # fmt: skip
    return found


def after(this: int, that: int) -> bool:
    """Whether a sequence number is after another, modulo 2^32."""
    return 0 < (this - that) % 2**32 < 2**31
