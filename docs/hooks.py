"""What MkDocs does beyond its plugins: figures and tables from real data, generated pages, nothing from other hosts."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PLOTLY = "assets/plotly.min.js"


def beside(name: str) -> ModuleType:
    """The module ``docs/NAME.py``; the folder is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@event_priority(100)  # before the plugin that looks for the package there
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lay the package out as it is installed, so that the API pages find all of it."""
    package = ROOT / "build" / "api" / "cmask_lab"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    for source in (ROOT / "cmask_lab").iterdir():
        (package / source.name).symlink_to(source)
    for name in ("kernels", "widgets"):
        (package / name).symlink_to(ROOT / name)
    return config


@event_priority(100)  # before the plugin that turns notebooks into pages
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the executed notebooks, the gallery, the kernel notes, and the library that draws interactive figures."""
    executed, pages = beside("executed"), ROOT / "build" / "pages"
    (pages / "notebooks").mkdir(parents=True, exist_ok=True)
    for notebook in executed.notebooks():
        name = f"notebooks/{notebook.name}"
        shutil.copy(executed.executed(notebook), pages / name)
        files.append(File(name, str(pages), config.site_dir, config.use_directory_urls))
    files.append(File.generated(config, PLOTLY, abs_src_path=str(_plotly_library())))
    for source, text in beside("pages").generated().items():
        files.append(File.generated(config, source, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the figure in the place of each ``<!-- figure: NAME -->``; what pages link to elsewhere in the repository has
    a page of its own here."""
    markdown = markdown.replace("](../notebooks/", "](notebooks/")
    markdown = re.sub(r"\]\(\.\./kernels/(\w+)/NOTES\.md\)", r"](kernels-\1.md)", markdown)
    figures = beside("figures").FIGURES if "<!-- figure:" in markdown else {}
    return re.sub(r"<!-- figure: ([\w-]+) -->", lambda found: figures[found[1]]()._repr_html_(), markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Notebooks link to pages, load nothing from elsewhere, and draw with our own copy of plotly."""
    if page.file.src_uri.endswith(".ipynb"):
        output = re.sub(r'href="(\w+)\.ipynb"', r'href="\1.html"', output)
    library = f'<script src="{"../" * page.url.count("/")}{PLOTLY}">'
    output = re.sub(r'<script[^>]* src="https://cdn\.plot\.ly/[^>]*>', library, output)
    output = re.sub(r'<script type="module">import "https://cdn\.plot\.ly/[^"]*"</script>', "", output)
    output = re.sub(r'<script[^>]* src="https://cdnjs\.[^>]*></script>', "", output)
    return re.sub(r"<script[^>]*>(?:(?!</script>).)*https://cdnjs\..*?</script>", "", output, flags=re.DOTALL)


def _plotly_library() -> Path:
    import plotly

    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
