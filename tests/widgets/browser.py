"""A real JupyterLab and a real Chromium for the browser tests, and a few words to drive a Studio with."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOKEN = "browser-tests"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
STATE = "document.querySelector('.cms-studio').studio"
NOISE = ("favicon", "ResizeObserver loop")
"""Console errors that are not of the Studio's making."""


def notebook(*cells: str) -> str:
    """The text of a notebook with these code cells."""
    made = [
        {
            "cell_type": "code",
            "id": f"cell-{n}",
            "metadata": {},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for n, source in enumerate(cells)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": made})


@contextmanager
def jupyter_lab(folder: Path) -> Iterator[str]:
    """A server whose root is ``folder``; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = folder / ".settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += [f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={TOKEN}", "--ServerApp.port_retries=0"]
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(folder / ".settings"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
        address = f"http://127.0.0.1:{port}"
        try:
            for _ in range(240):
                try:
                    urllib.request.urlopen(f"{address}/api?token={TOKEN}", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.25)
            else:
                raise TimeoutError((folder / "server.log").read_text()[-2000:])
            yield address
        finally:
            server.terminate()
            server.wait(timeout=30)


class Desk:
    """One browser page with one notebook, as a person would use it."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.address = address
        self.errors: list[str] = []
        page.on("console", lambda message: message.type == "error" and self._note(message.text))
        page.on("pageerror", lambda error: self._note(str(error)))

    def _note(self, text: str) -> None:
        if not any(noise in text for noise in NOISE):
            self.errors.append(text)

    def open(self, name: str, fragment: str = "") -> None:
        self.page.goto(f"{self.address}/lab/tree/{name}?token={TOKEN}&reset{fragment}")
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
        self.page.keyboard.press("Control+b")  # the file list away
        self.idle()

    def idle(self) -> None:
        self.page.wait_for_selector(".jp-NotebookPanel-toolbar [data-status='idle']", timeout=60_000)

    def run(self, cell: int) -> None:
        """Runs a cell; again if the notebook, still busy with its start, let the request fall."""
        box = self.page.locator(".jp-Notebook .jp-CodeCell").nth(cell)
        before = box.locator(".jp-InputPrompt").inner_text()
        for _ in range(10):
            if self.page.locator(".jp-Dialog").count():  # a slow start asks for the kernel
                print("dialog:", self.page.locator(".jp-Dialog").inner_text())
                self.page.locator(".jp-Dialog .jp-mod-accept").click()
                self.page.locator(".jp-Dialog").wait_for(state="detached")
            box.locator(".cm-content").click()
            self.page.keyboard.press("Control+Enter")
            for _ in range(30):
                self.page.wait_for_timeout(100)
                if box.locator(".jp-InputPrompt").inner_text() not in (before, "[ ]:"):
                    return
        raise TimeoutError(f"cell {cell} did not run")

    def result(self, cell: int) -> str:
        """Runs a cell and gives the text of its result."""
        self.run(cell)
        box = self.page.locator(".jp-Notebook .jp-CodeCell").nth(cell)
        self.page.wait_for_timeout(150)
        self.idle()
        box.locator(".jp-OutputArea-output").first.wait_for(timeout=30_000)
        return box.locator(".jp-OutputArea-output").first.inner_text().strip()

    def state(self, expression: str, argument: Any = None) -> Any:
        """A JavaScript expression over ``store``, ``engine``, ``stage`` and ``link`` of the live Studio."""
        return self.page.evaluate(
            f"(argument) => {{ const {{store, engine, stage, link}} = {STATE}; return {expression}; }}", argument
        )

    def settle(self) -> None:
        """Waits until the compiler has answered for the design on screen and the two agree or not."""
        script = (
            f"() => {{ const s = {STATE}; return s.link.report?.rev === s.store.design.rev && s.engine.tally.exact; }}"
        )
        self.page.wait_for_function(script, timeout=30_000)

    def point(self, query: float, key: float) -> tuple[float, float]:
        """Where a pair is on the page, which is scrolled to show it."""
        self.state("stage.element.scrollIntoView({block: 'center'})")
        x, y = self.state(
            "(() => { const box = stage.top.getBoundingClientRect();"
            " return [box.left + 46 + stage.view.x(argument[1]), box.top + 26 + stage.view.y(argument[0])]; })()",
            [query, key],
        )
        return x, y

    def drag(self, start: tuple[float, float], stop: tuple[float, float], steps: int = 8) -> None:
        """From one pair to another, pairs as (query, key)."""
        self.page.mouse.move(*self.point(*start))
        self.page.mouse.down()
        self.page.mouse.move(*self.point(*stop), steps=steps)
        self.page.mouse.up()
