"""Hosts in network namespaces on one bridge, each losing a share of the datagrams that reach it.

`inside()` gives the command line that runs a program in namespaces of its own (network, mounts,
processes; as an ordinary user a user namespace, too). Everything that is made in there, processes
included, is gone when that program ends, whatever ends it: nothing has to be cleaned up. In there
`hosts()` makes the hosts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Folder of `ip netns` names; hidden by an empty file system of our own.
NAMES = Path("/run/netns")
INTERFACE = "eth0"
# Arguments of `unshare`: `--kill-child` ends all processes inside if it dies itself.
NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
# Environment variable set in a program with namespaces of its own.
MARK = "SLOWLIGHT_NAMESPACES"
TOOLS = ("unshare", "nsenter", "ip", "nft")


@dataclass(frozen=True)
class Host:
    """One network namespace with one interface."""

    name: str
    address: str
    interface: str = INTERFACE

    def command(self, command: list[str]) -> list[str]:
        """The command line that runs a command on this host."""
        return ["nsenter", f"--net={NAMES / self.name}", "--", *command]


def why_not() -> str | None:
    """Reason why namespaces are unavailable; None if they work."""
    for tool in TOOLS:
        if find(tool) is None:
            return f"the program {tool} is missing"
    # Creating a host needs every privilege that may be missing.
    trial = "from netns import hosts\nwith hosts(2, 0.01): pass"
    python = ["python3", "-c", trial]
    here = {"PYTHONPATH": str(Path(__file__).resolve().parent)}
    ended = subprocess.run(inside(python), capture_output=True, text=True, env=environment(here))
    if ended.returncode == 0:
        return None
    lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
    return f"network namespaces need root or unprivileged user namespaces: {lines[-1]}"


def find(tool: str) -> str | None:
    """Returns the path of a program; administrators' folders may be missing in a user's path."""
    return shutil.which(tool, path=environment()["PATH"])


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """Returns the environment with those folders in the path."""
    path = os.environ.get("PATH", "/usr/bin:/bin")
    return {**os.environ, "PATH": f"{path}:/usr/sbin:/sbin", **(more or {})}


def inside(command: list[str]) -> list[str]:
    """Returns the command line that runs a command in namespaces of its own."""
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    return ["unshare", *user, *NAMESPACES, "env", f"{MARK}=1", *command]


@contextmanager
def hosts(count: int, lost_share: float) -> Iterator[list[Host]]:
    """Hosts that reach each other, by multicast too; only in a program that `inside` started.

    Each loses `lost_share` of the UDP datagrams that arrive, so what is sent to several is lost
    independently. What one sends to itself is not touched.
    """
    hide_names()
    found = [Host(f"h{number}", f"10.0.0.{number + 1}") for number in range(count)]
    run("ip", "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
    try:
        run("ip", "link", "set", "bridge", "up")
        for host in found:
            connect(host)
            if lost_share > 0:
                lose(host, lost_share)
        yield found
    finally:
        for host in found:
            disconnect(host)
        run("ip", "link", "delete", "bridge")


def hide_names() -> None:
    """Puts an empty file system over the names, once, so that none is left behind."""
    mounts = Path("/proc/self/mountinfo").read_text()
    if " - tmpfs slowlight " in mounts:
        return
    if MARK not in os.environ:
        raise RuntimeError("hosts are made only in a program that `inside` started")
    # An ordinary user cannot create a folder in `/run`, but can cover it.
    run("mount", "-t", "tmpfs", "slowlight", str(NAMES if NAMES.is_dir() else NAMES.parent))
    NAMES.mkdir(exist_ok=True)


def connect(host: Host) -> None:
    """Creates a host and connects it to the bridge."""
    port = f"port-{host.name}"
    run("ip", "netns", "add", host.name)
    peer = ("peer", "name", host.interface, "netns", host.name)
    run("ip", "link", "add", port, "type", "veth", *peer)
    run("ip", "link", "set", port, "master", "bridge", "up")
    on_host = ("ip", "-n", host.name)
    run(*on_host, "link", "set", "lo", "up")
    run(*on_host, "address", "add", f"{host.address}/24", "dev", host.interface)
    run(*on_host, "link", "set", host.interface, "up")
    run(*on_host, "route", "add", "224.0.0.0/4", "dev", host.interface)


def disconnect(host: Host) -> None:
    """Removes a host, even if it is incomplete."""
    # `/sys` still shows the interfaces outside, `/proc/net` ours.
    if f"port-{host.name}:" in Path("/proc/net/dev").read_text().split():
        # The kernel would remove the pair some time after the host.
        run("ip", "link", "delete", f"port-{host.name}")
    if (NAMES / host.name).exists():
        run("ip", "netns", "delete", host.name)


def lose(host: Host, share: float) -> None:
    """Makes a host drop datagrams before its sockets receive them."""
    if not 0 <= share <= 1:
        raise ValueError(f"{share} is no share")
    rule = (
        "table inet loss { chain input { type filter hook input priority 0; "
        f'iifname "{host.interface}" meta l4proto udp '
        f"numgen random mod 10000 < {round(share * 10000)} counter drop; }}; }}"
    )
    run(*host.command(["nft", rule]))


def run(*command: str) -> None:
    """Runs a command, which must succeed."""
    ended = subprocess.run(command, capture_output=True, text=True, env=environment())
    if ended.returncode != 0:
        why = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise RuntimeError(f"{' '.join(command)}: {why[0]}")


def wait_for_socket(process: subprocess.Popen[bytes], port: int, group: str | None) -> None:
    """Waits until a process has bound a UDP port and joined a group, at most 10 s."""
    wanted = f":{port:04X}"
    member = None if group is None else group_in_hex(group)
    end = time.monotonic() + 10
    while time.monotonic() < end and process.poll() is None:
        network = Path(f"/proc/{process.pid}/net")
        bound = [line.split()[1] for line in (network / "udp").read_text().splitlines()[1:]]
        joined = member is None or member in (network / "igmp").read_text().split()
        if joined and any(local.endswith(wanted) for local in bound):
            return
        time.sleep(0.01)


def group_in_hex(group: str) -> str:
    """A group's address as the kernel shows it: hexadecimal, the last byte first."""
    return "".join(f"{int(byte):02X}" for byte in reversed(group.split(".")))
