"""Tests of the interop runner's own judgement; they need neither peers nor slowlight."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from ends import HUNG, UNSUPPORTED, WAITED, digest, finish, reported_seconds
from run import (
    Case,
    Peer,
    cases,
    free_ports,
    judge,
    peers,
)

OURS = Peer("slowlight", ("slowlight",), 1)
THEIRS = Peer("theirs", ("theirs",), 1)


class Judgement(unittest.TestCase):
    """Expected results."""

    def test_class_2_needs_the_file_and_both_entities(self) -> None:
        case = Case(OURS, THEIRS, 2, 0.05)
        self.assertEqual(judge(case, True, 0, 0).verdict, "ok")
        self.assertEqual(judge(case, False, 0, 0).verdict, "FAILED")
        self.assertEqual(judge(case, True, 1, 0).verdict, "FAILED")
        self.assertEqual(judge(case, True, 0, 1).verdict, "FAILED")

    def test_class_1_with_losses_must_not_be_called_complete_by_us(self) -> None:
        self.assertEqual(judge(Case(THEIRS, OURS, 1, 0.05), False, 0, 1).verdict, "ok")
        self.assertEqual(judge(Case(THEIRS, OURS, 1, 0.05), False, 0, 0).verdict, "FAILED")
        judged = judge(Case(OURS, THEIRS, 1, 0.05), False, 0, 0)
        self.assertEqual(judged.verdict, "ok")
        self.assertIn("fault of the peer", judged.note)
        self.assertTrue(judged.is_kept())

    def test_class_1_with_losses_needs_us_to_end_by_ourselves_or_when_interrupted(self) -> None:
        ours = Case(THEIRS, OURS, 1, 0.05)
        self.assertEqual(judge(ours, False, 0, WAITED).verdict, "ok")
        for receiver_exit in (HUNG, 2, 101, -11):
            self.assertEqual(judge(ours, False, 0, receiver_exit).verdict, "FAILED", receiver_exit)
            for same in (False, True):
                judged = judge(Case(OURS, THEIRS, 1, 0.05), same, 0, receiver_exit)
                self.assertEqual(judged.verdict, "ok")
                self.assertIn("fault of the peer", judged.note)
                self.assertTrue(judged.is_kept())
        self.assertEqual(judge(Case(OURS, THEIRS, 1, 0.05), False, 1, 1).verdict, "FAILED")

    def test_class_1_without_losses_needs_the_file(self) -> None:
        self.assertEqual(judge(Case(OURS, THEIRS, 1, 0.0), False, 0, 1).verdict, "FAILED")
        self.assertEqual(judge(Case(OURS, THEIRS, 1, 0.0), True, 0, 0).verdict, "ok")

    def test_what_there_is_to_look_at_is_kept(self) -> None:
        self.assertFalse(judge(Case(OURS, THEIRS, 2, 0.0), True, 0, 0).is_kept())
        self.assertTrue(judge(Case(OURS, THEIRS, 2, 0.0), False, 0, 0).is_kept())
        self.assertFalse(judge(Case(OURS, THEIRS, 1, 0.05), False, 0, 1).is_kept())
        self.assertFalse(judge(Case(OURS, THEIRS, 1, 0.05), False, 0, WAITED).is_kept())
        self.assertFalse(judge(Case(OURS, THEIRS, 2, 0.0), False, 1, UNSUPPORTED).is_kept())

    def test_a_peer_that_cannot_is_no_failure(self) -> None:
        self.assertEqual(
            judge(Case(OURS, THEIRS, 2, 0.0), False, 1, UNSUPPORTED).verdict, "unsupported"
        )


class Ends(unittest.TestCase):
    """Ends of processes."""

    def test_an_exit_code_is_passed_on(self) -> None:
        process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
        self.assertEqual(finish(process, 30), 3)

    def test_a_process_that_waits_ends_when_interrupted(self) -> None:
        # The parent of the tests may ignore the signal, which processes inherit.
        process = subprocess.Popen(["env", "--default-signal=INT", "sleep", "60"])
        self.assertEqual(finish(process, 0.1), WAITED)


class Matrix(unittest.TestCase):
    """Selection of transfers."""

    def test_every_peer_both_ways_both_classes_clean_and_lossy(self) -> None:
        known = peers(Path("slowlight"), Path("target"))
        names = [case.name() for case in cases(known, [], with_self=False)]
        self.assertEqual(len(names), 3 * 2 * 2 * 2)
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual(len(cases(known, ["librecube"], with_self=True)), 3 * 2 * 2)


class Files(unittest.TestCase):
    """Result files."""

    def test_the_last_report_counts(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "out"
            output.write_text('ready\n{"other": 1}\n{"elapsed_s": 2.5}\nbye\n')
            self.assertEqual(reported_seconds(output, 9.0), 2.5)
            output.write_text('{"elapsed_s": null}\n')
            self.assertEqual(reported_seconds(output, 9.0), 9.0)

    def test_no_file_has_no_digest(self) -> None:
        self.assertEqual(digest(Path("/nonexistent/file")), "")

    def test_ports_differ(self) -> None:
        self.assertEqual(len(set(free_ports(4))), 4)


if __name__ == "__main__":
    unittest.main()
