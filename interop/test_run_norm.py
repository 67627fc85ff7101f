"""Tests of the NORM runner's judgement, and of libnorm against itself where available."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
import unittest
from dataclasses import replace
from pathlib import Path

import netns
from ends import HERE, HUNG, UNSUPPORTED, WAITED, target_folder
from run_norm import (
    LIBNORM,
    LOST_SHARES,
    OTHER_CODINGS,
    PROACTIVE,
    REPAIR,
    SCHEMES,
    SLOWLIGHT,
    Case,
    Programs,
    build,
    cases,
    destination,
    judge,
    recv_command,
    send_command,
    sender_settings,
    speaks_norm,
)

GROUP_OF_TWO = Case(SLOWLIGHT, (LIBNORM, SLOWLIGHT), True, 0.05, REPAIR)
# Neither receiver got a command.
SILENT = [False, False]
HOSTS = [netns.Host(f"h{number}", f"10.0.0.{number + 1}") for number in range(3)]


class Judgement(unittest.TestCase):
    """Expected results."""

    def test_every_file_and_every_end_must_be_right(self) -> None:
        self.assertEqual(judge(GROUP_OF_TWO, [True, True], [0, 0, 0], SILENT).verdict, "ok")
        judged = judge(GROUP_OF_TWO, [True, False], [0, 0, 0], SILENT)
        self.assertEqual(judged.verdict, "FAILED")
        self.assertEqual(judged.note, "the file of receiver 2 slowlight differs or is missing")
        for exits in ([1, 0, 0], [0, 0, -11], [0, WAITED, 0], [HUNG, 0, 0]):
            judged = judge(GROUP_OF_TWO, [True, True], exits, SILENT)
            self.assertEqual(judged.verdict, "FAILED", exits)

    def test_a_failure_says_whose(self) -> None:
        note = judge(GROUP_OF_TWO, [True, True], [WAITED, 0, HUNG], SILENT).note
        self.assertEqual(
            note, "the sender slowlight had to be interrupted; receiver 2 slowlight hung"
        )
        note = judge(GROUP_OF_TWO, [False, True], [1, 3, 0], SILENT).note
        self.assertIn("receiver 1 libnorm ended with exit code 3", note)

    def test_a_peer_that_cannot_is_no_failure(self) -> None:
        judged = judge(replace(GROUP_OF_TWO, commands=True), [True, True], [0] * 3, [True, False])
        self.assertEqual(judged.verdict, "FAILED")
        self.assertEqual(judged.note, "receiver 2 slowlight heard no command")
        judged = judge(GROUP_OF_TWO, [False, False], [UNSUPPORTED, WAITED, WAITED], SILENT)
        self.assertEqual(judged.verdict, "unsupported")


class Matrix(unittest.TestCase):
    """Selection of transfers."""

    def test_both_ways_unicast_and_multicast_every_loss_with_and_without_parity(self) -> None:
        found = cases([(SLOWLIGHT, LIBNORM), (LIBNORM, SLOWLIGHT)])
        names = {case.name() for case in found}
        self.assertEqual(len(names), len(found))
        for sender in (SLOWLIGHT, LIBNORM):
            for multicast in (False, True):
                mine = [c for c in found if c.sender == sender and c.multicast == multicast]
                for coding in (REPAIR, PROACTIVE):
                    shares = [case.lost_share for case in mine if case.coding == coding]
                    self.assertEqual(sorted(set(shares)), sorted(LOST_SHARES))
                self.assertLessEqual(set(OTHER_CODINGS), {case.coding for case in mine})

    def test_one_group_has_receivers_of_both_kinds(self) -> None:
        found = cases([(SLOWLIGHT, LIBNORM), (LIBNORM, SLOWLIGHT)])
        self.assertEqual(sum(case.receivers == (LIBNORM, SLOWLIGHT) for case in found), 8)
        self.assertTrue(all(case.receivers == (LIBNORM,) * 2 for case in self.groups_of_libnorm()))

    def groups_of_libnorm(self) -> list[Case]:
        """Returns the datagrams that libnorm sends to itself by multicast."""
        return [case for case in cases([(LIBNORM, LIBNORM)]) if case.multicast]


class Commands(unittest.TestCase):
    """Command lines of the programs."""

    def test_both_ends_name_the_same_group_and_different_nodes(self) -> None:
        for multicast, expected in ((True, "224.1.2.3:6003"), (False, "10.0.0.2:6003")):
            for name, node in ((SLOWLIGHT, "--entity"), (LIBNORM, "--node")):
                case = Case(name, (name,), multicast, 0.0, PROACTIVE)
                self.assertEqual(destination(case, HOSTS), expected)
                commands = self.commands(case)
                self.assertIn(expected, commands[0])
                # Our receiver of unicast accepts any sender.
                self.assertTrue(any(word.endswith(":6003") for word in commands[1]), commands[1])
                self.assertEqual([it[it.index(node) + 1] for it in commands], ["1", "2"])

    def commands(self, case: Case) -> list[list[str]]:
        """Returns the command lines of sender and receiver."""
        programs = Programs(Path("slowlight"), Path("norm-peer"), 1_000_000, 60.0)
        root = Path("root")
        with tempfile.TemporaryDirectory() as folder:
            send = send_command(case, programs, HOSTS[:2], Path("file"), Path(folder))
        return [send, recv_command(case.receivers[0], case, programs, HOSTS[:2], 1, root)]

    def test_our_settings_say_what_libnorm_is_told(self) -> None:
        for coding in (REPAIR, PROACTIVE, *OTHER_CODINGS):
            settings = tomllib.loads(
                sender_settings(Case(SLOWLIGHT, (LIBNORM,) * 2, True, 0.0, coding))
            )
            sender = settings["sender"]
            theirs = self.commands(Case(LIBNORM, (LIBNORM,), True, 0.0, coding))[0]
            for ours, name in (
                ("segment_size", "--segment"),
                ("block_len", "--block"),
                ("parity", "--parity"),
                ("auto_parity", "--auto-parity"),
            ):
                self.assertEqual(str(sender[ours]), theirs[theirs.index(name) + 1])
            self.assertEqual(sender["fec"], SCHEMES[int(theirs[theirs.index("--fec") + 1])])
            self.assertEqual(sender["receivers"], 2)

    def test_a_binary_without_the_protocol_is_known(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "slowlight"
            for text, speaks in (("Saratoga: ask", False), ("NORM: group", True)):
                program.write_text(f"#!/bin/sh\necho '{text}'\n")
                program.chmod(0o755)
                self.assertEqual(speaks_norm(program), speaks)


class Reference(unittest.TestCase):
    """libnorm against itself: verdicts of successful and failed runs."""

    def setUp(self) -> None:
        why = netns.why_not()
        if why is not None:
            self.skipTest(why)
        self.program = build(target_folder())
        if isinstance(self.program, str):
            self.skipTest(self.program)

    def run_matrix(self, folder: str, *options: str) -> tuple[int, list[dict[str, object]]]:
        """Returns the runner's exit code and results."""
        command = [sys.executable, str(HERE / "run_norm.py"), "--out", folder, *options]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
        results = Path(folder) / "norm.json"
        self.assertTrue(results.exists(), ended.stdout + ended.stderr)
        return ended.returncode, json.loads(results.read_text())

    def test_two_receivers_get_a_file_through_losses(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            options = ["--self", "--size", "200000", "--only", "multicast-5%-proactive"]
            code, results = self.run_matrix(folder, *options)
        file, stream = results
        self.assertEqual((file["verdict"], file["same_files"]), ("ok", [True, True]))
        # On a busy machine the library may start a stream later than the test allows.
        self.assertEqual(code, int(stream["verdict"] == "FAILED"), results)
        self.assertEqual(stream["exits"], [0, 0, 0])

    def test_a_transfer_without_time_fails_and_leaves_what_to_look_at(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            # 4 MB at 1 Mbit/s take 32 s.
            slow = ["--size", "4000000", "--rate", "1000000", "--limit", "1"]
            options = ["--self", "--only", "unicast-0%-repair", *slow]
            code, results = self.run_matrix(folder, *options)
            self.assertEqual(code, 1)
            self.assertEqual(results[0]["verdict"], "FAILED")
            self.assertEqual(results[0]["same_files"], [False])
            kept = Path(str(results[0]["folder"]))
            self.assertTrue((kept / "send.out").is_file())


if __name__ == "__main__":
    unittest.main()
