"""The notebook runs, and what is stored in it are the pictures of a run without a mistake.

To run it again as it is stored, after a change of its text: python tests/test_notebook.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "examples" / "quickstart.ipynb"
CELLS, PICTURES = 10, 6


def executed(folder: Path) -> Any:
    """The notebook with new outputs, run in a folder by this very Python."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}})
    client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable  # whatever "python3" is registered elsewhere on the machine
    client.execute()
    return notebook


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def pictures(notebook: Any) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))


def test_stored_outputs_are_whole() -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(stored)
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, CELLS + 1)), "not run from top to bottom"
    wrong = [x for x in outputs(stored) if x.output_type == "error" or x.get("name") == "stderr"]
    assert not wrong
    assert pictures(stored) == PICTURES
    assert NOTEBOOK.stat().st_size < 300_000


def test_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HILP_UPDATES", "20")
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    found = executed(tmp_path)
    assert pictures(found) == PICTURES
    said = "".join(output["text"] for output in outputs(found) if output.get("name") == "stdout")  # in pieces, if slow
    assert said.endswith("the same policy: True\nthe same action: True\n")


if __name__ == "__main__":
    os.environ.pop("HILP_UPDATES", None)
    done = executed(Path.cwd())
    for cell in done.cells:
        cell.metadata.pop("execution", None)  # times of day
    nbformat.write(done, NOTEBOOK)
