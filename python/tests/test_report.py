"""A study's report, and the scenarios of its cells."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import tomllib
import unittest
from pathlib import Path

import made

from slowlight import report, single
from slowlight.errors import UserError
from slowlight.results import Results

WORLD = {"seed": 1, "links": [{"from": "a", "to": "b"}, {"from": "b", "to": "a", "per": "0"}],
         "nodes": {"a": {"mib": {"x": 1}}}, "transfers": [{"size": "1 kB"}]}  # fmt: skip


class Worlds(unittest.TestCase):
    def test_keys_lead_to_one_place_or_several(self) -> None:
        told = single.changed(WORLD, {"links.*.delay": "1 s", "links.b>a.per": "0.1",
                                      "transfers.0.size": "2 kB", "nodes.b.mib.y": 2})  # fmt: skip
        self.assertEqual([link["delay"] for link in told["links"]], ["1 s", "1 s"])
        self.assertEqual(told["links"][1]["per"], "0.1")
        self.assertEqual(told["nodes"]["b"], {"mib": {"y": 2}})
        self.assertEqual(WORLD["transfers"], [{"size": "1 kB"}], "the scenario is as it was")
        with self.assertRaisesRegex(UserError, r"links.7.per: the scenario has nothing there"):
            single.changed(WORLD, {"links.7.per": "0"})

    def test_keys_are_taken_away(self) -> None:
        told = single.without(WORLD, ["nodes.a.mib", "links.*.per", "nodes.c.mib"])
        self.assertEqual(told["nodes"], {"a": {}})
        self.assertNotIn("per", told["links"][1])

    def test_a_world_as_toml_is_the_same_world(self) -> None:
        odd = {**WORLD, "about": 'a "b"\n\\ ü', "flag": True, "many": [[1, 2.5], []]}
        self.assertEqual(tomllib.loads(single.text(odd)), odd)

    def test_cells_are_the_scenario_with_their_values(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            results = Results.read(made.folder(Path(place)))
        world = single.cell(results, "grid", {"protocol": "ltp", "delay": "far"})
        self.assertEqual(world["transfers"][0]["protocol"], "ltp")
        self.assertEqual([link["delay"] for link in world["links"]], ["1250 ms"] * 2)
        self.assertEqual(world["links"][0]["per"], "0")
        with self.assertRaisesRegex(UserError, "no value 'near'"):
            single.cell(results, "grid", {"delay": "near"})


class Reports(unittest.TestCase):
    def test_a_page_needs_nothing_else_and_is_the_same_each_time(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            made.folder(place)
            one = report.write("made", [place], place / "one")
            two = report.write("made", [place], place / "two")
            self.assertEqual([path.name for path in one], ["made.html", "made.pdf"])
            for first, second in zip(one, two, strict=True):
                self.assertEqual(first.read_bytes(), second.read_bytes())
            page = one[0].read_text()
            self.assertEqual(one[1].read_bytes()[:5], b"%PDF-")
        self.assertNotRegex(page, r'<(script|link|img|iframe)|(src|href)="(?!#)')
        self.assertIn("<svg", page)
        self.assertIn("7,920,000 ± 46,188", page)
        ids = re.findall(r'\bid="([^"]+)"', page)
        self.assertEqual(len(ids), len(set(ids)), "no name is twice")

    def test_figures_that_cannot_be_drawn_say_why(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = made.folder(Path(name))
            text = (folder / "study.toml").read_text()
            (folder / "study.toml").write_text(text.replace('x = "per"', 'x = "pre"'))
            told = report.make("made", [Path(name)])
        self.assertIsNone(told.drawn[0].figure)
        self.assertIn("did you mean 'per'", told.drawn[0].missing)


@made.with_binary
class OfStudies(unittest.TestCase):
    def test_a_study_that_was_run_has_its_report(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            (place / "studies").mkdir()
            text = made.STUDY.replace("../scenarios", str(made.ROOT / "scenarios"))
            (place / "studies/made.toml").write_text(text)
            out = place / "results/made-published"
            binary = single.binary()
            words = [binary, "study", "run", "studies/made.toml", "--out", str(out)]
            done = subprocess.run(
                words, cwd=place, env=os.environ, capture_output=True, text=True, check=False
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            page = report.write("made", [place], place / "out")[0].read_text()
        self.assertIn("Figure 1. Goodput", page)
        self.assertIn("36, 0", page, "runs and failures")


if __name__ == "__main__":
    unittest.main()
