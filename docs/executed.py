"""Run the notebooks of the course and keep the results, for the tests and for the documentation's pages.

``python docs/executed.py notebooks/00_tour.ipynb …`` prints the path of each executed copy. A copy is made once for
each state of the notebook and the package, so the tests and ``make docs`` don't run the same notebook twice.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
KEPT = ROOT / "build" / "notebooks"
SOURCES = ("cmask_lab", "kernels", "widgets")


def notebooks() -> list[Path]:
    """The notebooks in the order in which they are read."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def fingerprint(notebook: Path) -> str:
    """Changes when the notebook or any Python file of the package changes."""
    digest = hashlib.sha256(notebook.read_bytes())
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def executed(notebook: Path, cell_limit_s: int = 300) -> Path:
    """The executed copy of a notebook: the one that is kept, or a new one; an error in a cell is raised."""
    kept = KEPT / f"{notebook.stem}-{fingerprint(notebook)}.ipynb"
    if kept.exists():
        return kept
    # Figures refer to one copy of the plotting library instead of carrying megabytes of it each.
    # Progress bars are for those who wait.
    os.environ |= {"PLOTLY_RENDERER": "notebook_connected", "TQDM_DISABLE": "1"}
    node = nbformat.read(notebook, as_version=4)
    began = time.perf_counter()
    NotebookClient(
        node,
        timeout=cell_limit_s,
        resources={"metadata": {"path": str(NOTEBOOKS)}},
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    ).execute()
    node.metadata["cmask_lab"] = {"seconds": round(time.perf_counter() - began, 1)}
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob(f"{notebook.stem}-*.ipynb"):
        old.unlink()
    nbformat.write(node, kept)
    return kept


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(executed(Path(name).resolve()))
