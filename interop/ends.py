"""Shared functions of runners: ends of processes, and the files they leave."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Exit code of a peer that does not support a case.
UNSUPPORTED = 127
# Results in place of an exit code: the process exceeded its time limit, and ended when it was
# interrupted (WAITED) or did not (HUNG).
WAITED, HUNG = 1000, 1001


def digest(path: Path) -> str:
    """Returns the SHA-256 of a file, or of nothing if it does not exist."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def finish(process: subprocess.Popen[bytes], limit: float) -> int:
    """Waits for a process; one that exceeds the limit is interrupted (ctrl-C), then killed.

    Its standard input is closed, if it is a pipe.
    """
    if process.stdin is not None:
        process.stdin.close()
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(5)
        return WAITED
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return HUNG


def reported_seconds(output: Path, elapsed: float) -> float:
    """Returns the duration that a sender reports for its transfer, else the wall clock's."""
    for line in reversed(output.read_text().splitlines()):
        try:
            report = json.loads(line)
        except ValueError:
            continue
        if isinstance(report, dict) and "elapsed_s" in report:
            return float(report["elapsed_s"] or elapsed)
    return elapsed


def target_folder() -> Path:
    """Returns the folder in which programs are built."""
    return Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target")).resolve()
