"""Results that tests make up: a study of two protocols, three error rates and two delays."""

from __future__ import annotations

import json
import os
import shutil
import struct
import unittest
from pathlib import Path

import polars as pl

ROOT = Path(__file__).resolve().parents[2]
STUDY = """
about = "a study of tests"
source = "nobody"
paper = ""

[editions.published]
[[editions.published.sheets]]
name = "grid"
world = "../scenarios/grc.toml"
runs = 3
seed = 1
[[editions.published.sheets.axes]]
name = "protocol"
keys = ["transfers.0.protocol"]
values = ["cfdp", "ltp"]
[[editions.published.sheets.axes]]
name = "per"
keys = ["links.*.per"]
values = ["0", "1e-4", "1e-2"]
[[editions.published.sheets.axes]]
name = "delay"
keys = ["links.*.delay"]
values = ["25 ms", { label = "far", value = "1250 ms" }]

[[figures]]
figure = "1"
kind = "lines"
x = "per"
y = "goodput_bps"
series = "protocol"
panels = "delay"
title = "Goodput"
"""


def rows() -> pl.DataFrame:
    """CFDP gets 8, 6 and 1 Mbit/s, LTP half of that, less a hundredth a run; LTP fails once."""
    goodput = {"0": 8e6, "1e-4": 6e6, "1e-2": 1e6}
    made = []
    for protocol in ("cfdp", "ltp"):
        for per, rate in goodput.items():
            for delay in ("25 ms", "far"):
                for run in range(3):
                    failed = (protocol, per, delay, run) == ("ltp", "1e-2", "far", 2)
                    value = rate * (1 if protocol == "cfdp" else 0.5) * (1 - run / 100)
                    told = None if failed else value
                    made.append(
                        {
                            "protocol": protocol, "per": per, "per_value": float(per),
                            "delay": delay, "run": run, "seed": run + 1,
                            "completed": not failed, "goodput_bps": told,
                            "delivered_s": None if failed else 8e7 / value,
                            "packets_str": 100 + run, "efficiency": 0.9,
                        }
                    )  # fmt: skip
    return pl.DataFrame(made)


def folder(place: Path) -> Path:
    """Writes the results below a folder, as `slowlight study run` would."""
    there = place / "made-published"
    there.mkdir()
    (there / "study.toml").write_text(STUDY)
    manifest = {"slowlight": "0.0.0", "study": "made", "edition": "published", "runs": 36,
                "failed": 1, "sheets": [{"name": "grid", "runs": 36, "first_seed": 1}]}  # fmt: skip
    (there / "manifest.json").write_text(json.dumps(manifest))
    rows().write_parquet(there / "grid.parquet", metadata={"study": "made", "sheet": "grid"})
    return there


def with_binary(test: type[unittest.TestCase]) -> type[unittest.TestCase]:
    """Leaves a test out where there is no slowlight: `$SLOWLIGHT`, or on the path."""
    found = os.environ.get("SLOWLIGHT") or shutil.which("slowlight")
    return unittest.skipUnless(found, "needs slowlight: set SLOWLIGHT to it")(test)


def _block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def capture(packets: list[tuple[float, int, bytes]]) -> bytes:
    """A pcapng of IPv4 packets: seconds, interface, and the packet."""
    nanoseconds = struct.pack("<HHB3xHH", 9, 1, 9, 0, 0)
    interface = _block(1, struct.pack("<HHI", 101, 0, 0) + nanoseconds)
    blocks = [_block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)), interface * 2]
    for at_s, number, ip in packets:
        ticks = round(at_s * 1e9)
        head = struct.pack("<IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(ip), len(ip))
        blocks.append(_block(6, head + ip))
    return b"".join(blocks)


def tcp(
    source: int, sequence: int, acknowledgment: int, data: int = 0, flags: int = 16,
    window: int = 1000, options: bytes = b"",
) -> bytes:  # fmt: skip
    """An IPv4 packet with a segment between 10.0.0.1:1000 and 10.0.0.2:2000."""
    options += b"\x01" * (-len(options) % 4)
    ports = (1000, 2000) if source == 1 else (2000, 1000)
    length = 20 + len(options)
    segment = struct.pack(
        "!HHIIBBHHH", *ports, sequence, acknowledgment, length // 4 << 4, flags, window, 0, 0
    )
    segment += options + bytes(data)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, 6, 0)
    return head + bytes((10, 0, 0, source)) + bytes((10, 0, 0, 3 - source)) + segment
