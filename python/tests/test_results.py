"""Results of studies as tables."""

from __future__ import annotations

import math
import tempfile
import unittest
from pathlib import Path

import made
import polars as pl

from slowlight.errors import UserError
from slowlight.results import (
    Results,
    chosen,
    derived,
    find,
    is_started,
    number_column,
    summary,
)


class Tables(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        self.folder = made.folder(self.place)

    def test_results_are_found_by_name_and_edition(self) -> None:
        for where in (self.place, self.folder):
            self.assertEqual(list(find("made", [where])), ["published"])
        results = self.place / "results"
        results.mkdir()
        self.folder.rename(results / self.folder.name)
        self.assertEqual(list(find("made", [self.place])), ["published"])
        self.assertEqual(find("other", [self.place]), {})

    def test_results_of_the_emulator_are_none_of_the_edition(self) -> None:
        self.folder.rename(self.place / "made-published-emu")
        self.assertEqual(find("made", [self.place]), {})
        self.assertEqual(list(find("made", [self.place / "made-published-emu"])), ["published"])

    def test_runs_that_were_started_and_not_completed_are_recognized(self) -> None:
        self.assertFalse(is_started("made", [self.place]))
        (self.folder / "manifest.json").unlink()
        self.assertTrue(is_started("made", [self.place]))
        # "made-published" is also how a study "made-x" with other editions could begin.
        self.assertFalse(is_started("made-x", [self.place]))
        self.assertFalse(is_started("mad", [self.place]))

    def test_a_folder_of_results_tells_what_was_run(self) -> None:
        results = Results.read(self.folder)
        self.assertEqual((results.name, results.edition, results.sheets),
                         ("made", "published", ["grid"]))  # fmt: skip
        self.assertEqual(results.axes()["delay"], ["25 ms", "far"])
        self.assertEqual(results.metadata()["sheet"], "grid")
        self.assertEqual(results.table().height, 36)
        self.assertEqual(set(results.digests()), {"study.toml", "grid.parquet"})

    def test_what_is_missing_is_named_with_its_remedy(self) -> None:
        with self.assertRaisesRegex(UserError, r"has no results: .*study.toml is missing"):
            Results.read(self.place)
        results = Results.read(self.folder)
        with self.assertRaisesRegex(UserError, "no sheet 'grit'; did you mean 'grid'"):
            results.table("grit")
        (self.folder / "grid.parquet").unlink()
        with self.assertRaisesRegex(UserError, "slowlight study run made --edition published"):
            Results.read(self.folder).table("grid")

    def test_summaries_have_mean_standard_error_and_failures(self) -> None:
        told = summary(made.rows(), ["protocol", "per", "delay"], "goodput_bps")
        cell = chosen(told, {"protocol": "cfdp", "per": "0", "delay": "far"})
        self.assertAlmostEqual(cell["mean"][0], 8e6 * 0.99)
        # 8.00, 7.92 and 7.84: a deviation of 0.08.
        self.assertAlmostEqual(cell["sem"][0], 8e4 / math.sqrt(3), places=3)
        failed = chosen(told, {"protocol": "ltp", "per": "1e-2", "delay": "far"})
        self.assertEqual((failed["n"][0], failed["missing"][0]), (2, 1))

    def test_one_run_has_no_error(self) -> None:
        told = summary(made.rows().head(1), ["per"], "goodput_bps")
        self.assertEqual(told["sem"][0], 0.0)

    def test_wrong_columns_are_named(self) -> None:
        with self.assertRaisesRegex(UserError, "did you mean 'delay'"):
            chosen(made.rows(), {"dely": "far"})
        with self.assertRaisesRegex(UserError, "no column 'goodput'"):
            summary(made.rows(), ["per"], "goodput")

    def test_numbers_stand_beside_labels(self) -> None:
        self.assertEqual(number_column(made.rows(), "per"), "per_value")
        self.assertIsNone(number_column(made.rows(), "delay"))

    def test_derived_rates(self) -> None:
        frame = pl.DataFrame({"file_bytes": [1000, 1000], "delivered_s": [4.0, 4.0],
                              "transfer_s": [2.0, None], "ltt_s": [2.0, 0.0]})  # fmt: skip
        told = derived(frame)
        self.assertEqual(told["client_bps"].to_list(), [4000.0, 2000.0])
        self.assertEqual(told["discounted_bps"].to_list(), [4000.0, 2000.0])


if __name__ == "__main__":
    unittest.main()
