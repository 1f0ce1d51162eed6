"""The notebooks of the course run from top to bottom, quickly, and are stored as they should be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LIMIT_S = 90
"""What a notebook may take on two cores."""


def cells(path: Path, kind: str) -> list[dict]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def text(path: Path) -> str:
    return "\n".join("".join(cell["source"]) for cell in cells(path, "markdown"))


def test_the_course_is_complete() -> None:
    names = {path.stem.partition("_")[0] for path in NOTEBOOKS}
    assert names >= {"00", "01", "02", "03", "04", "05", "06", "exercises"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_without_outputs(path: Path) -> None:
    for cell in cells(path, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.stem[:2].isdigit()], ids=lambda path: path.stem)
def test_has_questions_that_fold_out_and_papers_to_read(path: Path) -> None:
    assert "<details><summary><b>Question.</b>" in text(path)
    assert "arXiv:" in text(path).rpartition("\n## ")[2]
    assert text(path).count("<details>") == text(path).count("</details>")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path) -> None:
    """Runs, in time, and prints no warning that a reader would wonder about. The executed copy is kept for the site."""
    command = [sys.executable, "-W", "ignore", str(ROOT / "docs" / "executed.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    notebook = json.loads(Path(done.stdout.split()[-1]).read_text())
    assert notebook["metadata"]["cmask_lab"]["seconds"] < LIMIT_S
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            printed = "".join(output.get("text", []))
            assert "Warning" not in printed, printed


def test_the_exercises_show_every_model_answer() -> None:
    """The folded section lists the answers that the tests of the exercises run."""
    from cmask_lab.course.puzzles import COURSE

    exercises = ROOT / "notebooks" / "exercises.ipynb"
    code = ["".join(cell["source"]) for cell in cells(exercises, "code")]
    for number, puzzle in enumerate(COURSE.puzzles, 1):
        assert f"{number}. {puzzle.title}: `{puzzle.model}`" in text(exercises)
        assert f"course.show({number})" in code
        assert f"answer = ...\ncourse.check({number}, answer)" in code
