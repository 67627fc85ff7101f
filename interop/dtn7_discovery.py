"""Runs a bundle node and dtn7 on two hosts of a LAN, which find each other by beacons.

    dtn7_discovery.py SLOWLIGHT DTND

runs in namespaces of its own (`netns.inside`). Neither file has an address of the other. A bundle
crosses in each direction.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import netns
from bundle_node import OURS, PATIENCE, THEIRS, UNCHECKED, FailedError, stop

PORT, WEB = 4556, 3000
PAYLOADS = (b"to the other node", b"and back")
# Sends a request to a daemon on its host, with the standard input as body.
REQUEST = (
    "import sys, urllib.request as r; body = sys.stdin.buffer.read() or None; "
    "sys.stdout.buffer.write(r.urlopen(r.Request(sys.argv[1], data=body), timeout=9).read())"
)


def cases(slowlight: Path, program: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields the case, if namespaces work here."""
    why = netns.why_not()
    if why is not None:
        print(f"discovery of dtn7 is left out: {why}", file=sys.stderr)
        return
    command = netns.inside([sys.executable, __file__, str(slowlight), str(program)])

    def work() -> None:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE)
        if ended.returncode != 0:
            raise FailedError((ended.stderr.strip().splitlines() or ["no message"])[-1])

    yield "slowlight and dtn7 discover each other, tcpcl4, version 7", work


@contextmanager
def running(host: netns.Host, command: list[str]) -> Iterator[None]:
    """Runs a program on a host."""
    process = subprocess.Popen(host.command(command), stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        stop(process)


def request(host: netns.Host, what: str, body: bytes = b"") -> bytes:
    """Sends a request to the daemon on a host; empty without a response."""
    url = f"http://127.0.0.1:{WEB}/{what}"
    command = host.command([sys.executable, "-c", REQUEST, url])
    return subprocess.run(command, input=body, capture_output=True).stdout


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    """Waits until something is so."""
    limit = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > limit:
            raise FailedError(f"{what}: not within {PATIENCE:.0f} s")
        time.sleep(0.2)


def exchange(slowlight: Path, program: Path, folder: Path) -> None:
    """Starts both nodes, and sends a bundle each way."""
    socket, inbox, settings = folder / "sock", folder / "inbox", folder / "node.toml"
    settings.write_text(
        f'id = "{OURS}"\nsocket = {json.dumps(str(socket))}\nstore.memory = "1 MB"\n{UNCHECKED}'
        f'[discovery]\ninterfaces = ["{netns.INTERFACE}"]\nperiod = "1 s"\n'
        f'[[layer]]\nkind = "tcpcl4"\nlisten = ["0.0.0.0:{PORT}"]\nkeepalive = "30 s"\n'
    )
    name = THEIRS.removeprefix("dtn://").rstrip("/")
    daemon = [str(program), "--nodeid", name, "--workdir", str(folder), "--db", "mem", "--ipv4"]
    daemon += ["--endpoint", "in", "--web-port", str(WEB), "--interval", "1s", "--janitor", "1s"]
    daemon += ["--cla", f"tcp:port={PORT}:bind=0.0.0.0"]

    def bp(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(slowlight), "bp", *arguments, "--node", str(socket)]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)

    payload = folder / "payload"
    payload.write_bytes(PAYLOADS[0])
    inbox.mkdir()
    node = [str(slowlight), "node", "--quiet", str(settings)]
    with netns.hosts(2, 0.0) as (near, far), running(far, daemon), running(near, node):
        wait_for("dtn7 is discovered", lambda: THEIRS in bp("query").stdout)
        sent = bp("send", f"{THEIRS}in", str(payload))
        if sent.returncode != 0:
            raise FailedError(sent.stderr.strip())
        wait_for("dtn7 has the bundle", lambda: PAYLOADS[0] in request(far, "endpoint?in"))
        wait_for("dtn7 knows this node", lambda: b"ours" in request(far, "status/peers"))
        request(far, f"send?dst={OURS}in", PAYLOADS[1])
        received = bp("recv", "in", str(inbox), "--count", "1")
        if received.returncode != 0:
            raise FailedError(received.stderr.strip())
    if [path.read_bytes() for path in inbox.iterdir() if path.is_file()] != [PAYLOADS[1]]:
        raise FailedError("the payload is another")


def main() -> None:
    """Runs the conversation."""
    slowlight, program = (Path(argument) for argument in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        exchange(slowlight, program, Path(folder))


if __name__ == "__main__":
    main()
