"""The studies of the papers, run, and their verdicts compared with those of the pages.

Three of them take minutes: these have fewer runs here, smaller files, and no cells that no claim is
about. With `SLOWLIGHT_STUDIES=1`, as `make nightly` sets it, each is run as published.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import polars as pl
from test_claims import verdicts_of_page

from slowlight.claims import PAPERS, catalogue
from slowlight.results import Results
from slowlight.scenario import inline_toml
from slowlight.study import Study

PUBLISHED = "published"
WHOLE = "SLOWLIGHT_STUDIES" in os.environ
Sheets = dict[str, dict[str, Any]]


def less_of_small_sat(sheets: Sheets) -> None:
    """5 runs of 10."""
    for sheet in sheets.values():
        sheet["runs"] = 5


def less_of_cislunar(sheets: Sheets) -> None:
    """4 runs of 16; outages, and 15 segments in flight, at three of nine delays."""
    between = ["1500 ms", "2500 ms", "3000 ms", "3500 ms", "4000 ms", "4500 ms"]
    outages = ["30 s", "60 s", "90 s", "120 s"]
    for sheet in sheets.values():
        sheet["runs"] = 4
    sheets["grid"]["skip"] = [{"delay": between, "outage": outages}]
    sheets["window"]["skip"] = [{"delay": between}]


def less_of_global_hawk(sheets: Sheets) -> None:
    """One run of 3; 100 MB only where 10 MB, over before the queue is full, change a verdict."""
    compared = ["0", "1e-5 a packet"]
    other = ["1e-7 a packet", "1e-7 a bit", "1e-5 a bit"]
    grid, windows = sheets["grid"], sheets["windows"]
    grid["runs"] = windows["runs"] = 1
    grid["skip"] += [
        {"errors": other, "pep": "scps"},
        {"errors": other, "protocol": ["scp", "sftp", "rsync"]},
        {"errors": other, "protocol": ["ftp", "ftp, tuned"], "rtt": "0 ms"},
        {"errors": compared, "protocol": ["ftp", "sftp", "rsync"], "rtt": ["100 ms", "300 ms"]},
        {"protocol": "ftp, tuned", "pep": "scps", "rtt": ["0 ms", "100 ms", "300 ms"]},
    ]
    small = {"rtt": ["0 ms", "300 ms"], "errors": other}
    for axis in grid["axes"]:
        for value in axis["values"]:
            if value["label"] in small.get(axis["name"], []):
                value["set"]["transfers.0.size"] = "10 MB"
    windows["skip"] = [
        {"errors": "1e-5 a packet"},
        {"pep": "scps"},
        {"protocol": "ftp, tuned", "pep": "none"},
        {"protocol": "ftp, 12000 B", "pep": "scps for 100 ms"},
    ]


LESS: dict[str, Callable[[Sheets], None]] = {
    "small-sat-2000": less_of_small_sat,
    "cislunar-2009": less_of_cislunar,
    "global-hawk-2012": less_of_global_hawk,
}


def written(name: str, place: Path) -> Path:
    """The study as it is run here, in a file."""
    table = tomllib.loads((made.ROOT / f"studies/{name}.toml").read_text("utf-8"))
    sheets: Sheets = {sheet["name"]: sheet for sheet in table["editions"][PUBLISHED]["sheets"]}
    if name in LESS and not WHOLE:
        LESS[name](sheets)
    for sheet in sheets.values():
        sheet["world"] = str(made.ROOT / "scenarios" / Path(sheet["world"]).name)
    parts = {key: table[key] for key in ("about", "source", "paper")}
    parts["editions"] = {PUBLISHED: table["editions"][PUBLISHED]}
    file = place / f"{name}.toml"
    file.write_text("".join(f"{key} = {inline_toml(value)}\n" for key, value in parts.items()))
    return file


class Studies(unittest.TestCase):
    def verdicts_hold(self, paper: str) -> Results:
        """Runs the study of a paper, and compares the verdicts with those of its page."""
        place = Path(self.enterContext(tempfile.TemporaryDirectory()))
        name = PAPERS[paper].study
        folder = place / f"{name}-{PUBLISHED}"
        Study(str(written(name, place)), PUBLISHED).run(folder=folder, progress=False)
        checked = catalogue.check(catalogue.chosen(catalogue.read(), [paper]), [place])
        self.assertEqual([one.missing for one in checked if one.missing], [])
        stated, found = verdicts_of_page(paper), {}
        for one in checked:
            for finding in one.findings:
                part = one.entry.id + finding.part
                found[part] = finding.verdict.value
                with self.subTest(part):
                    self.assertEqual(finding.verdict.value, stated.get(part), finding)
        self.assertEqual(set(found), set(stated))
        results = Results.read(folder)
        for sheet in results.sheets:
            # No end takes a transfer for complete that is not.
            self.assertEqual(results.table(sheet).filter("wrong_success").height, 0, sheet)
        return results

    def assert_completed(self, rows: pl.DataFrame) -> None:
        """Every file of these runs arrived unchanged."""
        self.assertGreater(rows.height, 0)
        failed = rows.filter(~pl.col("completed") | ~pl.col("verified"))
        self.assertEqual(failed.height, 0, failed)

    def all_complete(self, results: Results) -> None:
        """Every file arrived, and every world came to rest."""
        self.assertEqual(results.manifest["failed"], 0)
        for sheet in results.sheets:
            self.assert_completed(results.table(sheet))

    def test_grc_2012(self) -> None:
        self.verdicts_hold("S0")

    def test_ltpt_2007(self) -> None:
        results = self.verdicts_hold("S1")
        self.assert_completed(results.table("two-hops"))
        one_hop = results.table("one-hop")
        self.assert_completed(one_hop.filter(pl.col("protocol") != "sftp"))
        # Each run that failed is a login over too long a path.
        self.assertEqual(results.manifest["failed"], one_hop.filter(~pl.col("completed")).height)

    def test_global_hawk_2012(self) -> None:
        self.all_complete(self.verdicts_hold("S2"))

    def test_small_sat_2000(self) -> None:
        self.all_complete(self.verdicts_hold("S3"))

    def test_cislunar_2009(self) -> None:
        self.all_complete(self.verdicts_hold("S4"))


if __name__ == "__main__":
    unittest.main()
