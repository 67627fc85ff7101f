"""The client against a node: that of $SLOWLIGHT, or of the target folder."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path

from slowlight.node import Node, NodeError

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def program() -> Path:
    """The binary: a debug one is what `make test` has built."""
    named = os.environ.get("SLOWLIGHT")
    return Path(named) if named else TARGET / "debug" / "slowlight"


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not is_so():
        if time.monotonic() > limit:
            raise TimeoutError(f"waited 20 s for {what}")
        time.sleep(0.02)


@unittest.skipUnless(program().exists(), "slowlight is not built")
class NodeTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        place = Path(self.folder.name)
        config = place / "node.toml"
        config.write_text(
            f'id = "ipn:1.0"\nsocket = "{place}/node.sock"\nstore.memory = "10 MB"\n'
            '[[layer]]\nkind = "tcpcl4"\n[[neighbour]]\nnode = "ipn:2.0"\n'
        )
        self.process = subprocess.Popen([program(), "node", config, "--quiet"])
        self.addCleanup(self.stop)
        self.node = Node(f"{place}/node.sock")
        wait_for("the node to be ready", self.is_ready)

    def is_ready(self) -> bool:
        try:
            return bool(self.node.status()["is_ready"])
        except OSError:
            return False

    def stop(self) -> None:
        self.process.terminate()
        self.assertEqual(self.process.wait(20), 0)

    def test_bundles_come_until_they_are_confirmed(self) -> None:
        sent = [self.node.send("ipn:1.5", payload, source="9") for payload in (b"", b"x" * 100_000)]
        for turn in range(2):
            bundles = self.node.receive("5")
            found = [next(bundles) for _ in sent]
            self.assertEqual({bundle.id for bundle in found}, set(sent))
            self.assertEqual(sorted(len(bundle.payload) for bundle in found), [0, 100_000])
            self.assertEqual(found[0].source, "ipn:1.9")
            if turn == 1:
                for bundle in found:
                    self.node.confirm(bundle)
            bundles.close()  # type: ignore[attr-defined]
            wait_for("the node to see that it has gone", self.has_no_user)
        self.assertEqual(self.node.bundles(), [])

    def has_no_user(self) -> bool:
        return not self.node.status()["endpoints"]

    def test_what_is_refused_says_why(self) -> None:
        with self.assertRaises(NodeError) as refused:
            self.node.send("nowhere", b"")
        self.assertEqual(refused.exception.status, 422)
        self.assertIn("names no endpoint", str(refused.exception))
        held = self.node.send("ipn:2.1", b"kept")
        self.assertEqual([bundle["id"] for bundle in self.node.bundles()], [held])
        self.node.cancel(held)
        self.assertEqual(self.node.bundles(), [])

    def test_bundles_have_flags_and_facts(self) -> None:
        options = {"source": "9", "reports": ["delivered"], "hop_limit": 3, "lifetime": 60.0}
        sent = self.node.send("ipn:1.5", b"x", key="one", **options)  # type: ignore[arg-type]
        again = self.node.send("ipn:1.5", b"x", key="one", **options)  # type: ignore[arg-type]
        self.assertEqual(sent, again)
        bundles = self.node.receive("5", confirm=True)
        bundle = next(bundles)
        self.assertEqual((bundle.id, bundle.destination, bundle.hops), (sent, "ipn:1.5", (3, 0)))
        self.assertEqual(bundle.lifetime, 60.0)
        bundles.close()  # type: ignore[attr-defined]
        wait_for("a report", lambda: any(self.node.reports("9")))
        report = next(iter(self.node.reports("9")))
        self.assertEqual((report.id, report.events), (sent, ("delivered",)))

    def test_many_bundles_go_in_one_request(self) -> None:
        bundles = (("ipn:2.1", bytes(n % 100)) for n in range(5000))
        sent = list(self.node.send_many(bundles, source="9"))
        self.assertEqual(len(set(sent)), 5000)
        self.assertEqual(len(self.node.bundles(source="ipn:1.9", state="queued")), 5000)
        with self.assertRaises(NodeError) as refused:
            list(self.node.send_many([("ipn:2.1", b""), ("nowhere", b"")]))
        self.assertEqual(refused.exception.status, 422)
        self.assertEqual(self.node.purge(destination="ipn:2.0"), 5001)
        self.assertEqual(self.node.bundles(), [])

    def test_echoes_answer(self) -> None:
        times = self.node.ping("ipn:1.2047", count=3)
        self.assertEqual(len(times), 3)
        self.assertTrue(all(rtt is not None and rtt < 1 for rtt in times), times)


class StreamTest(unittest.TestCase):
    """Streams of bundles to a socket with one response."""

    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        path = f"{self.folder.name}/node.sock"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(self.listener.close)
        self.listener.bind(path)
        self.listener.listen()
        self.node = Node(path, timeout=10)

    def respond(self, response: bytes) -> None:
        """Responds to the beginning of a request, and reads to the end of the connection."""

        def run() -> None:
            connection, _ = self.listener.accept()
            with connection:
                connection.recv(1)
                connection.sendall(response)
                while connection.recv(1 << 16):
                    pass

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)

    def test_a_refused_stream_says_why(self) -> None:
        body = b'{"error": "it is full"}'
        self.respond(b"HTTP/1.1 503 Busy\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        with self.assertRaises(NodeError) as refused:
            list(self.node.send_many([("ipn:2.1", b"")]))
        self.assertEqual((refused.exception.status, str(refused.exception)), (503, "it is full"))

    def test_exceptions_of_the_bundles_are_raised(self) -> None:
        line = b'{"id": "first"}\n'
        for error in (FileNotFoundError("the second"), KeyError("the second")):
            self.respond(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"%x\r\n%b\r\n" % (len(line), line)
            )
            has_first = threading.Event()

            def bundles(
                error: Exception = error, has_first: threading.Event = has_first
            ) -> Iterator[tuple[str, bytes]]:
                yield "ipn:2.1", b""
                has_first.wait(10)
                raise error

            sent = []
            started = time.monotonic()
            with self.assertRaises(type(error)) as raised:
                for bundle_id in self.node.send_many(bundles()):
                    sent.append(bundle_id)
                    has_first.set()
            self.assertIs(raised.exception, error)
            self.assertEqual(sent, ["first"])
            self.assertLess(time.monotonic() - started, 5)


if __name__ == "__main__":
    unittest.main()
