"""dtn7, the node of the crate of that name: how it is had, and one that runs.

    dtn7.py --target FOLDER --size SIZE --count COUNT

measures how fast bundles go from one to another over TCPCL 4 on loopback: the first gets them over
MTCP, passes them on, and the other hands them to its application. It prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bundle_node import PATIENCE, FailedError, free_port, stop
from pyd3tn.bundle7 import CRCType, serialize_bundle7
from pyd3tn.mtcp import MTCPConnection

VERSION = "0.21.0"
# Time limit of the build, which takes 2.5 minutes on two free cores.
BUILD_MAX = 1200.0
# Maximum size of a request to its HTTP server.
REQUEST_MAX = 2_000_000
# Silence after which a speed measurement ends.
FLOW_PATIENCE = 20.0
# Response if there is no bundle.
NOTHING = b"Nothing to receive"


def install(target: Path) -> Path | None:
    """Builds the daemon below the folder if it is missing; None, with a message, if that fails."""
    root = target / f"dtn7-{VERSION}"
    daemon = root / "bin/dtnd"
    if daemon.exists():
        return daemon
    if shutil.which("cargo") is None:
        print("dtn7 is left out: there is no cargo", file=sys.stderr)
        return None
    print(f"building dtn7 {VERSION}", file=sys.stderr)
    # Without the stores on disk, which are not tested.
    command = ["cargo", "install", "--quiet", "--locked", "--no-default-features"]
    command += ["--root", str(root), "--target-dir", str(target / "dtn7"), f"dtn7@{VERSION}"]
    environment = {key: value for key, value in os.environ.items() if key != "RUSTFLAGS"}
    try:
        subprocess.run(command, check=True, env=environment, timeout=BUILD_MAX)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"dtn7 is left out: {error}", file=sys.stderr)
        return None
    return daemon


@dataclass(frozen=True)
class Place:
    """Addresses of a daemon and of its neighbours."""

    # Layers and ports: `mtcp`, `tcp` (which is TCPCL 4).
    listens: tuple[tuple[str, int], ...] = ()
    # Neighbours: layer, port and name.
    neighbours: tuple[tuple[str, int, str], ...] = ()


class Daemon:
    """A dtn7 node called `name`, with its store in memory and a service `in`."""

    def __init__(self, program: Path, folder: Path, name: str, place: Place) -> None:
        self.name, self.web = name, free_port()
        folder.mkdir(exist_ok=True)
        command = [str(program), "--nodeid", name, "--workdir", str(folder), "--db", "mem"]
        command += ["--endpoint", "in", "--web-port", str(self.web), "--ipv4"]
        # Reconnects each second, if a neighbour is not up yet.
        command += ["--disable_nd", "--interval", "0", "--janitor", "1s"]
        for layer, port in place.listens:
            command += ["--cla", f"{layer}:port={port}:bind=127.0.0.1"]
        for layer, port, neighbour in place.neighbours:
            # A neighbour is only reached if there is an agent for the layer.
            if layer not in dict(place.listens):
                command += ["--cla", f"{layer}:port={free_port()}:bind=127.0.0.1"]
            command += ["--static-peer", f"{layer}://127.0.0.1:{port}/{neighbour}"]
        self.log = folder / "dtnd.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "RUST_LOG": "warn"}
            )

    def ask(self, what: str, body: bytes | None = None) -> bytes:
        """Sends a request to its HTTP server."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.web}/{what}", data=body)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            data: bytes = answer.read()
            return data

    def wait(self) -> None:
        """Waits until it responds."""
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            try:
                self.ask("status/nodeid")
                return
            except OSError:
                if self.process.poll() is not None:
                    raise FailedError(f"dtn7 has ended: {self.said()}") from None
                time.sleep(0.02)
        raise FailedError("dtn7 does not answer")

    def send(self, to: str, payload: bytes) -> None:
        """Makes it send a bundle."""
        self.ask(f"send?dst={urllib.parse.quote(to, safe='')}", payload)

    def received(self) -> Iterator[bytes]:
        """Yields the bundles for `in` as they arrive."""
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            bundle = self.ask("endpoint?in")
            if bundle == NOTHING:
                time.sleep(0.05)
            else:
                yield bundle
        raise FailedError(f"no more bundle for dtn7's application: {self.said()}")

    def said(self) -> str:
        """Returns its last warnings."""
        lines = self.log.read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:]) or "it says nothing"


@contextmanager
def running(program: Path, folder: Path, name: str, place: Place) -> Iterator[Daemon]:
    """Runs a daemon, and waits until it responds."""
    daemon = Daemon(program, folder, name, place)
    try:
        daemon.wait()
        yield daemon
    finally:
        stop(daemon.process)


def made(count: int, payload: bytes) -> list[bytes]:
    """Returns bundles with one payload each."""
    now = datetime.now(UTC)
    return [
        bytes(
            serialize_bundle7(
                "dtn://source/out",
                "dtn://sink/in",
                payload,
                creation_timestamp=now,
                sequence_number=number,
                crc_type_canonical=CRCType.NONE,
            )
        )
        for number in range(count)
    ]


def give(mtcp: MTCPConnection, bundles: list[bytes]) -> None:
    """Sends bundles until the peer goes."""
    with suppress(OSError):
        for bundle in bundles:
            mtcp.send_bundle(bundle)


def flow(program: Path, folder: Path, size: int, count: int) -> dict[str, float]:
    """Measures the speed once."""
    inlet, between = free_port(), free_port()
    given = made(count, bytes(size))
    to = Place(listens=(("tcp", between),))
    past = Place(listens=(("mtcp", inlet),), neighbours=(("tcp", between, "sink"),))
    with (
        running(program, folder / "sink", "sink", to) as sink,
        running(program, folder / "relay", "relay", past),
        MTCPConnection("127.0.0.1", inlet) as mtcp,
    ):
        started = heard = time.monotonic()
        sender = threading.Thread(target=give, args=(mtcp, given))
        sender.start()
        arrived = 0
        while arrived < count and time.monotonic() < heard + FLOW_PATIENCE:
            now = json.loads(sink.ask("status/info"))["delivered"]
            if now > arrived:
                arrived, heard = now, time.monotonic()
            time.sleep(0.002)
        with suppress(OSError):
            mtcp.sock.shutdown(socket.SHUT_RDWR)
        sender.join()
    seconds = heard - started
    rate = arrived / seconds if seconds > 0 else 0.0
    return {"sent": count, "arrived": arrived, "seconds": seconds, "bundles_per_s": rate}


def main() -> int:
    """Measures the speed once; returns 1 without dtn7."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", type=Path, required=True, help="where programs are built")
    parser.add_argument("--size", type=int, required=True, help="of each payload")
    parser.add_argument("--count", type=int, required=True, help="how many bundles")
    given = parser.parse_args()
    program = install(given.target.resolve())
    if program is None:
        return 1
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(flow(program, Path(name), given.size, given.count)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
