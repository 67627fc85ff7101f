"""Worlds and grids of them, through the compiled module."""

from __future__ import annotations

import contextlib
import doctest
import re
import tempfile
import unittest
from pathlib import Path

import polars as pl

import slowlight
from slowlight import scenario, study, theory
from slowlight.scenario import Scenario

ROOT = Path(__file__).resolve().parents[2]


def load_tests(
    _loader: unittest.TestLoader, tests: unittest.TestSuite, _pattern: str | None
) -> unittest.TestSuite:
    """The examples of the documentation are tests, too."""
    for module in (scenario, study, theory):
        tests.addTests(doctest.DocTestSuite(module))
    tests.addTest(guide(ROOT / "docs" / "guides" / "python.md"))
    return tests


def guide(path: Path) -> doctest.DocTestCase:
    """The blocks of Python of a guide, one after the other, in a folder of their own."""
    blocks = re.findall(
        r"^```python\n(.*?)^```$", path.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, path.stem, str(path), 0)
    if not examples.examples:
        raise ValueError(f"{path} has no examples")
    places = contextlib.ExitStack()

    def enter(_: doctest.DocTest) -> None:
        places.enter_context(contextlib.chdir(places.enter_context(tempfile.TemporaryDirectory())))

    return doctest.DocTestCase(
        examples, doctest.ELLIPSIS, setUp=enter, tearDown=lambda _: places.close()
    )


class Worlds(unittest.TestCase):
    def test_a_world_has_metrics_and_packets(self) -> None:
        run = Scenario.between("geo", size="100 kB").single(trace=True)
        (transfer,) = run.transfers
        self.assertTrue(transfer["completed"])
        sent = run.trace.filter(pl.col("from") == "sender")
        self.assertEqual(len(sent), transfer["packets_str"])
        self.assertTrue(sent["sent_s"].is_sorted())
        self.assertAlmostEqual(sent["at_s"][0] - sent["sent_s"][0], 0.25, places=3)

    def test_every_scenario_of_the_project_is_one(self) -> None:
        for path in sorted((ROOT / "scenarios").glob("*.toml")):
            with self.subTest(path.name):
                Scenario.read(path).check()

    def test_mistakes_are_named(self) -> None:
        with self.assertRaisesRegex(ValueError, 'did you mean "geo"'):
            Scenario.between("goe").check()
        with self.assertRaisesRegex(ValueError, "unknown field `sede`; did you mean `seed`"):
            Scenario("sede = 1").check()
        with self.assertRaisesRegex(ValueError, "links.7.delay: there is no 7"):
            Scenario.between("geo").vary("links.7.delay", ["1 s"]).run()
        with self.assertRaisesRegex(ValueError, "has no unit"):
            Scenario.between("geo").vary("links.*.delay", [3]).run()


class Sweeps(unittest.TestCase):
    sweep = (
        Scenario.between("geo", size="50 kB")
        .vary("transfers.0.protocol", ["cfdp", "saratoga"], "protocol")
        .vary("links.*.per", ["0", "1e-1"])
        .seeds(3)
    )

    def test_rows_are_in_the_grids_order_for_any_number_of_jobs(self) -> None:
        one = self.sweep.run(jobs=1, progress=False)
        self.assertEqual(len(one), 12)
        self.assertEqual(one["protocol"].to_list(), ["cfdp"] * 6 + ["saratoga"] * 6)
        self.assertEqual(one["per_value"].to_list(), ([0.0] * 3 + [0.1] * 3) * 2)
        self.assertEqual(one["seed"].to_list(), [1, 2, 3] * 4)
        self.assertTrue(one.equals(self.sweep.run(jobs=3, progress=False)))
        # A cell is the world that it says.
        cell = Scenario.between("geo", protocol="saratoga", size="50 kB").single()
        self.assertEqual(one["delivered_s"][6], cell.transfers[0]["delivered_s"])

    def test_what_is_kept_is_not_run_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            first = self.sweep.run(folder=folder, progress=False)
            journal = Path(folder, "runs.jsonl")
            before = journal.read_bytes()
            again = self.sweep.run(folder=folder, progress=False)
            self.assertEqual(journal.read_bytes(), before)
            self.assertTrue(first.equals(again))
            # As after a kill while a run was being written.
            lines = before.splitlines(keepends=True)
            journal.write_bytes(b"".join(lines[:6]) + lines[6][:20])
            self.assertTrue(first.equals(self.sweep.run(folder=folder, progress=False)))
            self.assertTrue(first.equals(pl.read_parquet(Path(folder, "sweep.parquet"))))
            more = self.sweep.seeds(4).run(folder=folder, progress=False)
            self.assertEqual(len(more), 16)
            self.assertTrue(more.filter(pl.col("run") < 3).equals(first))


class Theory(unittest.TestCase):
    def test_simulated_transfers_are_not_faster_than_the_bound(self) -> None:
        frame = Scenario.between("geo", size="1 MB").vary("links.*.per", ["0"]).run(progress=False)
        self.assertLessEqual(frame["bound_s"][0], frame["delivered_s"][0])

    def test_versions_agree(self) -> None:
        manifest = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
        self.assertIn(f'version = "{slowlight.version()}"', manifest)


if __name__ == "__main__":
    unittest.main()
