"""Reports, figures and claims without the compiled module."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import made

from slowlight import figures, report
from slowlight.results import find
from slowlight.study import Study

# A progress bar is not needed either.
WITHOUT = """
import sys
sys.modules["slowlight._native"] = sys.modules["tqdm"] = None
from slowlight.__main__ import main
sys.exit(main())
"""
REMEDY = "this needs the compiled module"
PACKETS = """
[[figures]]
figure = "2"
kind = "sequence"
where = { protocol = "cfdp" }
"""


def without(place: Path, *words: str) -> tuple[int, str, str]:
    """Runs a command of the package: exit code, output and messages."""
    environment = {**os.environ, "PYTHONPATH": str(made.ROOT / "python")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words],
        cwd=place, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def with_figure(page: str, number: int) -> tuple[str, str]:
    """A figure of a page, and the page without it."""
    (figure,) = re.findall(rf'<figure id="figure-{number}">.*?</figure>', page, re.DOTALL)
    return figure, page.replace(figure, "")


class WithoutNative(unittest.TestCase):
    place: Path

    @classmethod
    def setUpClass(cls) -> None:
        place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(place.cleanup)
        cls.place = Path(place.name)
        text = made.STUDY.replace("../scenarios", str(made.ROOT / "scenarios"))
        text = text.replace('paper = ""', 'paper = "S4"').replace("runs = 3", "runs = 2")
        (cls.place / "made.toml").write_text(text + PACKETS)
        out = cls.place / "results/made-published"
        Study(str(cls.place / "made.toml")).run(folder=out, progress=False)

    def test_the_page_is_the_same_but_for_figures_of_packets(self) -> None:
        (expected, *_) = report.write("made", [self.place], self.place / "with")
        code, _, err = without(self.place, "report", "made", "--out", "without")
        self.assertEqual(code, 0, err)
        self.assertIn(f"figure-2: not drawn: {REMEDY}", err)
        figure, page = with_figure((self.place / "without/made.html").read_text(), 2)
        drawn, same = with_figure(expected.read_text(), 2)
        self.assertEqual(page, same)
        self.assertIn("<svg", drawn)
        self.assertIn(f"Not drawn: {REMEDY}", figure)
        self.assertIn("make python", figure)

    def test_figures_of_tables_are_drawn(self) -> None:
        code, out, err = without(self.place, "figures", "made", "--format", "svg")
        self.assertEqual((code, out), (2, "figures/made/figure-1.svg\n"), err)
        self.assertIn(f"figure-2: not drawn: {REMEDY}", err)
        results = find("made", [self.place])["published"]
        spec = figures.of_study(results.study)[0]
        (expected,) = figures.write(spec, results, self.place / "with", ["svg"])
        drawn = self.place / "figures/made/figure-1.svg"
        self.assertEqual(drawn.read_bytes(), expected.read_bytes())

    def test_claims_that_simulate_are_not_run(self) -> None:
        code, out, err = without(self.place, "claims", "S0-06", "S0-27", "S4-01")
        self.assertEqual(code, 2, err)
        self.assertIn("1 cannot be checked, 2 were not run", out)
        self.assertIn(f"not run: {REMEDY}", err)
        self.assertIn("slowlight study run cislunar-2009", err)
        self.assertNotIn("Traceback", err)

    def test_a_report_without_conditions_says_so(self) -> None:
        results = find("made", [self.place])["published"]
        kept = results.folder / "grid.conditions.json"
        text = kept.read_text()
        kept.unlink()
        self.addCleanup(kept.write_text, text)
        code, _, err = without(self.place, "report", "made", "--out", "lacking")
        self.assertEqual(code, 0, err)
        page = (self.place / "lacking/made.html").read_text()
        self.assertIn("grid.conditions.json is missing: run the study again", page)

    def test_a_built_in_study_is_that_of_the_checkout(self) -> None:
        built_in = (made.ROOT / "studies/choose.toml").read_text()
        there = self.place / "results/choose-published"
        there.mkdir()
        old = 'about = "before"\neditions.published.sheets = []\n'
        (there / "study.toml").write_text(old)
        manifest = '{"study": "choose", "edition": "published", "sheets": []}'
        (there / "manifest.json").write_text(manifest)
        code, _, err = without(self.place, "report", "choose", "--out", "choose")
        self.assertEqual(code, 0, err)
        (about, *_) = re.findall(r'^about = "(.*)"$', built_in, re.MULTILINE)
        self.assertIn(f"<h1>{about}</h1>", (self.place / "choose/choose.html").read_text())


if __name__ == "__main__":
    unittest.main()
