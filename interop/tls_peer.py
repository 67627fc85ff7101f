"""A peer with TCPCL 4 over OpenSSL's TLS (Python's `ssl`), for one bundle in each direction.

Bundles are those of pyD3TN. It implements the part of TCPCL 4 (RFC 9174) that one bundle needs:
contact headers, SESS_INIT, segments and their acknowledgments, and SESS_TERM.
"""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bundle_node import OURS, PATIENCE, THEIRS, FailedError

# RFC 9174, 4.2 and 5.
CAN_TLS = 1
XFER_SEGMENT, XFER_ACK, XFER_REFUSE, KEEPALIVE, SESS_TERM, MSG_REJECT, SESS_INIT = range(1, 8)
END, START = 1, 2
SEGMENT = 65_536
# Type of an alternative name that is an endpoint identifier (RFC 9174, 4.4.1).
BUNDLE_EID = "1.3.6.1.5.5.7.8.11"


@dataclass(frozen=True)
class Papers:
    """Certificates of both nodes, and of their authority."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Papers:
        """Makes them with the program openssl."""

        def openssl(*words: str) -> None:
            command = ["openssl", *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
            if done.returncode != 0:
                raise FailedError(f"openssl {words[0]}: {done.stderr.strip()}")

        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl(
            *("req", "-x509", *new, "-days", "2", "-subj", "/CN=authority"),
            *("-keyout", "authority.key", "-out", "authority.pem"),
        )
        for name, node in (("ours", OURS), ("theirs", THEIRS)):
            openssl(
                *("req", *new, "-subj", f"/CN={name}", "-keyout", f"{name}.key"),
                *("-out", f"{name}.csr"),
            )
            # Hardy compares the DNS name, others the node ID.
            said = f"subjectAltName=DNS:{name}.test,otherName:{BUNDLE_EID};IA5STRING:{node}\n"
            (folder / f"{name}.ext").write_text(said)
            openssl(
                *("x509", "-req", "-in", f"{name}.csr", "-days", "2", "-CAcreateserial"),
                *("-CA", "authority.pem", "-CAkey", "authority.key"),
                *("-extfile", f"{name}.ext", "-out", f"{name}.pem"),
            )
        (folder / "trusted").mkdir()
        (folder / "trusted/authority.pem").write_bytes((folder / "authority.pem").read_bytes())
        return cls(folder)

    def table(self, further: str = "") -> str:
        """Returns the TLS table of a node's file; `further` has more keys."""
        place = {name: str(self.folder / name) for name in ("ours.pem", "ours.key")}
        trusted = self.folder / "authority.pem"
        return (
            f'tls = {{ certificate = "{place["ours.pem"]}", key = "{place["ours.key"]}", '
            f'trusted = "{trusted}"{further} }}\n'
        )

    def context(self, *, listens: bool) -> ssl.SSLContext:
        """Returns the peer's TLS context: both sides have certificates."""
        kind = ssl.PROTOCOL_TLS_SERVER if listens else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(kind)
        # Certificates name endpoints, which OpenSSL does not compare.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self.folder / "authority.pem")
        context.load_cert_chain(self.folder / "theirs.pem", self.folder / "theirs.key")
        return context


class Session:
    """A session after TLS and SESS_INIT."""

    def __init__(self, stream: ssl.SSLSocket) -> None:
        self.stream = stream
        node = THEIRS.encode()
        most = (1 << 62) - 1
        head = struct.pack("!BHQQH", SESS_INIT, 0, SEGMENT, most, len(node))
        stream.sendall(head + node + struct.pack("!I", 0))
        (kind,) = self.read("!B")
        if kind != SESS_INIT:
            raise FailedError(f"message {kind} in place of SESS_INIT")
        _, self.segment, _, length = self.read("!HQQH")
        said = self.exactly(length).decode()
        if said != OURS:
            raise FailedError(f"the node says that it is {said}")
        (extensions,) = self.read("!I")
        self.exactly(extensions)

    def exactly(self, size: int) -> bytes:
        """Reads this number of bytes."""
        parts = []
        while size > 0:
            part = self.stream.recv(min(size, 1 << 20))
            if not part:
                raise FailedError("the stream ended early")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def read(self, form: str) -> tuple[int, ...]:
        """Reads numbers."""
        return struct.unpack(form, self.exactly(struct.calcsize(form)))

    def give(self, bundle: bytes) -> None:
        """Sends a bundle, and waits until it is acknowledged completely."""
        step = min(SEGMENT, self.segment)
        confirmed = 0
        for at in range(0, len(bundle), step):
            part = bundle[at : at + step]
            flags = (START if at == 0 else 0) | (END if at + step >= len(bundle) else 0)
            head = struct.pack("!BBQ", XFER_SEGMENT, flags, 0)
            head += struct.pack("!I", 0) if at == 0 else b""
            self.stream.sendall(head + struct.pack("!Q", len(part)) + part)
            # One segment in flight, so that neither side waits for the other's buffers.
            while confirmed < at + len(part):
                confirmed = self.acknowledged()
        self.end()

    def acknowledged(self) -> int:
        """Reads the length in the next acknowledgment."""
        (kind,) = self.read("!B")
        if kind == KEEPALIVE:
            return -1
        if kind != XFER_ACK:
            raise FailedError(f"message {kind} in place of an acknowledgment")
        _, _, size = self.read("!BQQ")
        return size

    def take(self) -> bytes:
        """Reads the next bundle."""
        bundle, is_last = bytearray(), False
        while not is_last:
            (kind,) = self.read("!B")
            if kind == KEEPALIVE:
                continue
            if kind != XFER_SEGMENT:
                raise FailedError(f"message {kind} in place of a segment")
            flags, transfer = self.read("!BQ")
            if flags & START:
                (extensions,) = self.read("!I")
                self.exactly(extensions)
            (length,) = self.read("!Q")
            bundle += self.exactly(length)
            is_last = bool(flags & END)
            self.stream.sendall(struct.pack("!BBQQ", XFER_ACK, flags, transfer, len(bundle)))
        self.end()
        return bytes(bundle)

    def end(self) -> None:
        """Ends the session in order, without waiting for the reply."""
        self.stream.sendall(struct.pack("!BBB", SESS_TERM, 0, 0))


@contextmanager
def session(papers: Papers, port: int, listener: socket.socket | None) -> Iterator[Session]:
    """Opens a session with the node, or accepts one at `listener`."""
    if listener is None:
        stream = socket.create_connection(("127.0.0.1", port), PATIENCE)
    else:
        stream, _ = listener.accept()
        stream.settimeout(PATIENCE)
    with stream:
        # A segment waits for its acknowledgment, so its end must not be delayed by Nagle's
        # algorithm.
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.sendall(b"dtn!" + bytes([4, CAN_TLS]))
        header = stream.recv(6, socket.MSG_WAITALL)
        if header != b"dtn!" + bytes([4, CAN_TLS]):
            raise FailedError(f"a contact header {header.hex()}")
        is_server = listener is not None
        context = papers.context(listens=is_server)
        with context.wrap_socket(stream, server_side=is_server) as secured:
            yield Session(secured)
