"""A study on a cluster of processes, against the same in threads."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import polars as pl

from slowlight import cluster
from slowlight.study import Study

STUDY = Study(
    "grc-2012",
    sheets=("grid",),
    filters={"size": ["10 kB"], "rate": ["1 Mbit/s"], "delay": ["25 ms", "250 ms"]},
    runs=2,
)


class Cluster(unittest.TestCase):
    def test_a_cluster_finds_what_threads_find_and_goes_on_where_it_was_broken_off(self) -> None:
        with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
            STUDY.run(folder=here, progress=False)
            # Half of it is there already, and the last of that is torn.
            lines = Path(here, "runs.jsonl").read_bytes().splitlines(keepends=True)
            half = b"".join(lines[: len(lines) // 2]) + lines[-1][:30]
            Path(there, "runs.jsonl").write_bytes(half)
            arguments = ["grc-2012", "--dask", "local", "--jobs", "2", "--out", there]
            arguments += ["--sheet", "grid", "--runs", "2", "--filter", "size=10 kB"]
            arguments += ["--filter", "rate=1 Mbit/s", "--filter", "delay=25 ms,250 ms"]
            self.assertEqual(cluster.main(arguments), 0)
            tables = [pl.read_parquet(Path(f, "grid.parquet")) for f in (here, there)]
            self.assertEqual(len(tables[0]), 4 * 2 * 6 * 2)
            self.assertTrue(tables[0].equals(tables[1]))
            files = [Path(f, "grid.parquet").read_bytes() for f in (here, there)]
            self.assertEqual(files[0], files[1])


if __name__ == "__main__":
    unittest.main()
