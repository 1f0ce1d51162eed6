"""How a Studio shows itself where a front end is no JupyterLab."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from anywidget import AnyWidget
from cmask_lab.widgets.studio import Studio

import cmask_lab as cm


def test_marimo_is_given_every_part_as_a_widget_that_it_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "marimo", SimpleNamespace(vstack=tuple))
    studio = Studio(cm.causal(), 256, autosave=None)
    shown = studio._display_()
    assert shown[0] is studio.editor
    assert len(shown) > 1
    assert all(isinstance(part, AnyWidget) for part in shown)
    studio.close()
