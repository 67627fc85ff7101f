"""The notebook, run in a kernel on the results of the guide that it belongs to."""

from __future__ import annotations

import re
import tempfile
import unittest
from pathlib import Path

import made
import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from slowlight import Study

GUIDES = made.ROOT / "docs" / "guides"
NOTEBOOK = GUIDES / "notebook.ipynb"


def guided(place: Path) -> None:
    """Does what the guide to studies says: writes its two files, and runs the study."""
    text = (GUIDES / "write-a-study.md").read_text("utf-8")
    world, study, *figures = re.findall(r"^```toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (place / "my-world.toml").write_text(world)
    (place / "my-study.toml").write_text("\n".join([study, *figures]))
    mine = Study(str(place / "my-study.toml"))
    mine.run(folder=place / mine.folder(), progress=False)


class Notebook(unittest.TestCase):
    def setUp(self) -> None:
        # The kernel works in a folder of its own.
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)

    def test_it_runs_from_start_to_end_and_shows_its_figures(self) -> None:
        guided(self.place)
        notebook = self.executed()
        images = [
            output["data"]["image/png"]
            for cell in notebook.cells
            if cell.cell_type == "code"
            for output in cell.outputs
            if "image/png" in output.get("data", {})
        ]
        drawn = sum("figures.draw(" in cell.source for cell in notebook.cells)
        # Those of the package, and one of the reader's own.
        self.assertEqual(len(images), drawn + 1)
        self.assertEqual(len(set(images)), len(images))
        self.assertTrue((self.place / "results/parity/sweep.parquet").is_file())

    def test_without_results_it_says_what_to_do(self) -> None:
        with self.assertRaisesRegex(Exception, "no results of my-study in .*: set PLACE"):
            self.executed()

    def test_it_is_kept_without_outputs(self) -> None:
        cells = nbformat.read(NOTEBOOK, as_version=4).cells
        code = [cell for cell in cells if cell.cell_type == "code"]
        self.assertGreater(len(code), 5)
        for cell in code:
            self.assertEqual((cell.outputs, cell.execution_count), ([], None), cell.source)

    def executed(self) -> nbformat.NotebookNode:
        """The notebook with its outputs. Raises the error of a cell that fails."""
        notebook: nbformat.NotebookNode = nbformat.read(NOTEBOOK, as_version=4)
        kernel = {"transport": "ipc", "ip": str(self.place / "kernel")}
        client = NotebookClient(
            notebook,
            timeout=120,
            resources={"metadata": {"path": str(self.place)}},
            config=Config({"KernelManager": kernel}),
        )
        client.execute()
        return notebook


if __name__ == "__main__":
    unittest.main()
