"""Results that tests make up: a study of two protocols, three error rates and two delays."""

from __future__ import annotations

import json
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
