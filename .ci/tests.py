"""Builds the Rust tests and runs their binaries in two lanes: those that compute, one after
another, and beside them those of the command, which wait for clocks most of the time, so that more
of them run than there are cores. What each prints appears when it ends. Then the examples of the
documentation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

WORKSPACE = ["--workspace", "--exclude", "slowlight-bench", "--locked", "--quiet"]
OUTPUT = threading.Lock()
# Tests that wait for clocks, at once on each core, and in all.
WAITING = 3
WAITING_MAX = 12


@dataclass(frozen=True)
class Binary:
    program: Path
    folder: Path
    target: str

    @property
    def label(self) -> str:
        return f"{self.folder.name} {self.target}"

    @property
    def waits(self) -> bool:
        return self.label == "cli it"

    def passes(self) -> bool:
        environment = os.environ | {"CARGO_MANIFEST_DIR": str(self.folder)}
        if self.waits:
            threads = min(WAITING * len(os.sched_getaffinity(0)), WAITING_MAX)
            environment.setdefault("RUST_TEST_THREADS", str(threads))
        done = subprocess.run(
            [self.program, "--quiet"],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        with OUTPUT:
            print(f"== {self.label}\n{done.stdout}", flush=True)
            if done.returncode != 0:
                print(f"error: {self.label} exits with {done.returncode}", flush=True)
        return done.returncode == 0


def built() -> list[Binary] | None:
    """The test binaries of the workspace; `None` if one does not compile."""
    command = ["cargo", "test", *WORKSPACE, "--no-run", "--message-format=json-render-diagnostics"]
    cargo = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if cargo.returncode != 0:
        return None
    binaries = []
    for line in cargo.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            folder = Path(message["manifest_path"]).parent
            binaries.append(Binary(Path(message["executable"]), folder, message["target"]["name"]))
    return binaries


def main() -> int:
    binaries = built()
    if binaries is None:
        return 1
    results: list[bool] = []

    def run(lane: list[Binary]) -> None:
        results.extend(binary.passes() for binary in lane)

    lanes = [[b for b in binaries if b.waits], [b for b in binaries if not b.waits]]
    threads = [threading.Thread(target=run, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    examples = subprocess.run(["cargo", "test", *WORKSPACE, "--doc", "--no-fail-fast"], check=False)
    return 0 if all(results) and examples.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
