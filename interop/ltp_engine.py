"""Bundles over LTP with the engine of the crate licklider (`ltp-peer`): its UDP driver is made for
ION, one segment a datagram.

Red and green blocks of one bundle, and red blocks of several bundles one after another, as ION's
aggregation makes them. The bundles of the peer are those of pyD3TN.
"""

from __future__ import annotations

import io
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle_node import (
    OURS,
    PATIENCE,
    THEIRS,
    FailedError,
    Node,
    captured,
    free_port,
    ltp,
    malformed,
    stop,
)
from cbor2 import CBORDecodeEOF, CBORDecoder
from pyd3tn.bundle7 import serialize_bundle7

# Bundles in a block, and bytes of each payload.
BLOCKS = ((1, 1000), (1, 65_536), (1, 1_000_000), (3, 1000), (10, 1000), (100, 500))
# Green blocks are not retransmitted: this many bytes fit the buffer of a socket.
GREEN = ((1, 1000), (1, 65_536))
# Payload that fits one datagram.
ONE_DATAGRAM = 1000


@dataclass(frozen=True)
class Block:
    """One block."""

    to_us: bool
    color: str
    count: int
    size: int

    def name(self) -> str:
        """Name in the table."""
        way = "licklider to slowlight" if self.to_us else "slowlight to licklider"
        several = f"{self.count} in a block, " if self.count > 1 else ""
        return f"{way}, ltp, {self.color}, version 7, {several}{self.size} B"


def cases(slowlight: Path, program: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields names and functions of all cases."""
    for color, sizes in (("red", BLOCKS), ("green", GREEN)):
        for to_us in (True, False):
            for count, size in sizes:
                block = Block(to_us, color, count, size)
                yield block.name(), lambda block=block: run(slowlight, program, block)  # type: ignore[misc]


def payloads(block: Block) -> list[bytes]:
    """Returns the payloads of a block, each another."""
    numbers = random.Random(block.count)
    return [numbers.randbytes(block.size) for _ in range(block.count)]


def made(number: int, payload: bytes) -> bytes:
    """Makes a bundle with pyD3TN."""
    return bytes(
        serialize_bundle7(
            f"{THEIRS}out", f"{OURS}in", payload, sequence_number=number, hop_limit=10
        )
    )


def apart(block: bytes) -> list[bytes]:
    """Returns the payloads of the bundles in a block."""
    decoder, found = CBORDecoder(io.BytesIO(block)), []
    with suppress(CBORDecodeEOF):
        while True:
            blocks: Any = decoder.decode()
            # The fifth item of the last block.
            found.append(bytes(blocks[-1][4]))
    return found


def arrived(folder: Path, count: int, peer: subprocess.Popen[bytes]) -> list[list[bytes]]:
    """Returns the payloads of the peer's blocks, when they have this number of bundles."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        blocks = [apart(path.read_bytes()) for path in folder.iterdir() if path.name != "part"]
        if sum(map(len, blocks)) >= count:
            return blocks
        if peer.poll() is not None:
            raise FailedError(f"the peer has ended with {peer.returncode}")
        time.sleep(0.05)
    raise FailedError("nothing arrived, or not all")


def run(slowlight: Path, program: Path, block: Block) -> None:
    """Runs a case."""
    expected = payloads(block)
    with tempfile.TemporaryDirectory() as name:
        folder, ours, theirs = Path(name), free_port(), free_port()
        capture = folder / "capture.pcapng"
        further = f'color = "{block.color}"\nwindow = 256\n'
        if block.count > 1:
            further += 'aggregation = { bytes = "64 KiB", delay = "500 ms" }\n'
        ports = f"udp port {ours} or udp port {theirs}"
        # On loopback a capture has several of our datagrams in one packet (segmentation offload).
        is_seen = block.to_us or block.count * block.size <= ONE_DATAGRAM
        with captured(capture, ports, block.count * block.size) if is_seen else nullcontext():
            node = Node(slowlight, folder, ltp(ours, theirs, further))
            addresses = [f"127.0.0.1:{theirs}", f"127.0.0.1:{ours}"]
            peer = None
            try:
                node.wait()
                if block.to_us:
                    path = folder / "block"
                    path.write_bytes(b"".join(made(*each) for each in enumerate(expected)))
                    command = [str(program), *addresses, "send", block.color, str(path)]
                    peer = subprocess.Popen(command)
                    came = node.receive_all(block.count)
                    # All of a red block are confirmed together.
                    if peer.wait(PATIENCE) != 0:
                        raise FailedError("the peer's block was not confirmed")
                else:
                    inbox = folder / "blocks"
                    inbox.mkdir()
                    command = [str(program), *addresses, "recv", str(inbox)]
                    peer = subprocess.Popen(command, stdin=subprocess.PIPE)
                    node.send_all(expected, 7)
                    blocks = arrived(inbox, block.count, peer)
                    came = [payload for each in blocks for payload in each]
                    if block.count > 1 and len(blocks) == block.count:
                        raise FailedError("each bundle is in a block of its own")
            finally:
                if peer is not None:
                    stop(peer)
                node.stop()
        if sorted(came) != sorted(expected):
            raise FailedError("the payloads are others")
        wrong = malformed(capture, f"udp.port=={theirs},ltp")
        if wrong is not None:
            raise FailedError(wrong)
