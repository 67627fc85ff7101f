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
# Building takes 2.5 minutes on two free cores; nobody waits longer than this.
BUILD_MAX = 1200.0
# What its HTTP server takes in one request.
REQUEST_MAX = 2_000_000
# How long nothing may arrive while speed is measured.
FLOW_PATIENCE = 20.0
# In place of a bundle.
NOTHING = b"Nothing to receive"


def install(target: Path) -> Path | None:
    """The daemon, built below the folder if it is not there; None, and a message, if that fails."""
    root = target / f"dtn7-{VERSION}"
    daemon = root / "bin/dtnd"
    if daemon.exists():
        return daemon
    if shutil.which("cargo") is None:
        print("dtn7 is left out: there is no cargo", file=sys.stderr)
        return None
    print(f"building dtn7 {VERSION}", file=sys.stderr)
    # Without the stores on disk, which are not what is tried.
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
    """Where a daemon listens and whom it knows."""

    # Layers and their ports: `mtcp`, `tcp` (which is TCPCL 4).
    listens: tuple[tuple[str, int], ...] = ()
    # The neighbours: layer, port and name.
    neighbours: tuple[tuple[str, int, str], ...] = ()


class Daemon:
    """A dtn7 node called `name`, with its store in memory and a service `in`."""

    def __init__(self, program: Path, folder: Path, name: str, place: Place) -> None:
        self.name, self.web = name, free_port()
        folder.mkdir(exist_ok=True)
        command = [str(program), "--nodeid", name, "--workdir", str(folder), "--db", "mem"]
        command += ["--endpoint", "in", "--web-port", str(self.web), "--ipv4"]
        # Tried again each second, if a neighbour is not there yet.
        command += ["--disable_nd", "--interval", "0", "--janitor", "1s"]
        for layer, port in place.listens:
            command += ["--cla", f"{layer}:port={port}:bind=127.0.0.1"]
        for layer, port, neighbour in place.neighbours:
            # Without an agent for it a neighbour is not reached.
            if layer not in dict(place.listens):
                command += ["--cla", f"{layer}:port={free_port()}:bind=127.0.0.1"]
            command += ["--static-peer", f"{layer}://127.0.0.1:{port}/{neighbour}"]
        self.log = folder / "dtnd.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "RUST_LOG": "warn"}
            )

    def ask(self, what: str, body: bytes | None = None) -> bytes:
        """A request to its HTTP server."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.web}/{what}", data=body)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            data: bytes = answer.read()
            return data

    def wait(self) -> None:
        """Until it answers."""
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
        """Has it make a bundle."""
        self.ask(f"send?dst={urllib.parse.quote(to, safe='')}", payload)

    def received(self) -> Iterator[bytes]:
        """The bundles for `in`, one after the other, each as soon as it is there."""
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            bundle = self.ask("endpoint?in")
            if bundle == NOTHING:
                time.sleep(0.05)
            else:
                yield bundle
        raise FailedError(f"no more bundle for dtn7's application: {self.said()}")

    def said(self) -> str:
        """Its last warnings."""
        lines = self.log.read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:]) or "it says nothing"


@contextmanager
def running(program: Path, folder: Path, name: str, place: Place) -> Iterator[Daemon]:
    """A daemon that answers."""
    daemon = Daemon(program, folder, name, place)
    try:
        daemon.wait()
        yield daemon
    finally:
        stop(daemon.process)


def made(count: int, payload: bytes) -> list[bytes]:
    """So many bundles with one payload each."""
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
    """Sends bundles, unless the other side goes."""
    with suppress(OSError):
        for bundle in bundles:
            mtcp.send_bundle(bundle)


def flow(program: Path, folder: Path, size: int, count: int) -> dict[str, float]:
    """Measures once."""
    inlet, between = free_port(), free_port()
    given = made(count, bytes(size))
    to = Place(listens=(("tcp", between),))
    past = Place(listens=(("mtcp", inlet),), neighbours=(("tcp", between, "sink"),))
    with (
        running(program, folder / "sink", "sink", to) as sink,
        running(program, folder / "relay", "relay", past),
        MTCPConnection("127.0.0.1", inlet) as mtcp,
    ):
        begun = heard = time.monotonic()
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
    seconds = heard - begun
    rate = arrived / seconds if seconds > 0 else 0.0
    return {"sent": count, "arrived": arrived, "seconds": seconds, "bundles_per_s": rate}


def main() -> int:
    """Measures once; 1 without dtn7."""
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
