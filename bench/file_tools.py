#!/usr/bin/env python3
"""Compares the models of scp, sftp and rsync with the programs themselves.

The programs run in the emulator, in real time (needs root or user namespaces, OpenSSH and rsync).
The models run in the simulator, over the same link and with the congestion control of the system's
TCP.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

TOOLS = ["scp", "sftp", "rsync", "rsync-daemon"]


def seconds_of_tools(args: argparse.Namespace, size: str) -> dict[tuple[str, str], float]:
    """Medians, by tool and delay."""
    with tempfile.TemporaryDirectory() as folder:
        command = [args.slowlight, "emu", "compare", "--tool", ",".join(TOOLS), *link_of(args)]
        command += ["--size", size, "--delays", ",".join(args.delays), "--runs", str(args.runs)]
        command += ["--jobs", "1", "--out", folder]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lines = (Path(folder) / "results.jsonl").read_text().splitlines()
    runs: dict[tuple[str, str], list[float]] = {}
    for line in lines:
        run = json.loads(line)
        if run["why"] is None:
            runs.setdefault((run["what"], plain(run["delay"])), []).append(run["seconds"])
    return {key: statistics.median(times) for key, times in runs.items()}


def seconds_of_model(args: argparse.Namespace, size: str, tool: str, delay: str) -> float | None:
    """Time at which the model's command ends, as measured by a shell."""
    command = [args.slowlight, "compare", "--protocol", f"{tool}/{args.congestion}", *link_of(args)]
    command += ["--size", size, "--delay", delay, "--runs", "1", "--json"]
    answer = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    confirmed = json.loads(answer)["protocols"][0]["confirmed_s"]
    return confirmed["mean"] if confirmed else None


def link_of(args: argparse.Namespace) -> list[str]:
    """The link, as options."""
    return ["--link", "terrestrial", "--rate", args.rate, "--queue", "10000 packets"]


def plain(delay: str) -> str:
    """A delay in command line form."""
    return delay.replace(" ", "")


def system_congestion() -> str:
    """Congestion control of this system's TCP, by slowlight's name."""
    name = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return {"reno": "newreno"}.get(name, name)


def main() -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slowlight", default="target/release/slowlight")
    parser.add_argument("--delays", nargs="+", default=["0s", "25ms", "300ms", "1s"])
    parser.add_argument("--sizes", nargs="+", default=["10kB", "4MB"])
    parser.add_argument("--rate", default="20 Mbit/s")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--congestion", default=system_congestion())
    args = parser.parse_args()
    print("| program | size | one way | program, s | model, s | model / program |")
    print("|---|---|---|---|---|---|")
    for size in args.sizes:
        measured = seconds_of_tools(args, size)
        for tool in TOOLS:
            for delay in args.delays:
                real, model = measured.get((tool, delay)), seconds_of_model(args, size, tool, delay)
                if real is None or model is None:
                    print(f"| {tool} | {size} | {delay} | {real} | {model} | |")
                    continue
                row = (
                    f"| {tool} | {size} | {delay} | {real:.2f} | {model:.2f} | {model / real:.2f} |"
                )
                print(row, flush=True)


if __name__ == "__main__":
    main()
