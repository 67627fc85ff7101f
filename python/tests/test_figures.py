"""Figures, by what is on them rather than by pixels."""

from __future__ import annotations

import io
import tempfile
import unittest
from pathlib import Path

import made
import polars as pl
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from slowlight import figures, style
from slowlight.errors import UserError
from slowlight.figures import best, boxes, distribution, lines, table
from slowlight.results import Results

AXES = {"protocol": ["cfdp", "ltp"], "per": ["0", "1e-4", "1e-2"], "delay": ["25 ms", "far"]}
NEAR = {"delay": "25 ms"}


def drawn(**keys: object) -> Figure:
    spec = figures.read(keys)
    with style.applied():
        return figures.TABLES[spec.kind](made.rows(), spec, AXES)


class Specs(unittest.TestCase):
    def refused(self, **keys: object) -> str:
        with self.assertRaises(UserError) as caught:
            drawn(**keys)
        return str(caught.exception)

    def test_mistakes_name_the_key_and_the_nearest_right_one(self) -> None:
        self.assertIn("no key 'sereis'; did you mean 'series'", self.refused(sereis="x"))
        self.assertIn("kind is missing (kinds: lines,", self.refused(x="per"))
        self.assertIn("did you mean 'lines'", self.refused(kind="line"))
        self.assertIn("figures.y_scale", self.refused(kind="lines", y_scale="lgo"))
        self.assertIn("figures.y: a text", self.refused(kind="lines", y=3))
        told = self.refused(kind="lines", x="pre", y="goodput_bps")
        self.assertIn("figures.x: there is no column 'pre'; did you mean 'per'", told)
        wrong = self.refused(kind="lines", x="per", y="goodput_bps", where={"delay": "fat"})
        self.assertIn("figures.where.delay: there is no value 'fat'; did you mean 'far'", wrong)
        self.assertIn("needs the key 'y'", self.refused(kind="lines", x="per"))
        self.assertIn("needs the key 'x'", self.refused(kind="box", y="goodput_bps"))
        self.assertIn("two numbers", self.refused(kind="sequence", span=[1]))

    def test_names_of_files(self) -> None:
        self.assertEqual(figures.read({"kind": "lines", "figure": "5a"}).name, "figure-5a")
        self.assertEqual(figures.read({"kind": "lines", "title": "A b"}).name, "lines-a-b")
        self.assertEqual(figures.read({"kind": "lines", "figure": "5a"}).heading, "Figure 5a")
        self.assertEqual(figures.read({"kind": "cdf", "figure": "Chart 2"}).heading, "Chart 2")


class Kinds(unittest.TestCase):
    def test_lines_are_means_with_standard_errors_and_zero_stands_apart(self) -> None:
        spec = figures.read({"kind": "lines", "x": "per", "y": "goodput_bps", "where": NEAR})
        rows = table.choose(made.rows(), spec, AXES)
        at = table.positions(rows, "per", "auto")
        self.assertTrue(at.is_log)
        self.assertEqual(at.zero, 1e-4 / table.ZERO_GAP)
        found = lines.points(rows, rows.of("protocol", "cfdp"), at, "goodput_bps")
        self.assertEqual(found["label"].to_list(), ["0", "1e-4", "1e-2"])
        self.assertEqual([round(m) for m in found["mean"]], [7_920_000, 5_940_000, 990_000])
        axes = drawn(kind="lines", x="per", y="goodput_bps", series="protocol", where=NEAR).axes[0]
        self.assertEqual(axes.get_xlabel(), "Probability of losing a packet")
        self.assertEqual(axes.get_ylabel(), "Goodput (Mbit/s)")
        told = [text.get_text() for text in axes.get_xticklabels()]
        self.assertEqual(told, ["0", "1e-4", "0.01"])

    def test_panels_of_one_column_have_one_scale(self) -> None:
        figure = drawn(kind="lines", x="per", y="goodput_bps", series="protocol", panels="delay")
        limits = {axes.get_ylim() for axes in figure.axes}
        self.assertEqual((len(figure.axes), len(limits)), (2, 1))

    def test_failed_runs_are_told_in_the_legend(self) -> None:
        figure = drawn(kind="lines", x="per", y="goodput_bps", series="protocol")
        told = [text.get_text() for text in figure.legends[0].get_texts()]
        self.assertEqual(told, ["CFDP", "LTP, 1 of 18 failed"])

    def test_linear_axes_begin_at_zero_and_efficiency_has_its_bound(self) -> None:
        axes = drawn(kind="lines", x="per", y="efficiency", where=NEAR).axes[0]
        self.assertEqual(axes.get_ylim()[0], 0.0)
        self.assertEqual(axes.get_yscale(), "linear")
        self.assertIn("bound ", [text.get_text() for text in axes.texts])

    def test_boxes_are_of_runs(self) -> None:
        spec = figures.read({"kind": "box", "x": "per", "y": "packets_str", "where": NEAR})
        rows = table.choose(made.rows(), spec, AXES)
        cfdp = rows.of("protocol", "cfdp")
        self.assertEqual(boxes.samples(rows, cfdp, "0", "packets_str"), [100.0, 101.0, 102.0])
        axes = drawn(kind="box", x="per", y="packets_str", series="protocol", where=NEAR).axes[0]
        self.assertEqual([t.get_text() for t in axes.get_xticklabels()], AXES["per"])

    def test_where_all_runs_failed_a_box_says_so(self) -> None:
        only = {"protocol": "ltp", "delay": "far"}
        frame = made.rows().filter(pl.col("run") == 2)
        spec = figures.read({"kind": "box", "x": "per", "y": "goodput_bps", "where": only})
        with style.applied():
            axes = boxes.draw_boxes(frame, spec, AXES).axes[0]
        self.assertEqual([text.get_text() for text in axes.texts], ["none"])

    def test_bars_are_as_long_as_their_means(self) -> None:
        axes = drawn(kind="bars", x="per", y="goodput_bps", where={"protocol": "cfdp"}).axes[0]
        heights = [round(bar.get_height(), 2) for bar in axes.patches if isinstance(bar, Rectangle)]
        self.assertEqual(heights, [7.92, 5.94, 0.99])
        self.assertEqual(axes.get_ylim()[0], 0.0)

    def test_distributions_count_runs_that_failed(self) -> None:
        far = made.rows().filter((pl.col("delay") == "far") & (pl.col("per") == "1e-2"))
        values, shares = distribution.steps(far.filter(pl.col("protocol") == "ltp"), "delivered_s")
        self.assertEqual(len(values), 2)
        self.assertAlmostEqual(shares[-1], 2 / 3)

    def test_the_best_is_where_no_run_failed_and_leads_by_its_mean(self) -> None:
        spec = figures.read(
            {"kind": "best", "x": "per", "y": ["delay", "goodput_bps"], "series": "protocol"}
        )
        rows = table.choose(made.rows(), spec, AXES)
        told = best.winners(rows, made.rows())
        first = told.filter((pl.col("per") == "0") & (pl.col("delay") == "far"))
        self.assertEqual((first["best"][0], round(first["lead"][0], 6)), ("cfdp", 1.0))
        failed = told.filter((pl.col("per") == "1e-2") & (pl.col("delay") == "far"))
        self.assertIsNone(failed["lead"][0])
        soonest = figures.read(
            {"kind": "best", "x": "per", "y": ["delay", "delivered_s"], "series": "protocol"}
        )
        rows = table.choose(made.rows(), soonest, AXES)
        self.assertEqual(set(best.winners(rows, made.rows())["best"]), {"cfdp"})

    def test_every_kind_of_table_is_drawn_the_same_each_time(self) -> None:
        usual: dict[str, object] = {
            "x": "per",
            "y": "goodput_bps",
            "series": "protocol",
            "panels": "delay",
        }
        cases = dict[str, dict[str, object]].fromkeys(("lines", "box", "bars"), usual)
        cases["cdf"] = {"y": "delivered_s", "series": "protocol"}
        cases["best"] = {**usual, "y": ["delay", "goodput_bps"], "panels": ""}
        self.assertEqual(set(cases), set(figures.TABLES))
        for kind, keys in cases.items():
            texts = set()
            for _ in range(2):
                buffer = io.StringIO()
                with style.applied():
                    drawn(kind=kind, **keys).savefig(
                        buffer, format="svg", metadata=figures.METADATA["svg"]
                    )
                texts.add(buffer.getvalue())
            self.assertEqual(len(texts), 1, kind)

    def test_figures_of_a_study_become_files(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            results = Results.read(made.folder(Path(place)))
            (spec,) = figures.of_study(results.study)
            names = [path.name for path in figures.write(spec, results, Path(place) / "out")]
        self.assertEqual(names, ["figure-1.svg", "figure-1.pdf", "figure-1.png"])


class Looks(unittest.TestCase):
    def test_protocols_have_a_colour_and_a_marker_of_their_own(self) -> None:
        names = ["cfdp", "ltp", "ltp-t", "norm", "saratoga", "ftp", "scp", "sftp", "rsync",
                 "scps-fp", "bp-udp", "telnet"]  # fmt: skip
        told = style.looks(names)
        self.assertEqual(len({look.color for look in told.values()}), len(names))
        self.assertEqual(len({look.marker for look in told.values()}), len(names))
        alone = style.looks(["ltp/ltplib-2011"])["ltp/ltplib-2011"]
        self.assertEqual((alone.color, alone.label), (told["ltp"].color, "LTP"))

    def test_profiles_of_a_family_are_told_apart_by_lines(self) -> None:
        told = style.looks(["cfdp", "cfdp/gsfc-2007"])
        self.assertEqual([look.label for look in told.values()], ["CFDP", "CFDP (gsfc-2007)"])
        self.assertEqual(len({look.line for look in told.values()}), 2)

    def test_units_fit_values(self) -> None:
        measure = style.measure_of("goodput_bps")
        self.assertEqual(measure.unit_for([5.0, 2e6]), ("Mbit/s", 1e6))
        self.assertEqual(measure.unit_for([5.0]), ("bit/s", 1.0))
        self.assertEqual(style.measure_of("delay_s", "delay").unit_for([0.25])[0], "ms")
        self.assertEqual(table.tick(1250), "1,250")
        self.assertEqual(table.tick(1e-5), "1e-5")


if __name__ == "__main__":
    unittest.main()
