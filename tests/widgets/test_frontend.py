"""The front end's own tests under Node, and that the committed build is what the source makes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")
FRONTEND = Path(__file__).parents[2] / "widgets" / "frontend"
LIMIT_BYTES = {"studio.js": 160_000, "studio.css": 40_000, "throughput.js": 40_000, "throughput.css": 40_000}


def test_geometry_and_golden_vectors_under_node() -> None:
    tests = sorted(map(str, Path(__file__).parent.glob("*.test.mjs")))
    assert tests
    done = subprocess.run([NODE, "--test", *tests], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "# fail 0" in done.stdout or "ℹ fail 0" in done.stdout


@pytest.mark.parametrize("name", LIMIT_BYTES)
def test_the_committed_build_is_what_the_source_makes(name: str, tmp_path: Path) -> None:
    if not (FRONTEND / "node_modules" / "esbuild").exists():
        pytest.skip("needs esbuild: run `npm ci` in widgets/frontend")
    subprocess.run([NODE, "build.mjs", "--outdir", str(tmp_path)], cwd=FRONTEND, check=True, timeout=120)
    built, kept = (tmp_path / name).read_bytes(), (FRONTEND.parent / "static" / name).read_bytes()
    assert built == kept, "run `npm run build` in widgets/frontend and commit widgets/static"
    assert len(kept) < LIMIT_BYTES[name], "the front end is meant to be small"


def test_no_file_of_the_front_end_is_long() -> None:
    for path in (FRONTEND / "src").glob("*.js"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 600, path.name
