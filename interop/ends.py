"""Shared functions of runners: builds of programs, ends of processes, and the files they leave."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Exit code of a peer that does not support a case.
UNSUPPORTED = 127
# Results in place of an exit code: the process exceeded its time limit, and ended when it was
# interrupted (WAITED) or did not (HUNG).
WAITED, HUNG = 1000, 1001
# Time limit of a build; Hardy takes four minutes on two free cores.
BUILD_MAX = 1200.0
# Parts of cargo's messages: the compiler is older than a crate allows, the lock file is outdated.
TOO_OLD, OUTDATED = "is not supported by the following package", "--locked was passed"


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


def cargo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs cargo on the workspace here, without extra flags for the compiler."""
    environment = {key: value for key, value in os.environ.items() if key != "RUSTFLAGS"}
    command = ["cargo", *arguments, "--quiet", "--locked"]
    command += ["--manifest-path", str(HERE / "Cargo.toml")]
    return subprocess.run(
        command, stderr=subprocess.PIPE, text=True, env=environment, timeout=BUILD_MAX
    )


def build(target: Path, package: str, program: str | None = None) -> Path | None:
    """Builds a program of the workspace here.

    Returns None, with a message, without cargo or access to the crates, or if the compiler is too
    old for them. Any other failure is a fault of this repository, and raises an error.
    """
    name = program or package
    reason = unbuilt(target, package, name)
    if reason is not None:
        print(f"{name} is left out: {reason}", file=sys.stderr)
        return None
    return target / "release" / name


def unbuilt(target: Path, package: str, name: str) -> str | None:
    """Builds a program, or returns why this machine cannot."""
    if shutil.which("cargo") is None:
        return "there is no cargo"
    options = ["--package", package, "--bin", name, "--target-dir", str(target)]
    built = cargo("build", "--release", *options)
    print(built.stderr, end="", file=sys.stderr)
    if built.returncode == 0:
        return None
    if TOO_OLD in built.stderr:
        return "the Rust compiler is too old"
    fetched = cargo("fetch")
    if fetched.returncode != 0 and OUTDATED not in fetched.stderr:
        return "cargo cannot fetch its crates"
    raise RuntimeError(f"{name} cannot be built")
