"""Claims: none is left out, earlier verdicts are kept, missing ones are reported."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import made

from slowlight import __main__ as command
from slowlight.claims import PAPERS, catalogue, s0_worlds, table
from slowlight.claims.evidence import (
    Estimate,
    Evidence,
    Finding,
    NotRunError,
    Verdict,
    cannot,
    found,
    near,
)
from slowlight.errors import UserError

# How many claims each paper has, with what captures fix of the first.
COUNTS = {"S0": 31 + 4 + 7, "S1": 15, "S2": 15, "S3": 14, "S4": 11}


def checked(held: dict[str, bool], findings: list[Finding]) -> catalogue.Checked:
    entry = catalogue.Entry("S0-08", "", "text", "", "", held)
    return catalogue.Checked(entry, "", tuple(findings))


PAGES = made.ROOT / "docs/reproduction"


def verdicts_of_page(paper: str) -> dict[str, str]:
    """The verdict on each part of a claim, as the page of the paper states it."""
    (page,) = PAGES.glob(f"{paper.removeprefix('S').zfill(3)}-*.md")
    verdicts: dict[str, str] = {}
    for line in page.read_text("utf-8").splitlines():
        cells = line.strip("| ").split(" | ")
        if not line.startswith("| S") or not re.fullmatch(r"S\d-\w+", cells[0]):
            continue
        if cells[0] in verdicts:
            raise ValueError(f"{page.name} states {cells[0]} twice")
        verdicts[cells[0]] = Verdict(cells[-1]).value
    return verdicts


class Catalogue(unittest.TestCase):
    def test_the_pages_state_what_held(self) -> None:
        self.assertEqual(len(list(PAGES.glob("*.md"))), len(PAPERS))
        for paper in PAPERS:
            stated = verdicts_of_page(paper)
            held = {
                entry.id + part: holds
                for entry in catalogue.read()
                if entry.paper == paper
                for part, holds in entry.held.items()
            }
            holding = {name: word == Verdict.HOLDS.value for name, word in stated.items()}
            self.assertEqual(holding, held, paper)

    def test_every_claim_is_checked_and_every_check_is_a_claim(self) -> None:
        entries = catalogue.read()
        listed = [entry.id for entry in entries]
        self.assertEqual(len(listed), len(set(listed)))
        checks = [claim for paper in PAPERS.values() for claim in paper.claims]
        self.assertEqual(sorted(listed), sorted(checks))
        for paper, count in COUNTS.items():
            self.assertEqual(sum(entry.paper == paper for entry in entries), count, paper)

    def test_every_check_says_when_it_holds(self) -> None:
        for paper in PAPERS.values():
            for claim in paper.claims.values():
                self.assertTrue(claim.bounds, claim.id)

    def test_claims_are_chosen_by_id_paper_and_study(self) -> None:
        entries = catalogue.read()
        self.assertEqual([e.id for e in catalogue.chosen(entries, ["s0-08"])], ["S0-08"])
        self.assertEqual(len(catalogue.chosen(entries, ["S4"])), 11)
        self.assertEqual(len(catalogue.chosen(entries, ["cislunar-2009", "S4-01"])), 11)
        with self.assertRaisesRegex(UserError, "no claim 'S0-8'; did you mean"):
            catalogue.chosen(entries, ["S0-8"])

    def test_wrong_keys_are_named(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "claims.toml"
            file.write_text('[[claims]]\nid = "S0-01"\nhold = true\n')
            with self.assertRaisesRegex(UserError, "S0-01: there is no key 'hold'; did you mean"):
                catalogue.read(file)

    def test_what_holds_now_is_written_and_the_rest_stays(self) -> None:
        text = 'id = "S0-08"\nheld = false\n\nid = "S0-09"\nheld = true\n'
        parts = [found("a", "", "", "", holds=True), cannot("b", "", "", "")]
        told = catalogue.with_held(text, [checked({}, parts)])
        self.assertIn('id = "S0-08"\nheld = { a = true, b = false }', told)
        self.assertIn('id = "S0-09"\nheld = true', told)

    def test_what_held_and_does_not_is_lost(self) -> None:
        differs = found("a", "", "", "", holds=False, why="so")
        self.assertEqual(checked({"a": True}, [differs]).lost, ["S0-08a"])
        self.assertEqual(checked({"a": False}, [differs]).lost, [])
        self.assertEqual(checked({"a": True}, [found("a", "", "", "", holds=True)]).lost, [])
        # A part that is gone was lost, too.
        self.assertEqual(checked({"b": True}, [differs]).lost, ["S0-08b"])


class Commands(unittest.TestCase):
    def run_claims(self, one: catalogue.Checked, *words: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(catalogue, "check", return_value=[one]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = command.main(["claims", "S0-08", *words])
        return code, out.getvalue(), err.getvalue()

    def test_one_that_held_and_does_not_is_a_failure(self) -> None:
        differs = found("", "what", "paper", "here", holds=False, why="because")
        code, out, err = self.run_claims(checked({"": True}, [differs]))
        self.assertEqual(code, 1)
        self.assertIn("differs (held)", out)
        self.assertIn("because", out)
        self.assertIn("no longer hold: S0-08", err)
        self.assertEqual(self.run_claims(checked({"": False}, [differs]))[0], 0)

    def test_json_has_every_finding(self) -> None:
        holds = found("a", "what", "paper", "here", holds=True, why="nothing")
        told = json.loads(self.run_claims(checked({}, [holds]), "--json")[1])
        self.assertEqual(told["verdicts"]["holds"], 1)
        finding = told["claims"][0]["findings"][0]
        self.assertEqual((finding["verdict"], finding["why"]), ("holds", ""))

    def test_missing_results_are_told_with_their_command(self) -> None:
        out, err = io.StringIO(), io.StringIO()
        with (
            tempfile.TemporaryDirectory() as place,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = command.main(["claims", "S4-01", "S4-11", "--results", place])
        self.assertEqual(code, 2)
        self.assertIn("not run", out.getvalue())
        self.assertIn("cannot be checked", out.getvalue())
        self.assertIn("slowlight study run cislunar-2009 --edition published", err.getvalue())

    def test_mistakes_are_errors(self) -> None:
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            self.assertEqual(command.main(["report", "nothing", "--results", "/nowhere"]), 2)
        self.assertIn("slowlight study run nothing", err.getvalue())

    def test_a_run_that_is_refused_is_told_for_its_claims_alone(self) -> None:
        entries = catalogue.chosen(catalogue.read(), ["S0-06", "S0-27"])
        with mock.patch.object(s0_worlds, "once", side_effect=UserError("no world")):
            chart, sequence = catalogue.check(entries, [])
        self.assertEqual((chart.missing, sequence.missing), ("", "no world"))
        self.assertEqual(sequence.findings[0].verdict, Verdict.NOT_RUN)


class Sums(unittest.TestCase):
    def test_estimates_carry_their_errors(self) -> None:
        base, more = Estimate.of([10.0, 10.0]), Estimate.of([14.0, 16.0])
        self.assertEqual((more.mean, more.sem), (15.0, 1.0))
        change = more.more_than(base)
        self.assertAlmostEqual(change.mean, 50.0)
        self.assertAlmostEqual(change.sem, 10.0)
        self.assertEqual(change.percent(), "+50.0 ± 10.0 %")
        self.assertTrue(change.is_near(60.0))
        self.assertFalse(change.is_near(-50.0))
        self.assertEqual(Estimate.mean_of([base, more]).mean, 12.5)
        self.assertTrue(near(95, 100, 0.05))
        self.assertFalse(near(94, 100, 0.05))

    def test_evidence_is_of_cells(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            made.folder(Path(place))
            evidence = Evidence([Path(place)])
            cell = {"protocol": "cfdp", "per": "0", "delay": "far"}
            mean = evidence.mean("made", "grid", "goodput_bps", **cell)
            self.assertAlmostEqual(mean, 7.92e6)
            part = evidence.samples("made", "grid", "packets_str", protocol="cfdp", per="0")
            self.assertEqual(sorted(part), [100, 100, 101, 101, 102, 102])
            with self.assertRaises(NotRunError):
                evidence.mean("made", "grid", "goodput_bps", **{**cell, "delay": "farther"})
            with self.assertRaisesRegex(NotRunError, "slowlight study run other"):
                evidence.mean("other", "grid", "goodput_bps")

    def test_the_table_names_each_part(self) -> None:
        one = checked({}, [found("a", "w", "p", "h", holds=True), cannot("b", "w", "p", "why")])
        text = table.as_text([one])
        self.assertIn("S0-08a", text)
        self.assertIn("1 claim in 2 parts: 1 holds, 1 cannot be checked", text)
        self.assertEqual(one.findings[1].verdict, Verdict.CANNOT)


class OfCaptures(unittest.TestCase):
    def test_lengths_and_times_of_the_captures_of_2011_hold(self) -> None:
        entries = [e for e in catalogue.read() if e.id[3] in "WT" and e.id != "S0-T7"]
        self.assertEqual(len(entries), 10)
        for one in catalogue.check(entries, []):
            self.assertEqual(one.lost, [], one.findings)
            for finding in one.findings:
                if finding.verdict is not Verdict.CANNOT:
                    self.assertIs(finding.verdict, Verdict.HOLDS, (one.entry.id, finding))


if __name__ == "__main__":
    unittest.main()
