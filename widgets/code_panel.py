"""The code panel's side of Python: a design's mask in the words of a neighbour."""

from __future__ import annotations

from typing import Any

from cmask_lab.widgets.design import Design

from cmask_lab.interop.export import TARGETS, export


def targets() -> dict[str, str]:
    """Every export target with one line about it.

    >>> targets()["json"]
    'the spec as JSON'
    """
    return {name: target.title for name, target in TARGETS.items()}


def source(design: Design, target: str) -> dict[str, Any]:
    """Source text for a target, or why there is none: ``{"text", "language", "note"}`` or ``{"error"}``.

    >>> import cmask_lab as cm
    >>> source(Design.of(cm.causal(), 16), "python")["language"]
    'python'
    """
    try:
        text = export(design.mask, target, q_len=design.q_len, kv_len=design.kv_len, q_start=design.q_start)
    except (ValueError, TypeError) as error:
        return {"error": str(error)}
    return {"text": text, "language": "json" if target == "json" else "python", "note": TARGETS[target].title}
