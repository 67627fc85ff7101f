"""Common style of all figures: colours and markers of protocol families, units, sizes.

The colours are distinct also for readers with red-green colour blindness; a test checks this.
Markers distinguish families in black and white. Members of a family (bundles over another layer, an
implementation of 2011) share its colour and marker, with separate line styles and hatchings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

# name: (label, colour, marker)
_FAMILIES = {
    "cfdp": ("CFDP", "#124EC6", "o"),
    "ltp": ("LTP", "#D04613", "s"),
    "norm": ("NORM", "#05947B", "^"),
    "norm-fec": ("NORM FEC", "#63D170", "*"),
    "saratoga": ("Saratoga", "#C170AC", "D"),
    "ftp": ("FTP", "#000000", "v"),
    "tcp": ("TCP", "#1D2749", "<"),
    "sftp": ("SFTP", "#AE076E", "P"),
    "scp": ("SCP", "#698BFB", "X"),
    "rsync": ("rsync", "#B2C1AA", "h"),
    "telnet": ("telnet", "#F38BDD", "H"),
    "bp": ("bundles", "#EFB401", ">"),
    "scps": ("SCPS-FP", "#5B3D19", "d"),
    "ltp-t": ("LTP-T", "#4E0782", "p"),
}
# Prefixes of protocol names, longest first, and the family whose look they get.
_PREFIXES = {
    "norm-fec": "norm-fec",
    "saratoga": "saratoga",
    "telnet": "telnet",
    "ltp-t": "ltp-t",
    "rsync": "rsync",
    "scps": "scps",
    "sftp": "sftp",
    "cfdp": "cfdp",
    "norm": "norm",
    "ltp": "ltp",
    "scp": "scp",
    "ftp": "ftp",
    "tcp": "tcp",
    "fp": "ftp",
    "bp": "bp",
}
# Protocols of a family, and the index of their look in all figures. Others get the remaining looks.
_VARIANTS = {
    "cfdp-1": 1,
    "cfdp-ltp": 2,
    "cfdp-bp-tcpcl": 3,
    "ltp-green": 1,
    "ltp-1k-red": 2,
    "saratoga-get": 1,
    "saratoga-blind": 2,
    "ftp-get": 1,
    "rsync-daemon": 1,
    "bp-tcpcl": 0,
    "bp-tcpcl3": 1,
    "bp-mtcp": 2,
    "bp-stcp": 3,
    "bp-udp": 4,
    "bp-ltp": 5,
    "bp-saratoga": 6,
    "bp-norm": 7,
}
LINE_STYLES: tuple[str | tuple[int, tuple[int, ...]], ...] = (
    "-",
    "--",
    ":",
    "-.",
    (0, (5, 1, 1, 1, 1, 1)),
    (0, (1, 3)),
    (0, (8, 2)),
    (0, (3, 1, 1, 1)),
    (0, (5, 2, 1, 2, 1, 2)),
    (0, (2, 1)),
    (0, (10, 3, 2, 3)),
    (0, (1, 1)),
)
# As many hatchings as line styles, for areas.
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "|||", "OO", "//..", "x..", "--..", "||..")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h", "*", "p")
# Colours of losses, retransmissions, outages and a bound.
LOST = "#D55E00"
AGAIN = "#CC79A7"
OUTAGE = "#DDDDDD"
BOUND = "#444444"

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 5.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "savefig.dpi": 160,
    # A figure always has the same bytes.
    "svg.hashsalt": "slowlight",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Look:
    """Label, colour, marker, line style and hatching of a series."""

    label: str
    color: str
    marker: str
    line: str | tuple[int, tuple[int, ...]]
    filled: bool = True
    hatch: str = ""


def applied() -> AbstractContextManager[None]:
    """Context that applies the style."""
    return matplotlib.rc_context(rc={**matplotlib.rcParamsDefault, "backend": "agg", **_SETTINGS})


def family(protocol: str) -> str | None:
    """Family of a protocol's name, like `cfdp` for `cfdp/gsfc-2007`."""
    name = protocol.lower()
    return next((known for prefix, known in _PREFIXES.items() if name.startswith(prefix)), None)


def protocol_label(protocol: str) -> str:
    """Label of a protocol in legends, like `CFDP (gsfc-2007)` for `cfdp/gsfc-2007`."""
    base, _, profile = protocol.partition("/")
    known = family(base)
    name = _FAMILIES[known][0] if known else base
    if known and base != known:
        # The rest of a name after its family, as in `saratoga-get`.
        rest = base.removeprefix(known).strip("-, ")
        name = base if known in ("bp", "scps") else f"{name} {rest}"
    return f"{name} ({profile})" if profile else name


def looks(labels: Sequence[str], is_protocol: bool | None = None) -> dict[str, Look]:
    """Look of each label: fixed for protocols, else a colour scale in their order."""
    if is_protocol is None:
        is_protocol = are_protocols(labels)
    if not is_protocol:
        return _scale(labels)
    places = _places(labels)
    found = {}
    for label in labels:
        known = family(label)
        # A protocol without a look of its own is grey.
        color, marker = _FAMILIES[known][1:] if known else ("#999999", ".")
        place = places[label] % len(LINE_STYLES)
        found[label] = Look(
            protocol_label(label), color, marker, LINE_STYLES[place], place % 2 == 0, HATCHES[place]
        )
    return shortened(found)


def are_protocols(labels: Iterable[str]) -> bool:
    """Whether all labels are names of protocols."""
    return all(family(label) for label in labels)


def _places(labels: Sequence[str]) -> dict[str, int]:
    """Index of each label's look in its family: its own, or the first that is free."""
    found: dict[str, int] = {}
    taken: set[tuple[str, int]] = set()
    # Labels with a fixed look choose first.
    for wants in (True, False):
        for label in labels:
            base = label.partition("/")[0].lower()
            known = family(label) or label
            own = _VARIANTS.get(base, 0 if base == known else None)
            if label in found or (wants and own is None):
                continue
            place = own
            if place is None or (known, place) in taken:
                if wants:
                    continue
                free = (i for i in range(len(labels) + len(LINE_STYLES)) if (known, i) not in taken)
                place = next(free)
            found[label] = place
            taken.add((known, place))
    return found


def shortened(found: dict[str, Look]) -> dict[str, Look]:
    """Omits the profile from a label if no other series has the same protocol."""
    names = [look.label.partition(" (")[0] for look in found.values()]
    return {
        key: replace(look, label=name) if names.count(name) == 1 else look
        for (key, look), name in zip(found.items(), names, strict=True)
    }


def _scale(labels: Sequence[str]) -> dict[str, Look]:
    """Colours from dark to light in the order of the labels, with a different marker each.

    Two or three series also have different lines, so that one is visible between another's dashes.
    """
    places = np.linspace(0.0, 0.82, max(len(labels), 2))
    lines = LINE_STYLES[:3] if len(labels) <= 3 else ("-",) * len(labels)
    return {
        label: Look(label, to_hex(colormaps["viridis"](place)), MARKERS[index % len(MARKERS)], line)
        for index, (label, place, line) in enumerate(zip(labels, places, lines, strict=False))
    }


@dataclass(frozen=True)
class Measure:
    """Label of a column on an axis, and the units for its values.

    `units` are pairs (name, factor in the column's unit), in ascending order.
    """

    label: str
    units: tuple[tuple[str, float], ...]

    def unit_for(self, values: Iterable[float]) -> tuple[str, float]:
        """Largest unit in which the largest value is at least one, with its factor."""
        most = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
        fitting = [unit for unit in self.units if most >= unit[1]]
        return fitting[-1] if fitting else self.units[0]

    def axis_label(self, unit: str) -> str:
        """Text of an axis: `Goodput (Mbit/s)`."""
        return f"{self.label} ({unit})" if unit else self.label


_RATE = (("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9))
_SECONDS = (("ms", 1e-3), ("s", 1.0))
_BYTES = (("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9))
_COUNT = (("", 1.0),)
MEASURES = {
    "goodput_bps": Measure("Goodput", _RATE),
    "goodput_grc_bps": Measure("Goodput", _RATE),
    "throughput_bps": Measure("Throughput", _RATE),
    "client_bps": Measure("Throughput reported by programs", _RATE),
    "discounted_bps": Measure("Goodput without one light trip time", _RATE),
    "delivered_s": Measure("Time until delivered", (("s", 1.0),)),
    "confirmed_s": Measure("Time until confirmed", (("s", 1.0),)),
    "transfer_s": Measure("Transfer time", (("s", 1.0),)),
    "ready_s": Measure("Time until ready", (("s", 1.0),)),
    "quiet_s": Measure("Time until quiet", (("s", 1.0),)),
    "wire_s": Measure("Time on the wire", (("s", 1.0),)),
    "efficiency": Measure("Efficiency: bound / time", (("%", 1e-2),)),
    "spent": Measure("Capacity spent: link bytes / file bytes", _COUNT),
    "bound_spent": Measure("Least capacity spent", _COUNT),
    "packets_str": Measure("Packets sender to receiver", _COUNT),
    "packets_rts": Measure("Packets receiver to sender", _COUNT),
    "bytes_str": Measure("Sent to receiver", _BYTES),
    "bytes_rts": Measure("Sent to sender", _BYTES),
    "link_bytes": Measure("Carried by the link", _BYTES),
    "repairs_str": Measure("Repair segments", _COUNT),
    "nacks_rts": Measure("Repair requests", _COUNT),
    "peer_window_limited_s": Measure("Time limited by the peer's window", _SECONDS),
    "send_buffer_limited_s": Measure("Time limited by the send buffer", _SECONDS),
    "packets_lost": Measure("Packets lost", _COUNT),
    "key_median_s": Measure("Median time per key", _SECONDS),
    "key_p95_s": Measure("95th percentile of time per key", _SECONDS),
    "bound_s": Measure("Bound", (("s", 1.0),)),
}
_AXES = {
    "per": Measure("Packet loss probability", _COUNT),
    "ber": Measure("Bit error rate", _COUNT),
    "delay": Measure("One-way delay", _SECONDS),
    "rtt": Measure("Round trip", _SECONDS),
    "light": Measure("Light trip time", _SECONDS),
    "ltt": Measure("Light trip time", _SECONDS),
    "size": Measure("File size", _BYTES),
    "rate": Measure("Rate", _RATE),
    "outage": Measure("Outage", (("s", 1.0),)),
    "added": Measure("Added one-way delay", _SECONDS),
    "back": Measure("Rate of the return link", _RATE),
    "errors": Measure("Errors", _COUNT),
    "pep": Measure("Gateways", _COUNT),
    "timestamps": Measure("Timestamps", _COUNT),
    "compression": Measure("Header compression", _COUNT),
}
_BY_SUFFIX = {"_s": _SECONDS, "_bps": _RATE, "_bytes": _BYTES, "_value": _COUNT}


def measure_of(column: str, axis: str | None = None) -> Measure:
    """Measure of a column, or of the axis whose numbers it has."""
    if axis in _AXES:
        return _AXES[axis]
    if column in MEASURES:
        return MEASURES[column]
    for suffix, units in _BY_SUFFIX.items():
        if column.endswith(suffix):
            name = (axis or column.removesuffix(suffix)).replace("_", " ")
            return Measure(name[:1].upper() + name[1:], units)
    name = (axis or column).replace("_", " ")
    return Measure(name[:1].upper() + name[1:], _COUNT)
