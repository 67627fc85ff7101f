"""Programs of the package `slowlight-bench`."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build(target: Path, name: str) -> Path:
    """Builds one, with the command beside it, so that both share what they are made of."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", str(target)]
    command += ["--package", "slowlight", "--package", "slowlight-bench", "--bin", name]
    subprocess.run(command, cwd=ROOT, check=True)
    return target / "release" / name
