"""Tests of builds of peers, with a script in place of cargo."""

from __future__ import annotations

import io
import os
import tempfile
import unittest
from contextlib import redirect_stderr
from pathlib import Path
from unittest.mock import patch

from ends import build

BROKEN = "error[E0432]: unresolved import\nerror: could not compile `ltp-peer`"
TOO_OLD = "error: rustc 1.90.0 is not supported by the following package:\n  a requires rustc 1.95"
OFFLINE = "error: failed to download from `https://static.crates.io/crates/a`"
OUTDATED = "error: cannot update the lock file because --locked was passed to prevent this"


class Build(unittest.TestCase):
    """Failures that leave a peer out, and others."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(patch.dict(os.environ, {"PATH": str(self.folder)}))
        self.enterContext(redirect_stderr(io.StringIO()))

    def cargo(self, build: str, fetch: str = "") -> None:
        """Writes a cargo whose commands fail with these messages, if any."""
        commands = [
            f"[ $1 != {name} ] || {{ echo '{said}' >&2; exit 101; }}"
            for name, said in (("build", build), ("fetch", fetch))
            if said
        ]
        script = self.folder / "cargo"
        script.write_text("\n".join(["#!/bin/sh", *commands, ""]))
        script.chmod(0o755)

    def test_built_programs_are_below_the_target(self) -> None:
        self.cargo("")
        release = self.folder / "release"
        self.assertEqual(build(self.folder, "ltp-peer"), release / "ltp-peer")
        self.assertEqual(build(self.folder, "hardy-peer", "hardy-node"), release / "hardy-node")

    def test_machines_that_cannot_build_leave_it_out(self) -> None:
        self.assertIsNone(build(self.folder, "ltp-peer"), "there is no cargo")
        for messages in ((TOO_OLD,), (OFFLINE, OFFLINE)):
            self.cargo(*messages)
            self.assertIsNone(build(self.folder, "ltp-peer"), messages)

    def test_broken_programs_and_lock_files_raise(self) -> None:
        for messages in ((BROKEN,), (OUTDATED, OUTDATED)):
            self.cargo(*messages)
            with self.assertRaises(RuntimeError, msg=messages):
                build(self.folder, "ltp-peer")


if __name__ == "__main__":
    unittest.main()
