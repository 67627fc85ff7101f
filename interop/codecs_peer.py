"""Codecs of other implementations against ours, with random bundles.

The crates bp7 and hardy-bpv7 are compared by programs (`bp7-check`, `hardy-check`). `bp7-check`
also writes our encodings of random bundles. py-dtn7 decodes each of them and encodes what it
decoded: the bytes must be the same.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import dtn7zero_node
from bundle_node import FailedError
from ends import build

# Number of random bundles, and the first seed.
BUNDLES, SEED = 20_000, 1


def cases(target: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields names and functions of all cases."""
    ours = build(target, "bp7-check")
    if ours is None:
        return
    yield f"bp7, {BUNDLES} bundles", lambda: checked(ours)
    hardy = build(target, "hardy-peer", "hardy-check")
    if hardy is not None:
        yield f"hardy-bpv7, {BUNDLES} bundles, as many protected, by each", lambda: checked(hardy)
    python = dtn7zero_node.install(target)
    if python is not None:
        yield f"py-dtn7, {BUNDLES} bundles without CRCs", lambda: by_py_dtn7(ours, python)


def checked(program: Path) -> None:
    """Runs a program that compares."""
    command = [str(program), str(BUNDLES), str(SEED)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise FailedError(ended.stderr.strip())


def made(program: Path, kinds: str) -> bytes:
    """Returns our encodings, each after its length."""
    command = [str(program), str(BUNDLES), str(SEED), kinds]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


def frames(data: bytes) -> Iterator[bytes]:
    """Yields the bundles in such bytes."""
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : end]
        at = end


def by_py_dtn7(ours: Path, python: Path) -> None:
    """Decodes and encodes all bundles with py-dtn7."""
    data = made(ours, "plain")
    command = [str(python), str(dtn7zero_node.PEER), "codec"]
    ended = subprocess.run(command, input=data, capture_output=True, check=False)
    if ended.returncode != 0:
        raise FailedError(ended.stderr.decode().strip().splitlines()[-1])
    for number, (one, other) in enumerate(zip(frames(data), frames(ended.stdout), strict=True)):
        if one != other:
            raise FailedError(f"bundle {number} of seed {SEED} is encoded otherwise")
