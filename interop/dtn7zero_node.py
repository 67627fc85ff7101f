"""dtn7zero, a node in Python with the codec py-dtn7, over MTCP.

It has no CRCs: the node accepts primary blocks without CRC from it. It does not read blocks with a
CRC, which each bundle of this node has. So bundles go in one direction only.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bundle_node import OURS, UNCHECKED, FailedError, Node, free_port, stop, stream
from ends import HERE

VERSION = "0.0.8"
PEER = HERE / "dtn7zero/peer.py"
SIZES = (1000, 65_536, 1_000_000)
INSTALL_MAX = 300.0


def install(target: Path) -> Path | None:
    """Makes an environment with it below the folder, if it is missing, and returns its Python.

    It is licensed under the AGPL, so it is kept apart from everything else. None, with a message,
    if that fails.
    """
    root = target / f"dtn7zero-{VERSION}"
    python = root / "bin/python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        if not (root / "installed").exists():
            subprocess.run([sys.executable, "-m", "venv", str(root)], check=True)
            subprocess.run([*command, f"dtn7zero=={VERSION}"], check=True, timeout=INSTALL_MAX)
            (root / "installed").touch()
    except (subprocess.SubprocessError, OSError) as error:
        print(f"dtn7zero is left out: {error}", file=sys.stderr)
        return None
    return python


def cases(slowlight: Path, python: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields names and functions of all cases."""
    for size in SIZES:
        name = f"dtn7zero to slowlight, mtcp, version 7, {size} B"
        yield name, lambda size=size: run(slowlight, python, size)  # type: ignore[misc]


def run(slowlight: Path, python: Path, size: int) -> None:
    """Runs a case."""
    payload = random.Random(size).randbytes(size)
    with tempfile.TemporaryDirectory() as name:
        folder, ours, theirs = Path(name), free_port(), free_port()
        link = stream("mtcp", ours, listens=True, keepalive=30, node=UNCHECKED)
        node = Node(slowlight, folder, link)
        peer = None
        try:
            node.wait()
            given = folder / "given"
            given.write_bytes(payload)
            command = [str(python), str(PEER), "node", str(theirs), str(ours)]
            peer = subprocess.Popen([*command, f"{OURS}in", str(given)])
            came = node.receive()
        finally:
            if peer is not None:
                stop(peer)
            node.stop()
    if came != payload:
        raise FailedError("the payload is another")
