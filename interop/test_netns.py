"""Tests of the hosts in namespaces: multicast, loss rates, and cleanup."""

from __future__ import annotations

import json
import subprocess
import sys
import unittest
from pathlib import Path

import netns

# Runs in namespaces: host 0 sends numbered datagrams to a group, or to the first of two receivers.
# Each receiver prints how many it received.
STORY = """
import json, subprocess, sys
import netns

RECEIVE = '''
import socket, struct, sys
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
receiver.bind(("", 6003))
member = struct.pack("4s4s", socket.inet_aton("224.1.2.3"), socket.inet_aton(sys.argv[1]))
receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
sys.stdin.read()
receiver.setblocking(False)
count = 0
try:
    while True:
        receiver.recv(2000)
        count += 1
except BlockingIOError:
    print(count)
'''
SEND = '''
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(int(sys.argv[2])):
    sender.sendto(number.to_bytes(4, "big"), (sys.argv[1], 6003))
'''
share, destination, count = float(sys.argv[1]), sys.argv[2], sys.argv[3]
with netns.hosts(3, share) as hosts:
    receivers = []
    for host in hosts[1:]:
        command = host.command([sys.executable, "-c", RECEIVE, host.address])
        pipe = subprocess.PIPE
        receivers.append(subprocess.Popen(command, stdin=pipe, stdout=pipe))
    for receiver in receivers:
        netns.wait_for_socket(receiver, 6003, "224.1.2.3")
    send = hosts[0].command([sys.executable, "-c", SEND, destination, count])
    subprocess.run(send, check=True)
    print(json.dumps([int(receiver.communicate()[0]) for receiver in receivers]))
# A second time: everything of the first has been removed.
with netns.hosts(3, share):
    pass
"""

WHY_NOT = netns.why_not()


def counted(share: float, destination: str, count: int) -> list[int]:
    """Returns the number of datagrams that each of the two receivers received."""
    folder = str(Path(__file__).resolve().parent)
    ended = subprocess.run(
        netns.inside([sys.executable, "-c", STORY, str(share), destination, str(count)]),
        capture_output=True,
        text=True,
        env=netns.environment({"PYTHONPATH": folder}),
        timeout=60,
    )
    if ended.returncode != 0:
        raise AssertionError(ended.stderr)
    found: list[int] = json.loads(ended.stdout)
    return found


@unittest.skipIf(WHY_NOT is not None, WHY_NOT or "")
class Hosts(unittest.TestCase):
    """The network."""

    def test_a_group_reaches_everyone_and_an_address_one(self) -> None:
        self.assertEqual(counted(0.0, "224.1.2.3", 500), [500, 500])
        self.assertEqual(counted(0.0, "10.0.0.2", 500), [500, 0])

    def test_each_host_loses_its_share(self) -> None:
        # Five standard deviations of 2,000 draws at one fifth are 90.
        for got in counted(0.2, "224.1.2.3", 2000):
            self.assertAlmostEqual(got, 1600, delta=90)

    def test_nothing_stays(self) -> None:
        def seen() -> tuple[list[str], list[str]]:
            names = [path.name for path in netns.NAMES.glob("*")]
            lines = Path("/proc/net/dev").read_text().splitlines()[2:]
            return sorted(names), sorted(line.split(":")[0] for line in lines)

        before = seen()
        killed = subprocess.Popen(
            netns.inside(
                [
                    sys.executable,
                    "-c",
                    "import netns, time\nwith netns.hosts(2, 0.5):\n"
                    "    print('made', flush=True)\n    time.sleep(60)",
                ]
            ),
            stdout=subprocess.PIPE,
            env=netns.environment({"PYTHONPATH": str(Path(__file__).resolve().parent)}),
        )
        assert killed.stdout is not None
        self.assertEqual(killed.stdout.readline(), b"made\n")
        killed.kill()
        killed.wait()
        # The program inside holds the pipe: it ends when that program has ended, too.
        self.assertEqual(killed.stdout.read(), b"")
        killed.stdout.close()
        self.assertEqual(seen(), before)


class Outside(unittest.TestCase):
    """Without namespaces of its own."""

    def test_no_host_is_made(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "inside"), netns.hosts(1, 0.0):
            pass

    def test_a_share_is_a_share(self) -> None:
        with self.assertRaises(ValueError):
            netns.lose(netns.Host("h0", "10.0.0.1"), 1.5)

    def test_a_group_is_shown_as_the_kernel_shows_it(self) -> None:
        self.assertEqual(netns.group_in_hex("224.1.2.3"), "030201E0")


if __name__ == "__main__":
    unittest.main()
