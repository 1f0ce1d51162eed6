"""Target ``flashmask``, and the way in: PaddlePaddle's column-wise mask.

Format: ``paddle.nn.functional.flashmask_attention`` (Paddle documentation; ``PaddlePaddle/flash-attention``,
``flashmask/flash_mask``; arXiv 2410.01359). ``startend_row_indices`` is int32 ``(batch, heads, kv_len, n)`` and says
for every key which query rows do *not* see it:

=========  ===  ==============================================================================
causal      n   hidden rows of key j
=========  ===  ==============================================================================
True        1   ``[0, j)`` and ``[LTS, q_len)``
True        2   ``[0, j)`` and ``[LTS, LTE)``
False       2   ``[LTS, q_len)`` and ``[0, UTE)``
False       4   ``[LTS, LTE)`` and ``[UTS, UTE)``
=========  ===  ==============================================================================

So a key may be hidden from two stretches of rows at most. A window of W keys is ``LTS = j + W`` here, which counts the
query's own key: ``cm.window(W - 1)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cmask_lab.compiler.intervals import Int64s, IntervalTable
from cmask_lab.interop.layout import int_table
from cmask_lab.interop.plane import Plane, assembled
from cmask_lab.interop.torch_source import module
from cmask_lab.masks.arguments import integer
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import from_table


class Form(NamedTuple):
    """One of the four ways to write a mask.

    Attributes:
        values: what each of the ``n`` numbers is called.
        encode: a table of the rows that see each key → int64 ``(n, kv_len)``, or None if the form can't hold it.
    """

    causal: bool
    values: tuple[str, ...]
    encode: Callable[[IntervalTable], Int64s | None]


def _one_causal(seen: IntervalTable) -> Int64s | None:
    low, high = seen.bounds()
    keys = np.arange(seen.q_len)
    nothing = low == high
    if not _square(seen) or np.diff(seen.row_ptr).max(initial=0) > 1 or not (nothing | (low == keys)).all():
        return None
    return np.where(nothing, keys, high)[None]


def _two_causal(seen: IntervalTable) -> Int64s | None:
    low, _ = seen.bounds()
    keys = np.arange(seen.q_len)
    if not _square(seen) or (np.diff(seen.row_ptr).astype(bool) & (low < keys)).any():
        return None
    hidden = (~seen).clip(keys, seen.kv_len)
    if np.diff(hidden.row_ptr).max(initial=0) > 1:
        return None
    start, stop = hidden.bounds()
    none = start == stop
    return np.stack([np.where(none, seen.kv_len, start), np.where(none, seen.kv_len, stop)])


def _two(seen: IntervalTable) -> Int64s | None:
    if np.diff(seen.row_ptr).max(initial=0) > 1:
        return None
    low, high = seen.bounds()
    return np.stack([high, low])


def _four(seen: IntervalTable) -> Int64s | None:
    hidden = ~seen
    count = np.diff(hidden.row_ptr)
    if count.max(initial=0) > 2:
        return None
    rows = seen.kv_len
    values = np.stack([np.full(seen.q_len, rows), np.full(seen.q_len, rows), *np.zeros((2, seen.q_len), np.int64)])
    first, last = hidden.row_ptr[:-1], hidden.row_ptr[1:] - 1
    two = count == 2
    # A single stretch that begins with the first row is the upper one.
    upper = two | ((count == 1) & (np.append(hidden.start, 0)[first] == 0))
    lower = two | ((count == 1) & ~upper)
    values[0, lower], values[1, lower] = hidden.start[last[lower]], hidden.stop[last[lower]]
    values[2, upper], values[3, upper] = hidden.start[first[upper]], hidden.stop[first[upper]]
    return values


def _square(seen: IntervalTable) -> bool:
    return seen.q_len == seen.kv_len


FORMS = (
    Form(True, ("LTS",), _one_causal),
    Form(True, ("LTS", "LTE"), _two_causal),
    Form(False, ("LTS", "UTE"), _two),
    Form(False, ("LTS", "LTE", "UTS", "UTE"), _four),
)
"""The smallest first; the first that is exact is taken."""

FIRST_STRIP = 1024
"""Keys in the first strip that is looked at."""


def obstacle(plane: Plane) -> str | None:
    """Why FlashMask can't take the mask, with the key that breaks it; None if it can."""
    for number, table in enumerate(plane.tables):
        broken = _broken_key(table)
        if broken is None:
            continue
        key, pieces = broken
        shown = ", ".join(f"[{start}, {stop})" for start, stop in pieces[:3]) + (" …" if len(pieces) > 3 else "")
        which = f" of mask {number}" if len(plane.tables) > 1 else ""
        return (
            f"key {key}{which} is hidden from {len(pieces)} separate stretches of queries, {shown}; "
            f"FlashMask holds two for each key"
        )
    return None


def _broken_key(table: IntervalTable) -> tuple[int, list[list[int]]] | None:
    """The first key hidden from more than two stretches of queries, and those.

    Keys are looked at in strips, each twice as wide as the one before: a mask that breaks early is told at once.
    """
    first, width = 0, FIRST_STRIP
    while first < table.kv_len:
        strip = table.clip(first, first + width)
        hidden = ~strip.transpose()
        worst = np.flatnonzero(np.diff(hidden.row_ptr) > 2)
        if len(worst):
            return int(worst[0]), hidden.row(int(worst[0])).tolist()
        first, width = first + width, 2 * width
    return None


def source(plane: Plane) -> str:
    """A module with ``startend_row_indices(batch)``, a NumPy array, and ``attention(q, k, v)`` for Paddle tensors."""
    form, values = encoded(plane)
    names = ", ".join(form.values)
    tables = [f"CAUSAL = {form.causal}", f"# For every key {names}: see {'causal' if form.causal else 'general'} form."]
    if len(plane.masks) == 1:
        tables += [line for name, row in zip(form.values, values[0], strict=True) for line in table(name, row)]
        body = f"    values = np.stack([{names}], axis=-1)[None, None]\n"
    else:
        tables += table("VALUES", values.transpose(0, 2, 1))
        tables.append(f"MASK_INDEX = np.array({plane.index.tolist()})  # by batch entry and head")
        body = "    values = VALUES[MASK_INDEX]\n"
    docstring = f"{plane.title}\n\n{MEANING[form.causal, len(form.values)]}\n"
    return module(docstring, ["import numpy as np"], tables, [INDICES.replace("BODY", body), ATTENTION])


def table(name: str, values: np.ndarray) -> list[str]:
    """Lines of a NumPy int32 table."""
    return int_table(name, values, library="numpy")


def encoded(plane: Plane) -> tuple[Form, Int64s]:
    """The smallest form that holds all masks of the plane, and its values: int64 ``(masks, n, kv_len)``."""
    seen = [table.transpose() for table in plane.tables]
    for form in FORMS:
        if form.causal and plane.q_start:
            continue
        values = [form.encode(each) for each in seen]
        if all(each is not None for each in values):
            return form, np.stack(values)  # type: ignore[arg-type]
    raise ValueError(f"flashmask: {obstacle(plane)}")


def from_flashmask(startend_row_indices: Any, *, causal: bool, q_len: int | None = None) -> Mask:
    """The mask of FlashMask's ``startend_row_indices``.

    Args:
        startend_row_indices: integers ``(batch, heads, kv_len, n)`` or ``(kv_len, n)``.
        causal: as it is given to ``flashmask_attention``; decides with ``n`` what the numbers mean.
        q_len: number of query rows; ``kv_len`` if not given.

    Raises:
        ValueError: a shape that FlashMask doesn't have.

    >>> from_flashmask([[2], [3], [3]], causal=True).to_dense(3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """
    values = np.asarray(startend_row_indices)
    if values.ndim == 2:
        values = values[None, None]
    if values.ndim != 4 or values.dtype.kind not in "iu":
        raise ValueError(
            f"from_flashmask: expected integers (batch, heads, kv_len, n), got {values.dtype} of shape {values.shape}"
        )
    kv_len, numbers = values.shape[2:]
    if (bool(causal), numbers) not in MEANING:
        raise ValueError(
            f"from_flashmask: {numbers} numbers a key with causal={bool(causal)}; "
            f"FlashMask has 1 or 2 with causal=True, 2 or 4 with causal=False"
        )
    rows = kv_len if q_len is None else integer(q_len, "from_flashmask: q_len")
    if causal and rows != kv_len:
        raise ValueError(f"from_flashmask: causal=True with {rows} queries and {kv_len} keys; it needs equally many")
    return assembled([[_decoded(head.astype(np.int64), bool(causal), rows) for head in entry] for entry in values])


def _decoded(values: Int64s, causal: bool, rows: int) -> Mask:
    keys, end = np.arange(len(values)), np.full(len(values), rows)
    zero = np.zeros_like(keys)
    columns = list(values.T)
    if causal:
        hidden = [(zero, keys), (columns[0], end if len(columns) == 1 else columns[1])]
    elif len(columns) == 2:
        hidden = [(columns[0], end), (zero, columns[1])]
    else:
        hidden = [(columns[0], columns[1]), (columns[2], columns[3])]
    start, stop = (np.concatenate(part) for part in zip(*hidden, strict=True))
    by_key = IntervalTable.from_intervals(np.concatenate([keys, keys]), start, stop, len(values), rows)
    return from_table((~by_key).transpose())


MEANING = {
    (True, 1): "Key j is hidden from the query rows [0, j) and [LTS, q_len).",
    (True, 2): "Key j is hidden from the query rows [0, j) and [LTS, LTE).",
    (False, 2): "Key j is hidden from the query rows [LTS, q_len) and [0, UTE).",
    (False, 4): "Key j is hidden from the query rows [LTS, LTE) and [UTS, UTE).",
}

INDICES = '''\
def startend_row_indices(batch=1):
    """int32 (batch, heads, kv_len, n); one head stands for all."""
BODY    shape = (max(batch, len(values)), *values.shape[1:])
    return np.ascontiguousarray(np.broadcast_to(values, shape), dtype=np.int32)
'''

ATTENTION = '''\
def attention(q, k, v, scale=None):
    """Attention of Paddle tensors (B, S, H, D)."""
    import paddle

    return paddle.nn.functional.flashmask_attention(
        q,
        k,
        v,
        paddle.to_tensor(startend_row_indices(q.shape[0])),
        causal=CAUSAL,
        softmax_scale=scale,
    )
'''
