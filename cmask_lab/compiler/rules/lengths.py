"""Is the mask made for these lengths?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cmask_lab.compiler.findings import Finding
from cmask_lab.compiler.rules.problem import Problem
from cmask_lab.masks.gather import Take
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.placement import At, Repeat, RepeatEach
from cmask_lab.masks.tables import DocumentIds, Documents


def misfit(mask: Mask, q_len: int, kv_len: int | None, q_start: int) -> Finding | None:
    """The mask was made for a larger plane: nothing else can be said about it."""
    try:
        mask._window(q_len, kv_len, q_start)
    except ValueError as error:
        message, _, remedy = str(error).partition("; ")
        return Finding("lengths", "error", message, remedy)
    return None


def too_short(problem: Problem) -> Iterator[Finding]:
    """The mask was made for a smaller plane: what lies behind it sees nothing."""
    documents = [part for part in _outermost(problem.mask) if isinstance(part, Documents | DocumentIds)]
    queries, keys = problem.mask.extent
    stop = problem.q_start + problem.table.q_len
    square = problem.table.kv_len == stop
    if queries is None or queries >= stop or not square:
        return
    rows = np.arange(max(queries, problem.q_start), stop)
    short = stop - queries
    if documents and documents[0].extent[0] == queries:
        yield Finding(
            "documents",
            "warning",
            f"the documents have {queries:,} tokens in all, the sequence has {stop:,}",
            f"add a document of {short:,}, or cut the sequence to {queries:,}",
            rows,
        )
    elif problem.table.row_ptr[-1] == problem.table.row_ptr[rows[0] - problem.q_start]:
        yield Finding(
            "lengths",
            "warning",
            f"the mask was made for {queries:,} queries and {keys or 'any'} keys, the sequence has {stop:,}",
            f"rebuild the mask for {stop:,} tokens, or cut the sequence to {queries:,}",
            rows,
        )


def _outermost(mask: Mask) -> Iterator[Mask]:
    """Parts that lie on the same plane as the mask: not those moved into boxes."""
    yield mask
    if not isinstance(mask, At | Repeat | RepeatEach | Take):
        for child in mask.children:
            yield from _outermost(child)
