"""Run notebooks from top to bottom, each in a fresh kernel and an empty folder, and keep what they give.

``python notebooks/execute.py`` writes the outputs into all notebooks beside this file; ``--out FOLDER`` leaves these as
they are, and names behind it choose some. What goes to standard error (progress, warnings) is not kept.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
SECONDS = 300  # for one cell, on a busy machine


def kept(outputs: list[Any]) -> list[Any]:
    """What a cell printed as one output, however it arrived, and what it showed."""
    found: list[Any] = []
    for each in outputs:
        if each.output_type == "stream" and found and found[-1].get("name") == each.name:
            found[-1]["text"] += each.text
        elif each.get("name") != "stderr":
            found.append(each)
    return found


def executed(path: Path) -> Any:
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            record_timing=False,
            shutdown_kernel="immediate",  # it has given all its outputs
            resources={"metadata": {"path": folder}},
        ).execute()
    for number, cell in enumerate(notebook.cells, 1):
        cell["id"] = f"cell-{number}"
        if cell.cell_type == "code":
            cell["outputs"] = kept(cell.outputs)
    notebook["metadata"] = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(HERE.glob("*.ipynb")))
    parser.add_argument("--out", type=Path, default=HERE)
    chosen = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    for path in chosen.notebooks:
        print(path.name, file=sys.stderr)
        nbformat.write(executed(path), chosen.out / path.name)


if __name__ == "__main__":
    main()
