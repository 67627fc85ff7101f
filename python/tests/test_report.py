"""A study's report, and the scenarios of its cells."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import unittest
import zlib
from pathlib import Path
from unittest import mock

import made

from slowlight import html, pages, report
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
            page = html.page(report.make("mine", [place]))
            results = find("mine", [place])["all"]
            self.assertEqual(results.scenario("my-world.toml").table()["seed"], 1)
        self.assertEqual(page.count("<figure"), 2)
        self.assertNotIn('<h2 id="claims">', page, "the study has no paper")
        text = said(page)
        self.assertNotIn("there is no scenario", text)
        self.assertTrue(
            text.startswith("mine | Study mine, edition all: 1 run, 0 failed;"), text[:40]
        )
        for condition in ("Rate", "10 Mbit/s", "One-way delay", "250 ms", "Queue", "5 kB", "Seeds"):
            self.assertIn(f"| {condition} |", text)


def said(page: str) -> str:
    """Texts of a page without its figures, with ` | ` between elements."""
    body = re.sub(r"<svg.*?</svg>|<style.*?</style>|<title.*?</title>", "", page, flags=re.DOTALL)
    return re.sub(r"(\s*<[^>]+>\s*)+", " | ", body).strip(" |")


def has_weasyprint() -> bool:
    """Whether WeasyPrint and its libraries are installed."""
    try:
        import weasyprint
    except (ImportError, OSError):
        return False
    return bool(weasyprint)


def unpacked(pdf: bytes) -> bytes:
    """The streams of a PDF, decompressed."""
    found = []
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        with contextlib.suppress(zlib.error):
            found.append(zlib.decompress(stream))
    return pdf + b"\n".join(found)


class Reports(unittest.TestCase):
    def test_a_page_needs_nothing_else_and_is_the_same_each_time(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            made.folder(place)
            page = html.page(report.make("made", [place]))
            self.assertEqual(page, html.page(report.make("made", [place])))
        self.assertNotRegex(page, r'<(script|link|img|iframe)|(src|href)="(?!#)')
        self.assertIn("<svg", page)
        self.assertIn("7.920 ± 0.046", page)
        ids = re.findall(r'\bid="([^"]+)"', page)
        self.assertEqual(len(ids), len(set(ids)), "no name is twice")
        links = re.findall(r'<a href="#([^"]+)"', page)
        self.assertLessEqual(set(links), set(ids))
        self.assertIn("prefers-color-scheme: dark", page)

    @unittest.skipUnless(has_weasyprint() or os.environ.get("CI"), "no WeasyPrint here")
    def test_a_pdf_is_pages_of_a4_and_the_same_each_time(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            made.folder(place)
            one = report.write("made", [place], place / "one")
            two = report.write("made", [place], place / "two")
            self.assertEqual([path.name for path in one], ["made.html", "made.pdf"])
            self.assertEqual(one[1].read_bytes(), two[1].read_bytes())
            pdf = one[1].read_bytes()
        self.assertEqual(pdf[:5], b"%PDF-")
        objects = unpacked(pdf)
        boxes = re.findall(rb"/MediaBox ?\[([^]]*)\]", objects)
        self.assertGreater(len(boxes), 2)
        (size,) = {tuple(round(float(edge)) for edge in box.split()) for box in boxes}
        self.assertEqual(size, (0, 0, 595, 842))
        self.assertNotRegex(objects, rb"/Subtype ?/Image", "figures are vectors")

    def test_without_what_makes_a_pdf_the_page_is_written_alone(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            made.folder(place)
            (place / "out").mkdir()
            (place / "out/made.pdf").write_text("of other results")
            errors = io.StringIO()
            without = mock.patch.dict("sys.modules", {"weasyprint": None})
            with without, contextlib.redirect_stderr(errors):
                written = report.write("made", [place], place / "out")
            self.assertEqual([path.name for path in written], ["made.html"])
            self.assertFalse((place / "out/made.pdf").exists())
        self.assertIn(pages.NEEDED, errors.getvalue())

    def test_figures_are_numbered_from_1_and_have_alternative_texts(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = made.folder(Path(name))
            text = (folder / "study.toml").read_text()
            (folder / "study.toml").write_text(text.replace('figure = "1"', 'figure = "7"'))
            page = html.page(report.make("made", [Path(name)]))
        self.assertIn("Figure 1 (Fig. 7 of the paper). Goodput.", page)
        self.assertIn(
            'aria-label="Line chart: Goodput. Goodput against Packet loss probability. '
            'Series by protocol: CFDP, LTP. Panels by one-way delay: 25 ms, far."',
            page,
        )

    def test_numbers_have_as_many_digits_as_their_error_leaves(self) -> None:
        self.assertEqual(report.with_error(7.92, 0.046188), "7.920 ± 0.046")
        self.assertEqual(report.with_error(12345.6, 78.9), "12,346 ± 79")
        self.assertEqual(report.with_error(101.0, 0.0), "101")
        self.assertEqual(report.with_error(0.0, 0.5), "0.00 ± 0.50")
        # An error that has no visible digit is none.
        self.assertEqual(report.with_error(90.0, 1e-14), "90")

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
        self.assertIn("Figure 1 (Fig. 1 of the paper). Goodput.", page)
        self.assertIn("36, 0", page, "runs and failures")
        # A link's values are those of all cells.
        self.assertIn(
            "| 10.24 Mbit/s | varied: 25 ms, 1.25 s | per varied: 0, 1e-4, 0.01 | 1000 packets |",
            said(page),
        )


if __name__ == "__main__":
    unittest.main()
