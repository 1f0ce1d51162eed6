"""What README, CONTRIBUTING and the documentation's pages show is true: their code runs, their commands exist."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced piece of code: its language, its text, and the line where the text begins."""

    language: str
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        indent = match["indent"]
        code = "\n".join(line.removeprefix(indent) for line in match["code"].splitlines())
        found.append(Block(match["language"], code, text.count("\n", 0, match.start("code")) + 1))
    return found


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_languages_are_those_that_are_tested() -> None:
    """A block in another language would be shown and never run; a picture of a layout or an output is ``text``."""
    for page in PAGES:
        for block in blocks(page):
            assert block.language in {"python", "console", "text", "bibtex"}, f"{name_of(page)}:{block.line}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    """The site has a few pages more; links there are followed where it is built."""
    links = re.findall(r"\]\(([^)#\s]+)", FENCE.sub("", page.read_text()))
    inside = [link for link in links if not link.startswith(("http", "mailto")) and link != "gallery.md"]
    assert [link for link in inside if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(b.language == "python" for b in blocks(page))], ids=name_of
)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run one after another in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            # Blank lines in front give tracebacks the line numbers of the page.
            source = "\n" * (block.line - 1) + block.code
            exec(compile(source, name_of(page), "exec"), namespace)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(b.language == "console" for b in blocks(page))], ids=name_of
)
def test_commands_exist(page: Path) -> None:
    """A console line is make with a goal there is, cmask with a subcommand there is, pip with extras there are, …"""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for block in blocks(page):
        if block.language != "console":
            continue
        for line in block.code.splitlines():
            words = line.split("#")[0].split()
            match words:
                case []:
                    continue
                case ["make", *goals]:
                    names = [goal for goal in goals if "=" not in goal]
                    subprocess.run(["make", "-n", *names], cwd=ROOT, check=True, capture_output=True)
                case ["cmask", subcommand, *_]:
                    helped = [sys.executable, "-m", "cmask_lab.cli", subcommand, "--help"]
                    subprocess.run(helped, check=True, capture_output=True)
                case ["pip", "install", *wanted]:
                    extras = re.findall(r"\[(.*?)\]", " ".join(wanted))
                    assert extras, line
                    assert set(extras[0].split(",")) <= set(project["optional-dependencies"]), line
                case ["conda", "env", "create", "-f", file]:
                    assert (ROOT / file).is_file(), line
                case [program, "lab", *_] if Path(program).name == "jupyter":
                    continue
                case _:
                    pytest.fail(f"{name_of(page)}: no test knows how to check the command {line!r}")


def test_what_is_shown_is_made_from_the_recorded_reports() -> None:
    """Every measured number and chart comes from a report that is in the package; docs/tables.py writes them."""
    spec = importlib.util.spec_from_file_location("docs_tables", ROOT / "docs" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert tables.SLOT.search(tables.PAGE.read_text())
    for path, content in tables.made().items():
        assert path.read_text(encoding="utf-8") == content, f"{name_of(path)}: run python docs/tables.py"
