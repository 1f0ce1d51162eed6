"""The documentation builds without a warning, and its links lead somewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("mkdocs", reason="pip install 'cmask-lab[docs]'")

ROOT = Path(__file__).resolve().parent.parent


class Page(HTMLParser):
    """The links, the loaded files and the anchors of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in ("id", "name"):
                self.anchors.add(value)
            elif name == "href" and tag == "a":
                self.links.append(value)
            elif (name, tag) in {("src", "script"), ("src", "img"), ("href", "link")}:
                self.loaded.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "WARNING" not in done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (
                parts.fragment and target in pages and not anchored(parts.fragment, pages[target])
            ):
                broken.append(f"{path.name} → {link}")
    assert not broken


def anchored(fragment: str, page: Page) -> bool:
    return unquote(fragment) in page.anchors


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for loaded in page.loaded:
            parts = urlsplit(loaded)
            if parts.scheme == "data":
                continue
            assert not parts.netloc, f"{path.name} loads {loaded}"
            assert (path.parent / unquote(parts.path)).exists(), f"{path.name} loads {loaded}, which is not there"


def test_the_course_is_published_with_its_outputs(site: Path) -> None:
    kernel = (site / "notebooks" / "04_inside_the_kernel.html").read_text()
    assert "class='frame'" in kernel or 'class="frame"' in kernel
    assert "plotly-graph-div" in kernel


def test_the_gallery_has_every_mask(site: Path) -> None:
    import cmask_lab as cm

    text = (site / "gallery.html").read_text()
    for name in cm.gallery.names():
        assert f"&#39;{name}&#39;" in text or f"'{name}'" in text, name


def test_examples_are_shown_as_code(site: Path) -> None:
    """A prompt that is not inside a block of code would become a quotation."""
    text = (site / "api.html").read_text()
    assert "<blockquote>" not in text
    assert text.count('class="gp"') > 50
