"""Programs of tests of `slowlight pep`: NAME [ARGUMENT ...]. Each fails if something goes wrong."""

import contextlib
import hashlib
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable

NAME, *ARGUMENTS = sys.argv[1:]
LIMIT = 40


def content(size: int, seed: int = 0) -> bytes:
    """What is sent."""
    block = hashlib.shake_256(str(seed).encode()).digest(1 << 16)
    return (block * (size // len(block) + 1))[:size]


def everything(stream: socket.socket) -> bytes:
    """What comes until the end."""
    parts = []
    while part := stream.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def listener(port: int) -> socket.socket:
    """Waits for connections."""
    both = {"family": socket.AF_INET6, "dualstack_ipv6": True}
    listening = socket.create_server(("", port), backlog=1024, **both)
    listening.settimeout(LIMIT)
    return listening


def connected(port: str) -> socket.socket:
    """A connection to the server."""
    host = os.environ.get("SERVER", "server")
    return socket.create_connection((host, int(port)), timeout=LIMIT)


def reset(stream: socket.socket) -> None:
    """Ends it by a reset."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


def ends(action: Callable[[], bytes]) -> str:
    """How a stream ends."""
    try:
        got = action()
    except ConnectionResetError:
        return "reset"
    except ConnectionRefusedError:
        return "refused"
    except BrokenPipeError:
        return "reset"
    except TimeoutError:
        return "silence"
    return f"end after {len(got)}"


def ends_of(stream: socket.socket) -> str:
    """How what comes over a stream ends."""
    return ends(lambda: everything(stream))


def echo(port: str) -> None:
    """Sends back what comes, of many at once; prints the addresses of clients."""
    listening = listener(int(port))

    def serve(stream: socket.socket) -> None:
        try:
            while part := stream.recv(1 << 16):
                stream.sendall(part)
            stream.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        stream.close()

    listening.settimeout(None)
    print("listens", flush=True)
    while True:
        stream, peer = listening.accept()
        print(peer[0].removeprefix("::ffff:"), peer[1], flush=True)
        threading.Thread(target=serve, args=[stream], daemon=True).start()


def many(port: str, count: str, size: str) -> None:
    """Many connections at one time, all of which carry something there and back."""
    started = time.monotonic()
    streams: list[socket.socket] = []
    lock = threading.Lock()
    faults: list[str] = []
    ready = threading.Barrier(int(count))

    def one(number: int) -> None:
        try:
            try:
                stream = connected(port)
                with lock:
                    streams.append(stream)
            finally:
                # The others need not do without who is turned away so soon.
                ready.wait(LIMIT)
            data = content(int(size), number)
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
            if everything(stream) != data:
                raise ValueError("other bytes")
        except Exception as error:
            with lock:
                faults.append(f"{number}: {error!r}")

    threads = [threading.Thread(target=one, args=[number]) for number in range(int(count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, (len(faults), faults[:5])
    print(f"{len(streams)} in {time.monotonic() - started:.1f} s")


def closed(port: str) -> None:
    """How a connection to a port ends where nobody listens."""

    def attempt() -> bytes:
        stream = connected(port)
        stream.sendall(b"hello")
        return everything(stream)

    started = time.monotonic()
    how = ends(attempt)
    print(how, f"{time.monotonic() - started:.1f}")


def odd_server(port: str) -> None:
    """Does with each connection what its first byte asks for."""
    listening = listener(int(port))
    print("listens", flush=True)
    while True:
        stream, _ = listening.accept()
        stream.settimeout(LIMIT)
        what = stream.recv(1)
        if what == b"h":
            # The client ends first, and then takes what comes.
            got = everything(stream)
            stream.sendall(content(100_000) + str(len(got)).encode())
            stream.close()
        elif what == b"s":
            # The server ends first, and then takes what comes.
            stream.shutdown(socket.SHUT_WR)
            print("server got", len(everything(stream)), flush=True)
            stream.close()
        elif what == b"r":
            reset(stream)
        elif what == b"c":
            print("server saw", ends_of(stream), flush=True)
            stream.close()
        elif what == b"z":
            # Reads nothing for a while.
            time.sleep(3)
            digest = hashlib.sha256(everything(stream)).hexdigest()
            stream.sendall(digest.encode())
            stream.close()
        else:
            break


def odd_client(port: str) -> None:
    """The other end of all of these."""
    stream = connected(port)
    stream.sendall(b"h" + content(50_000))
    stream.shutdown(socket.SHUT_WR)
    assert everything(stream) == content(100_000) + b"50000"
    stream = connected(port)
    stream.sendall(b"s")
    assert everything(stream) == b""
    stream.sendall(content(30_000))
    stream.close()
    stream = connected(port)
    stream.sendall(b"r")
    how = ends_of(stream)
    assert how == "reset", how
    stream = connected(port)
    stream.sendall(b"c")
    time.sleep(1.5)
    reset(stream)
    stream = connected(port)
    data = content(1_500_000)
    stream.sendall(b"z" + data)
    stream.shutdown(socket.SHUT_WR)
    assert everything(stream) == hashlib.sha256(data).hexdigest().encode()
    stream = connected(port)
    stream.sendall(b"q")
    print("as it should be")


def pour(port: str) -> None:
    """Sends until an error; prints the error, and after how many seconds."""
    stream = connected(port)
    print("connected", flush=True)
    started = time.monotonic()

    def endless() -> bytes:
        while True:
            stream.sendall(content(1 << 16))

    how = ends(endless)
    print(how, f"{time.monotonic() - started:.1f}")


def flood(port: str) -> None:
    """Sends to each client until it cannot."""
    listening = listener(int(port))
    listening.settimeout(None)
    print("listens", flush=True)
    while True:
        stream, _ = listening.accept()

        def send(stream: socket.socket = stream) -> None:
            with contextlib.suppress(OSError):
                while True:
                    stream.sendall(content(1 << 16))

        threading.Thread(target=send, daemon=True).start()


def drain(port: str, count: str) -> None:
    """Many connections, all of which take what comes; says how they ended, of each kind how many."""
    streams = [connected(port) for _ in range(int(count))]
    print("connected", flush=True)
    hows: list[str] = []

    def take(stream: socket.socket) -> None:
        hows.append(ends_of(stream))

    threads = [threading.Thread(target=take, args=[stream]) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(", ".join(f"{hows.count(how)} {how}" for how in sorted(set(hows))))


def sink(port: str) -> None:
    """Takes what comes."""
    listening = listener(int(port))
    listening.settimeout(None)
    print("listens", flush=True)
    while True:
        stream, _ = listening.accept()

        def take(stream: socket.socket = stream) -> None:
            with contextlib.suppress(OSError):
                everything(stream)

        threading.Thread(target=take, daemon=True).start()


{
    "echo": echo,
    "many": many,
    "closed": closed,
    "odd-server": odd_server,
    "odd-client": odd_client,
    "pour": pour,
    "sink": sink,
    "flood": flood,
    "drain": drain,
}[NAME](*ARGUMENTS)
