"""Programs of the package `slowlight-bench`."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Build profile of measured programs.
PROFILE = "production"


def build(target: Path, name: str) -> Path:
    """Builds a program with the features of the command, so that both share their dependencies."""
    command = ["cargo", "build", "--quiet", "--locked", "--profile", PROFILE]
    command += ["--target-dir", str(target), "--bin", name]
    command += ["--package", "slowlight", "--package", "slowlight-bench"]
    subprocess.run(command, cwd=ROOT, check=True)
    return target / PROFILE / name
