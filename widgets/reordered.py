"""The tiles of a design in the token order that the compiler chooses, for the canvas to show beside the natural one."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from cmask_lab.widgets import heatmap
from cmask_lab.widgets.design import Design

from cmask_lab.compiler.compile import compile
from cmask_lab.compiler.cost import predicted_ms

LEAST, MOST = 1, 254
"""Bytes of the sparsest and the densest partial cell; 0 is empty, 255 full."""


def describe(design: Design) -> dict[str, Any]:
    """The reordered plane, for the browser.

    Returns:
        ``order``, the name of the order, "natural" where none is better; ``rows``, ``columns`` and ``group``, tiles a
        side of a cell; ``cells``, a byte a cell in base64; and for both orders ``full`` and ``partial`` tiles and the
        cost model's forward time ``ms``.

    Raises:
        ValueError: the plane is not square: a token order permutes queries and keys alike.

    >>> import cmask_lab as cm
    >>> design = Design.of(cm.grid(64, 64).disk(8), 4096)
    >>> told = describe(design)
    >>> told["order"] != "natural", told["reordered"]["partial"] < told["natural"]["partial"]
    (True, True)
    """
    made = {}
    for name, order in (("natural", "natural"), ("reordered", "auto")):
        compiled = compile(
            design.mask, design.q_len, design.kv_len, q_start=design.q_start, tile=design.tile, order=order
        )
        stats = compiled.stats
        ms = predicted_ms(compiled.tiles, heads=design.heads, head_dim=design.head_dim)
        made[name] = {"full": stats.full_tiles, "partial": stats.partial_tiles, "ms": ms}
    classes, density, group = heatmap.cells(compiled)
    partial = LEAST + np.clip(density, 0, 1) * (MOST - LEAST)
    shown = np.select([classes == heatmap.FULL, classes == heatmap.EMPTY], [255, 0], partial).astype(np.uint8)
    rows, columns = shown.shape
    picture = {"rows": rows, "columns": columns, "group": group, "cells": base64.b64encode(shown.tobytes()).decode()}
    return {"order": compiled.order, **picture, **made}
