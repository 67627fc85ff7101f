"""Runs a study on a Dask cluster: `slowlight study run NAME --dask ADDRESS` calls this.

On a batch system or Kubernetes, dask-jobqueue or dask-kubernetes starts a cluster. The address is
its scheduler's; `local` starts processes on this machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from slowlight.study import Study


@contextmanager
def _client(address: str, jobs: int | None) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    if address != "local":
        with Client(address) as client:
            yield client
        return
    cluster = LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        yield client


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slowlight study run", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--dask", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--edition")
    parser.add_argument("--sheet", action="append", default=[])
    parser.add_argument("--filter", action="append", default=[])
    parser.add_argument("--runs", type=int)
    parser.add_argument("--jobs", type=int)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. 0: done; 1: the cluster cannot be reached."""
    args = _arguments(arguments)
    pairs = (text.split("=", 1) for text in args.filter)
    filters = {axis: labels.split(",") for axis, labels in pairs}
    study = Study(args.name, args.edition, tuple(args.sheet), filters, args.runs)
    try:
        with _client(args.dask, args.jobs) as client:
            tables = study.run_on(client, args.out)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    runs = sum(len(table) for table in tables.values())
    print(f"{runs} rows\n{args.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
