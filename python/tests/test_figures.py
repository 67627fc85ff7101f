"""Figures, by what is on them rather than by pixels."""

from __future__ import annotations

import io
import itertools
import tempfile
import unittest
from pathlib import Path
from typing import TypeAlias

import made
import numpy as np
import polars as pl
from colorspacious import cspace_convert, deltaE
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from slowlight import figures, style
from slowlight.errors import UserError
from slowlight.figures import best, boxes, distribution, lines, table, ticks
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
        self.assertIn("figures.y: write a text", self.refused(kind="lines", y=3))
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
        self.assertEqual(axes.get_xlabel(), "Packet loss probability")
        self.assertEqual(axes.get_ylabel(), "Goodput (Mbit/s)")
        told = [text.get_text() for text in axes.get_xticklabels()]
        self.assertEqual(told, AXES["per"])

    def test_panels_of_one_column_have_one_scale(self) -> None:
        figure = drawn(kind="lines", x="per", y="goodput_bps", series="protocol", panels="delay")
        limits = {axes.get_ylim() for axes in figure.axes}
        self.assertEqual((len(figure.axes), len(limits)), (2, 1))
        for kind in ("bars", "box"):
            # Of the files that are near and far LTP's means differ.
            made_of = {"x": "per", "y": "delivered_s", "panels": "protocol"}
            figure = drawn(kind=kind, **made_of)
            limits = {axes.get_ylim() for axes in figure.axes}
            self.assertEqual((len(figure.axes), len(limits)), (2, 1), kind)

    def test_curves_that_coincide_are_both_seen_and_the_legend_says_so(self) -> None:
        means = {"a": {"0": 1.0, "1": 2.0}, "b": {"0": 1.0, "1": 2.0}, "c": {"0": 1.0, "1": 2.1},
                 "d": {"0": 1.0}, "e": {"0": 1.001, "1": 2.0}}  # fmt: skip
        self.assertEqual(lines.coinciding(means), {"b": "a", "e": "a"})
        apart = {"a": {"0": 1.0, "1": 9.0}, "b": {"0": 1.1, "1": 5.0}, "c": {"0": 3.0, "1": 6.0}}
        self.assertEqual(lines.lying(apart, is_log=False), {"b": "a"}, "at one of two points")
        self.assertEqual(lines.lying(apart, is_log=True), {})
        rows = made.rows().with_columns(
            pl.col("goodput_bps").mean().over("per", "delay").alias("goodput_bps")
        )
        spec = figures.read(
            {"kind": "lines", "x": "per", "y": "goodput_bps", "series": "protocol", "where": NEAR}
        )
        with style.applied():
            figure = lines.draw(rows, spec, AXES)
        texts = [text.get_text() for text in figure.legends[0].get_texts()]
        self.assertEqual(texts, ["CFDP", "LTP = CFDP"])
        joined = [line for line in figure.axes[0].lines if line.get_linestyle() != "None"]
        found = {str(line.get_marker()): line for line in joined}
        below, upon = found["o"], found["s"]
        self.assertTrue(upon.is_dashed())
        self.assertFalse(below.is_dashed())
        self.assertEqual(upon.get_markerfacecolor(), "white")
        self.assertLess(upon.get_markersize(), below.get_markersize())

    def test_a_curve_has_one_style_in_all_panels(self) -> None:
        # LTP covers CFDP where it is near, and not where it is far.
        near = pl.col("delay") == "25 ms"
        mean = pl.col("goodput_bps").mean().over("per", "delay")
        rows = made.rows().with_columns(
            goodput_bps=pl.when(near).then(mean).otherwise("goodput_bps")
        )
        spec = figures.read(
            {"kind": "lines", "x": "per", "y": "goodput_bps", "series": "protocol",
             "panels": "delay"}
        )  # fmt: skip
        with style.applied():
            figure = lines.draw(rows, spec, AXES)
        joined = [
            [
                line
                for line in axes.lines
                if line.get_marker() == "s" and line.get_linestyle() != "None"
            ]
            for axes in figure.axes
        ]
        self.assertEqual([line.is_dashed() for (line,) in joined], [True, True])
        self.assertEqual({line.get_markerfacecolor() for (line,) in joined}, {"white"})

    def test_labels_of_ticks_do_not_touch(self) -> None:
        for extents, count, found in (
            ([(0.0, 10.0), (20.0, 30.0)], 2, [0, 0]),
            ([(0.0, 10.0), (9.0, 19.0), (40.0, 50.0)], 2, [0, 1, 0]),
            ([(0.0, 10.0), (4.0, 14.0), (8.0, 18.0)], 2, [0, None, 1]),
            ([(0.0, 10.0), (8.0, 18.0)], 1, [None, 0]),
            ([], 2, []),
        ):
            self.assertEqual(ticks.rows(extents, count), found, extents)
        for values in (["0.1", "0.2"], ["0", "0.1", "0.11", "0.12"], ["0.1"], ["0"],
                       [f"1e-{n}" for n in range(8, 0, -1)] + ["0.2"]):  # fmt: skip
            self.labelled(values)

    def labelled(self, values: list[str]) -> None:
        """Draws these values of an axis, of which the last must have a label."""
        one = made.rows().filter(pl.col("per") == "0")
        rows = pl.concat(
            one.with_columns(per=pl.lit(value), per_value=pl.lit(float(value))) for value in values
        )
        spec = figures.read(
            {"kind": "lines", "x": "per", "y": "goodput_bps", "series": "protocol",
             "panels": "delay", "x_scale": "log"}
        )  # fmt: skip
        with style.applied():
            figure = lines.draw(rows, spec, {**AXES, "per": values})
            ticks.part(figure)
            figure.draw_without_rendering()
        for axes in figure.axes:
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                shown = [
                    tick.label1 for tick in axis.get_major_ticks()
                    if tick.label1.get_text().strip() and low <= tick.get_loc() <= high
                ]  # fmt: skip
                boxes_of = [label.get_window_extent() for label in shown]
                if axis is axes.xaxis:
                    self.assertIn(values[-1], [label.get_text().strip() for label in shown])
                for a, b in itertools.combinations(zip(shown, boxes_of, strict=True), 2):
                    # An empty first line is part of a label's box.
                    is_row = a[0].get_text().count("\n") == b[0].get_text().count("\n")
                    self.assertFalse(is_row and a[1].overlaps(b[1]), (values, a[0], b[0]))

    def test_a_legend_says_what_its_labels_are_unless_they_are_protocols(self) -> None:
        for kind in ("lines", "box", "bars"):
            figure = drawn(kind=kind, x="per", y="goodput_bps", series="delay")
            (legend,) = figure.legends
            self.assertEqual(legend.get_title().get_text(), "One-way delay", kind)
            figure = drawn(kind=kind, x="per", y="goodput_bps", series="protocol")
            self.assertEqual(figure.legends[0].get_title().get_text(), "", kind)

    def test_boxes_without_height_tell_their_series(self) -> None:
        of_one = made.rows().filter(pl.col("run") == 0)
        spec = figures.read(
            {"kind": "box", "x": "per", "y": "goodput_bps", "series": "protocol", "where": NEAR}
        )
        with style.applied():
            axes = boxes.draw_boxes(of_one, spec, AXES).axes[0]
        colors = {line.get_color() for line in axes.lines if line.get_linewidth() == 1.6}
        told = {look.color for look in style.looks(AXES["protocol"]).values()}
        self.assertEqual(colors, told)

    def test_a_logarithmic_axis_has_at_least_three_numbers(self) -> None:
        for low, high in ((0.05, 9.0), (2.0, 15.0), (0.2, 40.0), (0.01, 1.0), (0.001, 100.0)):
            axes = Figure().subplots()
            axes.set_yscale("log")
            axes.set_ylim(low, high)
            table.finish_y(axes)
            told = [tick for tick in axes.get_yticks() if low <= tick <= high]
            self.assertGreaterEqual(len(told), 3, (low, high))
            # In a long range there are powers of ten alone.
            decades = [tick for tick in told if f"{tick:e}".startswith("1.0")]
            if high / low >= 1000:
                self.assertEqual(len(told), len(decades), (low, high))

    def test_long_labels_are_turned(self) -> None:
        axes = Figure().subplots()
        for told, angle in ((["0", "1e-7 a bit"], 0.0), (["1e-7 a packet"] * 5, 20.0)):
            axes.set_xticks(range(len(told)), told)
            table.turn(axes, told)
            self.assertEqual({text.get_rotation() for text in axes.get_xticklabels()}, {angle})

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
        fastest = figures.read(
            {"kind": "best", "x": "per", "y": ["delay", "delivered_s"], "series": "protocol"}
        )
        rows = table.choose(made.rows(), fastest, AXES)
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


# What colour-blind readers see, as colorspacious names it.
SEEN = ("", "deuteranomaly", "protanomaly", "tritanomaly")


Color: TypeAlias = str | tuple[float, float, float]


def apart(one: Color, two: Color, seen: str) -> float:
    """How far two colours are apart for a reader, in CAM02-UCS: about 1 is just seen."""
    found = []
    for color in (one, two):
        rgb = np.array(to_rgb(color), dtype=np.float64)
        if seen:
            space = {"name": "sRGB1+CVD", "cvd_type": seen, "severity": 100}
            rgb = np.clip(cspace_convert(rgb, space, "sRGB1"), 0.0, 1.0)
        found.append(rgb)
    return float(deltaE(*found, input_space="sRGB1"))


class Looks(unittest.TestCase):
    names = ("cfdp", "ltp", "ltp-t", "norm", "norm-fec", "saratoga", "ftp", "tcp", "scp", "sftp",
             "rsync", "scps-fp", "bp-tcpcl", "telnet")  # fmt: skip
    family = ("saratoga", "saratoga-get", "bp-tcpcl", "bp-tcpcl3", "bp-mtcp", "bp-stcp", "bp-udp",
              "bp-ltp", "bp-saratoga", "bp-norm", "cfdp", "cfdp-1", "cfdp-ltp",
              "cfdp-bp-tcpcl", "cfdp-bp-tcpcl3", "cfdp-bp-mtcp", "cfdp-bp-stcp", "cfdp-bp-udp",
              "cfdp-bp-ltp", "cfdp-bp-saratoga", "cfdp-bp-norm", "cfdp/gsfc-2007")  # fmt: skip

    def test_protocols_have_a_colour_and_a_marker_of_their_own(self) -> None:
        told = style.looks(self.names)
        self.assertEqual(len({look.color for look in told.values()}), len(self.names))
        self.assertEqual(len({look.marker for look in told.values()}), len(self.names))
        alone = style.looks(["ltp/ltplib-2011"])["ltp/ltplib-2011"]
        self.assertEqual((alone.color, alone.label), (told["ltp"].color, "LTP"))

    def test_colours_are_told_apart_by_those_who_do_not_see_all(self) -> None:
        colors = [look.color for look in style.looks(self.names).values()]
        pairs = list(itertools.combinations(colors, 2))
        for seen, least in zip(SEEN, (14.0, 11.0, 10.5, 8.5), strict=True):
            found = min((apart(one, two, seen), one, two) for one, two in pairs)
            self.assertGreater(found[0], least, (seen, found))

    def test_pale_tiles_are_not_those_of_another_protocol(self) -> None:
        colors = [look.color for look in style.looks(self.names).values()]
        self.assertEqual(best.tint("#804020", 9.0), to_rgb("#804020"))
        self.assertLess(best.tint("#804020", 0.5), best.tint("#804020", 0.0))
        pairs = [(best.tint(one, 0.0), two) for one, two in itertools.permutations(colors, 2)]
        for seen in SEEN:
            found = min((apart(one, two, seen), one, two) for one, two in pairs)
            self.assertGreater(found[0], 5.5, (seen, found))

    def test_a_family_is_told_apart_by_lines_and_hatchings(self) -> None:
        for names in (self.family, self.family[::-1]):
            looks = style.looks(names).values()
            lines = {(look.color, str(look.line), look.filled) for look in looks}
            areas = {(look.color, look.hatch) for look in looks}
            self.assertEqual((len(lines), len(areas)), (len(names), len(names)))

    def test_a_protocol_looks_the_same_whoever_is_beside_it(self) -> None:
        together = style.looks(self.family)
        for name in (*self.family[:12], "cfdp-ltp", "cfdp-bp-tcpcl"):
            self.assertEqual(style.looks([name])[name].hatch, together[name].hatch, name)

    def test_tiles_of_the_best_have_the_look_of_the_protocol(self) -> None:
        names = {"cfdp": "bp-udp", "ltp": "bp-norm"}
        frame = made.rows().with_columns(pl.col("protocol").replace(names))
        axes = {**AXES, "protocol": list(names.values())}
        # Each is the fastest at one place.
        there = frame.filter((pl.col("protocol") == "bp-norm") | (pl.col("per") != "0"))
        spec = figures.read(
            {"kind": "best", "x": "per", "y": ["delay", "goodput_bps"], "series": "protocol"}
        )
        with style.applied():
            figure = best.draw(there, spec, axes)
        hatches = {patch.get_hatch() for patch in figure.axes[0].patches}
        shown = {patch.get_hatch() for patch in figure.legends[0].get_patches()}
        self.assertEqual(hatches, {look.hatch for look in style.looks(axes["protocol"]).values()})
        self.assertEqual(shown, hatches)

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
