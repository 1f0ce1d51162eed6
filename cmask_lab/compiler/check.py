"""The linter: what is wrong with a mask, or likely to be, before a model is trained with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from cmask_lab.compiler.compile import distinct_masks
from cmask_lab.compiler.findings import Finding, Findings
from cmask_lab.compiler.rules import documents as documents_rules
from cmask_lab.compiler.rules import grids, lengths, rows, windows, work
from cmask_lab.compiler.rules.problem import Options, Problem
from cmask_lab.compiler.tiles import tile_table
from cmask_lab.masks.arguments import integer
from cmask_lab.masks.mask import Mask, checked_mask
from cmask_lab.masks.window_counts import NATTEN, WINDOW_COUNTS

RULES = (
    lengths.too_short,
    rows.empty,
    rows.first_tiles,
    rows.future,
    documents_rules.leaks,
    windows.counted,
    grids.swapped,
    work.balance,
    work.order,
)


def check(
    mask: Mask,
    q_len: int,
    kv_len: int | None = None,
    *,
    q_start: int = 0,
    causal: bool = False,
    documents: ArrayLike | None = None,
    library: str | None = None,
    window: int | None = None,
    grid: Sequence[int] | None = None,
    heads: int = 16,
    tile: tuple[int, int] = (128, 128),
) -> Findings:
    """Look for what bites people: empty rows, leaks, windows off by one, wrong lengths, uneven work.

    Args:
        q_len, kv_len, q_start: as for ``cm.compile``.
        causal: the model must not see the future.
        documents: lengths of packed documents that must not see one another.
        library, window: the window's size as another library counts it; ``library`` is one of "huggingface",
            "flashmask", "xformers", "flexattention", "flashattention", "jax", "hstu", "natten".
        grid: the shape of the image or video, ``(h, w)`` or ``(t, h, w)``.
        heads: batch times heads, for the balance of work.
        tile: ``(q_tile, kv_tile)`` to count in.

    Returns:
        A list of findings, the most severe first.

    Raises:
        TypeError, ValueError: arguments that make no sense. A mask that doesn't fit the lengths is a finding.

    >>> import cmask_lab as cm
    >>> check(cm.documents([2, 2, 3]) & cm.causal(), 8)
    warning documents: the documents have 7 tokens in all, the sequence has 8 (row 7). Remedy: add a document of 1, ...
    warning empty-rows: 1 query sees nothing: its output is 0, its log-sum-exp -inf (row 7). Remedy: cut it off, ...
    >>> check(cm.window(1024), 4096, library="huggingface", window=1024).by("window")
    error window: cm.window(1024, 0) shows 1025 keys; huggingface with 1024 shows 1024 (...). Remedy: use
    cm.window(1023, 0).
    """
    checked_mask(mask, "check: mask")
    known = (*WINDOW_COUNTS, NATTEN)
    if library is not None and library not in known:
        raise ValueError(f"check: library is {library!r}; it must be one of {', '.join(map(repr, known))}")
    if window is not None and library is None:
        raise ValueError("check: a window is given without the library that counts it; pass library too")
    q_len, q_start = integer(q_len, "check: q_len"), integer(q_start, "check: q_start")
    sides = None if grid is None else tuple(integer(side, "check: grid size", least=1) for side in grid)
    options = Options(causal, documents, library, window, sides, integer(heads, "check: heads", least=1))
    masks, index = distinct_masks(mask)
    found: list[Finding] = []
    for number, each in enumerate(masks):
        where = _where(index, number) if len(masks) > 1 else ""
        misfit = lengths.misfit(each, q_len, kv_len, q_start)
        if misfit:
            found.append(_placed(misfit, where))
            continue
        table = each.intervals(q_len, kv_len, q_start)
        problem = Problem(each, table, tile_table(table, tile), q_start, options)
        found += [_placed(finding, where) for rule in RULES for finding in rule(problem)]
    return Findings.of(found)


def _where(index: np.ndarray, number: int) -> str:
    """The first batch entry and head that use a mask."""
    batch, head = (int(place[0]) for place in np.nonzero(index == number))
    names = [("batch entry", batch, index.shape[0]), ("head", head, index.shape[1])]
    return ", ".join(f"{name} {at}" for name, at, size in names if size > 1)


def _placed(finding: Finding, where: str) -> Finding:
    return Finding(finding.rule, finding.severity, finding.message, finding.remedy, finding.rows, where)
