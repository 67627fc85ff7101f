"""A study's report, and the scenarios of its cells."""

from __future__ import annotations

import re
import tempfile
import unittest
from pathlib import Path

import made

from slowlight import report
from slowlight.errors import UserError
from slowlight.results import Results, find
from slowlight.scenario import Scenario
from slowlight.study import Study

WORLD = Scenario("""
    seed = 1
    links = [{ from = "a", to = "b" }, { from = "b", to = "a", per = "0" }]
    nodes.a.mib.x = 1
    transfers = [{ size = "1 kB" }]
""")


class Worlds(unittest.TestCase):
    def test_keys_lead_to_one_place_or_several(self) -> None:
        told = WORLD.changed({"links.*.delay": "1 s", "links.b>a.per": "0.1",
                              "transfers.0.size": "2 kB", "nodes.b.mib.y": 2}).table()  # fmt: skip
        self.assertEqual([link["delay"] for link in told["links"]], ["1 s", "1 s"])
        self.assertEqual(told["links"][1]["per"], "0.1")
        self.assertEqual(told["nodes"]["b"], {"mib": {"y": 2}})
        self.assertEqual(WORLD.table()["transfers"], [{"size": "1 kB"}], "the other is as it was")
        with self.assertRaisesRegex(UserError, "links.7.per: there is no 7; take `[*]`"):
            WORLD.changed({"links.7.per": "0"})

    def test_keys_are_taken_away(self) -> None:
        told = WORLD.changed({}, without=["nodes.a.mib", "links.*.per", "nodes.c.mib"]).table()
        self.assertEqual(told["nodes"]["a"], {})
        self.assertNotIn("per", told["links"][1])

    def test_scenarios_have_names(self) -> None:
        self.assertEqual(Scenario.find("grc").single().transfers[0]["completed"], True)
        with self.assertRaisesRegex(UserError, 'did you mean "geo"'):
            Scenario.find("goe")

    def test_cells_are_the_scenario_with_their_values(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            results = Results.read(made.folder(Path(place)))
            world = results.cell("grid", {"protocol": "ltp", "delay": "far"}).table()
            with self.assertRaisesRegex(UserError, 'no value "near"'):
                results.cell("grid", {"delay": "near"})
            with self.assertRaisesRegex(UserError, 'no axis "delai"; did you mean "delay"'):
                results.cell("grid", {"delai": "near"})
        self.assertEqual(world["transfers"][0]["protocol"], "ltp")
        self.assertEqual([link["delay"] for link in world["links"]], ["1250 ms"] * 2)
        self.assertEqual(world["links"][0]["per"], "0")

    def test_worlds_of_ones_own_study_are_kept_with_its_results(self) -> None:
        study = """
            about = "mine"
            [[editions.all.sheets]]
            name = "grid"
            world = "my-world.toml"
            [[figures]]
            kind = "sequence"
            sheet = "grid"
            edition = "all"
            [[figures]]
            kind = "sequence"
            scenario = "my-world.toml"
            file = "other"
            edition = "all"
        """
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            (place / "my-world.toml").write_text(Scenario.between("geo", size="5 kB").text)
            (place / "mine.toml").write_text(study)
            Study(str(place / "mine.toml")).run(folder=place / "mine-all", progress=False)
            # The results have all that is needed.
            (place / "my-world.toml").unlink()
            (place / "mine.toml").unlink()
            drawn = report.write("mine", [place], place / "page")
            results = find("mine", [place])["all"]
            self.assertEqual(results.scenario("my-world.toml").table()["seed"], 1)
            page = next(path for path in drawn if path.suffix == ".html").read_text()
        self.assertNotIn("there is no scenario", page)
        self.assertEqual(page.count("<figure"), 2)


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


class OfStudies(unittest.TestCase):
    def test_a_study_that_was_run_has_its_report(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            (place / "studies").mkdir()
            text = made.STUDY.replace("../scenarios", str(made.ROOT / "scenarios"))
            (place / "studies/made.toml").write_text(text)
            out = place / "results/made-published"
            Study(str(place / "studies/made.toml")).run(folder=out, progress=False)
            page = report.write("made", [place], place / "out")[0].read_text()
        self.assertIn("Figure 1. Goodput", page)
        self.assertIn("36, 0", page, "runs and failures")


if __name__ == "__main__":
    unittest.main()
