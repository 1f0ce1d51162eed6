"""The throughput panel in a real JupyterLab: a benchmark on the CPU from the first click to the copied report.

Set ``CMASK_SCREENSHOTS`` to a folder to keep pictures there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.widgets.browser import CHROMIUM, FLAGS, Desk, jupyter_lab, notebook

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
pytest.importorskip("jupyterlab", reason="needs JupyterLab")


pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

START = """import cmask_lab as cm
from cmask_lab.widgets.studio import Studio
from cmask_lab.widgets.throughput import panel
studio = Studio(cm.documents([1024, 3072]) & cm.causal(), 4096, panels=(panel,), autosave=None)
studio"""
MODEL = "document.querySelector('.cms-throughput').panel.model"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "throughput.ipynb").write_text(notebook(START, "studio.mask = cm.window(256)"))
    with jupyter_lab(tmp_path) as address, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        desk = Desk(page, address)
        desk.open("throughput.ipynb")
        desk.run(0)
        page.locator(".cms-throughput").wait_for(timeout=60_000)
        page.locator(".cms-throughput").scroll_into_view_if_needed()
        yield desk
        browser.close()
    assert desk.errors == []


def state(desk: Desk, name: str) -> Any:
    return desk.page.evaluate(f"(name) => {MODEL}.get(name)", name)


def until(desk: Desk, condition: str, seconds: float = 90) -> None:
    desk.page.wait_for_function(
        f"() => {{ const get = (name) => {MODEL}.get(name); return {condition}; }}", timeout=seconds * 1000
    )


def keep(desk: Desk, name: str) -> None:
    if target := os.environ.get("CMASK_SCREENSHOTS"):
        desk.page.wait_for_timeout(300)
        desk.page.locator(".cms-throughput").screenshot(path=f"{target}/{name}.png")


def test_measure_refuse_stop_and_copy(desk: Desk) -> None:
    page, box = desk.page, desk.page.locator(".cms-throughput")
    until(desk, "get('machine').devices")
    box.get_by_label("flex-cpu").uncheck()
    until(desk, "get('choices').contenders.length === 2")
    for field, value in (("head_dim", "32"), ("heads", "1"), ("tokens", "512")):
        box.locator(f"[data-field={field}]").fill(value)
        box.locator(f"[data-field={field}]").press("Enter")
        until(desk, f"get('choices').{field} === {value}")
    assert state(desk, "choices")["kv_heads"] == 1
    assert "first 512 of 4,096 tokens" in box.inner_text()
    box.locator("[data-field=tokens]").fill("many")
    box.locator("[data-field=tokens]").press("Enter")
    assert '"many" is no number above 0' in box.inner_text()
    box.locator("[data-field=tokens]").fill("512")
    box.locator("[data-field=tokens]").press("Enter")
    assert "is no number" not in box.inner_text()

    box.get_by_role("button", name="Start").click()
    until(desk, "get('status').state === 'running'")
    box.get_by_role("button", name="Stop").wait_for()
    until(desk, "get('results').directions?.[0].loop?.rounds > 0")
    box.locator("canvas.cms-t-samples").wait_for()
    until(desk, "get('status').state === 'done'")
    box.get_by_role("button", name="Start").wait_for()
    assert box.get_by_text("✓ matches").count() == 2
    told = box.inner_text()
    assert "first result" in told
    assert "sdpa-dense" in box.locator(".cms-t-headline").inner_text() or "No headline" in told
    keep(desk, "throughput-light")
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    page.wait_for_selector(".cms-throughput[data-theme=dark]")
    keep(desk, "throughput-dark")
    page.evaluate("document.body.dataset.jpThemeLight = 'true'")

    copied = page.evaluate("document.querySelector('.cms-throughput').panel.ask('copy', 'json')")
    report = json.loads(copied["text"])["report"]
    assert {e["contender"] for e in report["cases"][0]["entries"]} == {"cmask", "sdpa-dense"}

    page.evaluate(f"{MODEL}.set('asks', {{settings: {{n: 1, value: {{heads: 'x'}}}}}}); {MODEL}.save_changes()")
    box.get_by_text("settings: heads is 'x'").wait_for()
    desk.run(1)
    until(desk, "get('plane').stale")
    box.get_by_role("button", name="Start").click()
    until(desk, "get('status').state === 'running'")
    box.get_by_role("button", name="Stop").click()
    until(desk, "get('status').state === 'stopped'")
    assert "Stopped" in box.inner_text()
