"""The kernel's side of tests of `slowlight tcp`: PROGRAM FOLDER WHAT BYTES [OPTION ...]."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

PROGRAM, FOLDER, WHAT, SIZE, *OPTIONS = sys.argv[1:]
V6 = "fd00:9::2/64" in OPTIONS
OURS, KERNELS = ("fd00:9::2", "fd00:9::1") if V6 else ("10.9.0.2", "10.9.0.1")
DATA = bytes((i * 7 + i // 256 * 13 + i // 65536) % 251 for i in range(1 << 16))
DATA = (DATA * (int(SIZE) // len(DATA) + 1))[: int(SIZE)]
FAR = "10.0.0.1"
REPORT = os.path.join(FOLDER, "report.json")
LIMIT = 40 + int(SIZE) // 5_000_000


def path(name: str, content: bytes | None = None) -> str:
    """A file in the test's folder."""
    whole = os.path.join(FOLDER, name)
    if content is not None:
        with open(whole, "wb") as file:
            file.write(content)
    return whole


def start(*arguments: str, **pipes: int) -> subprocess.Popen[bytes]:
    """Starts our side."""
    limit = ["--timeout", f"{LIMIT} s", "--json", REPORT]
    return subprocess.Popen([PROGRAM, "tcp", *arguments, *limit, *OPTIONS], **pipes)


def ended(process: subprocess.Popen[bytes], code: int, end: str) -> dict:
    """How our side ended."""
    got = process.wait(timeout=LIMIT)
    with open(REPORT, encoding="utf-8") as file:
        report = json.load(file)
    assert got == code, (got, report)
    assert report["end"] == end, report
    return report


def listener(port: int = 5000) -> socket.socket:
    """A socket of the kernel's that listens."""
    listening = socket.socket(socket.AF_INET6 if V6 else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("::" if V6 else "0.0.0.0", port))
    listening.listen()
    listening.settimeout(LIMIT)
    return listening


def accepted(listening: socket.socket) -> socket.socket:
    """Its first connection."""
    connection, _ = listening.accept()
    connection.settimeout(LIMIT)
    return connection


def connected(port: int = 5001) -> socket.socket:
    """A connection of the kernel's to our side, once that listens."""
    until = time.monotonic() + LIMIT
    while True:
        try:
            connection = socket.create_connection((OURS, port), timeout=LIMIT)
        except OSError:
            assert time.monotonic() < until, "nobody listens"
            time.sleep(0.02)
        else:
            return connection


def everything(connection: socket.socket) -> bytes:
    """What comes until the end."""
    parts = []
    while part := connection.recv(1 << 20):
        parts.append(part)
    return b"".join(parts)


def same(got: bytes) -> None:
    """Whether what came is what was sent."""
    assert got == DATA, f"{len(got)} bytes of {len(DATA)}, or others"


def content(name: str) -> bytes:
    """What a file holds."""
    with open(path(name), "rb") as file:
        return file.read()


def tell(report: dict) -> None:
    """What the test reads."""
    print(json.dumps(report))


def to(port: int) -> str:
    """The kernel's address."""
    return f"[{KERNELS}]:{port}" if V6 else f"{KERNELS}:{port}"


def send() -> None:
    listening = listener()
    process = start("send", path("data", DATA), to(5000))
    connection = accepted(listening)
    same(everything(connection))
    connection.close()
    report = ended(process, 0, "graceful")
    assert report["bytes_sent"] == len(DATA), report
    tell(report)


def recv() -> None:
    process = start("recv", "5001", path("got"))
    connection = connected()
    connection.sendall(DATA)
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(1) == b""
    connection.close()
    report = ended(process, 0, "graceful")
    same(content("got"))
    tell(report)


def listen_sends() -> None:
    with open(path("data", DATA), "rb") as data:
        process = start("listen", "5001", stdin=data, stdout=subprocess.DEVNULL)
        connection = connected()
        same(everything(connection))
    connection.close()
    ended(process, 0, "graceful")


def connect_receives() -> None:
    listening = listener()
    with open(path("got"), "wb") as got:
        process = start("connect", to(5000), stdin=subprocess.DEVNULL, stdout=got)
        connection = accepted(listening)
        assert connection.recv(1) == b"", "our side has nothing to send"
        connection.sendall(DATA)
        connection.close()
        ended(process, 0, "graceful")
    same(content("got"))


def refused_by_kernel() -> None:
    report = ended(start("send", path("data", DATA), to(5999)), 1, "refused")
    assert report["bytes_sent"] == 0, report
    assert report["goodput_bps"] is None, report


def refused_by_us() -> None:
    process = start("recv", "5001", path("got"))
    connection = connected()
    for port in (5001, 5002):
        try:
            socket.create_connection((OURS, port), timeout=LIMIT).close()
        except ConnectionRefusedError:
            continue
        raise AssertionError(f"port {port} is open")
    connection.close()
    ended(process, 0, "graceful")


def half_close() -> None:
    # The kernel closes first, and then reads for a while what our side still writes.
    with open(path("data", DATA), "rb") as data, open(path("got"), "wb") as got:
        process = start("listen", "5001", stdin=data, stdout=got)
        connection = connected()
        connection.sendall(b"first")
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.3)
        same(everything(connection))
        connection.close()
        ended(process, 0, "graceful")
    assert content("got") == b"first"


def sender_without_window() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Our side, which sends to a small buffer that nobody reads."""
    listening = listener()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
    process = start("send", path("data", DATA), to(5000))
    return process, accepted(listening)


def zero_window() -> None:
    process, connection = sender_without_window()
    time.sleep(2.0)
    same(everything(connection))
    connection.close()
    report = ended(process, 0, "graceful")
    assert report["connection"]["window_probes"] > 0, report
    # And the other way round: nobody reads what our side receives.
    process = start("recv", "5001", "-", stdout=subprocess.PIPE)
    connection = connected()
    sender = threading.Thread(target=lambda: (connection.sendall(DATA * 4), connection.close()))
    sender.start()
    time.sleep(1.0)
    got = process.stdout.read()
    sender.join()
    assert got == DATA * 4
    ended(process, 0, "graceful")


def stopped() -> None:
    """Our side is stopped while its persist timer runs, and is late therefore."""
    process, connection = sender_without_window()
    time.sleep(0.3)
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    process.send_signal(signal.SIGCONT)
    same(everything(connection))
    connection.close()
    fails = "--strict" in OPTIONS and "--late-most" not in OPTIONS
    tell(ended(process, 1 if fails else 0, "graceful"))


def kernel_killed() -> None:
    listening = listener()
    process = start("send", path("data", DATA * 20), to(5000))
    connection = accepted(listening)
    connection.recv(1000)
    # There is something that was not read: the kernel resets the connection.
    connection.close()
    ended(process, 1, "reset")


def simultaneous_close() -> None:
    for _ in range(5):
        listening = listener()
        reader, writer = os.pipe()
        process = start("connect", to(5000), stdin=reader, stdout=subprocess.DEVNULL)
        os.close(reader)
        connection = accepted(listening)
        time.sleep(0.1)
        os.close(writer)
        connection.shutdown(socket.SHUT_WR)
        assert everything(connection) == b""
        connection.close()
        listening.close()
        ended(process, 0, "graceful")


def interrupted() -> None:
    listening = listener()
    process = start("send", path("data", DATA * 20), to(5000))
    connection = accepted(listening)
    connection.recv(1000)
    process.send_signal(signal.SIGTERM)
    try:
        everything(connection)
    except ConnectionResetError:
        pass
    else:
        raise AssertionError("the kernel was not told")
    ended(process, 1, "interrupted")


def interface_down() -> None:
    listening = listener()
    process = start("send", path("data", DATA * 5), to(5000))
    connection = accepted(listening)
    parts = [connection.recv(100_000)]
    subprocess.run(["ip", "link", "set", "slowtcp", "down"], check=True)
    time.sleep(0.5)
    subprocess.run(["ip", "link", "set", "slowtcp", "up"], check=True)
    parts.append(everything(connection))
    connection.close()
    assert b"".join(parts) == DATA * 5
    ended(process, 0, "graceful")


def far(receives: bool) -> None:
    subprocess.run(["ip", "route", "add", "10.9.0.0/24", "dev", "near"], check=True)
    if receives:
        connection = accepted(listener())
        got = everything(connection)
        connection.sendall(b"yes" if got == DATA else b"no")
    else:
        connection = connected()
        connection.sendall(DATA)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    connection.close()
    time.sleep(LIMIT)


def forwards() -> None:
    with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as file:
        file.write("1")


def far_opens_too() -> None:
    subprocess.run(["ip", "route", "add", "10.9.0.0/24", "dev", "near"], check=True)
    until = time.monotonic() + LIMIT
    while not os.path.exists(path("opening")):
        assert time.monotonic() < until, "the near end does not begin"
        time.sleep(0.01)
    # The near end's interface may not be there yet: then its kernel says that nothing is.
    for _ in range(10):
        connection = socket.socket()
        connection.settimeout(LIMIT)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.bind((FAR, 5000))
        try:
            connection.connect((OURS, 6000))
            break
        except OSError as error:
            assert error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH}, error
            connection.close()
    got = everything(connection)
    connection.sendall(b"yes" if got == DATA else b"no")
    connection.close()
    time.sleep(LIMIT)


def near_opens_too() -> None:
    forwards()
    with open(path("data", DATA), "rb") as data, open(path("got"), "wb") as got:
        process = start("connect", f"{FAR}:5000", "--from-port", "6000", stdin=data, stdout=got)
        # Both requests are under way at once, however long the near end took to begin.
        path("opening", b"")
        tell(ended(process, 0, "graceful"))
    assert content("got") == b"yes"


def near_send() -> None:
    forwards()
    # The far end may not listen yet.
    for _ in range(100):
        with open(path("data", DATA), "rb") as data, open(path("got"), "wb") as got:
            process = start("connect", f"{FAR}:5000", stdin=data, stdout=got)
            if process.wait(timeout=LIMIT) == 0:
                break
        time.sleep(0.1)
    assert content("got") == b"yes"
    tell(ended(process, 0, "graceful"))


def near_recv() -> None:
    forwards()
    report = ended(start("recv", "5001", path("got")), 0, "graceful")
    same(content("got"))
    tell(report)


subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
{
    "send": send,
    "recv": recv,
    "listen-sends": listen_sends,
    "connect-receives": connect_receives,
    "refused-by-kernel": refused_by_kernel,
    "refused-by-us": refused_by_us,
    "half-close": half_close,
    "zero-window": zero_window,
    "stopped": stopped,
    "kernel-killed": kernel_killed,
    "simultaneous-close": simultaneous_close,
    "interrupted": interrupted,
    "interface-down": interface_down,
    "far-send": lambda: far(receives=True),
    "far-recv": lambda: far(receives=False),
    "near-send": near_send,
    "near-recv": near_recv,
    "far-opens-too": far_opens_too,
    "near-opens-too": near_opens_too,
}[WHAT]()
