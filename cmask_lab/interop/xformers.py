"""Target ``xformers``, and the way in: xFormers' attention biases.

Format: ``xformers.ops.fmha.attn_bias`` (``facebookresearch/xformers``). Each class is a mask: lower triangles aligned
at the top left or the bottom right, windows, and block diagonals of packed sequences. ``window_size`` W of a causal
class is W keys, the query's own among them (``cm.window(W - 1)``); ``window_left`` and ``window_right`` count without
it. The mask is recognised by its rows, however it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from cmask_lab.compiler.intervals import Int64s, IntervalTable
from cmask_lab.interop.layout import Term, number_list, statement
from cmask_lab.interop.plane import Plane, one_mask_only
from cmask_lab.interop.torch_source import module
from cmask_lab.masks import band, causal, documents, full, window
from cmask_lab.masks.arguments import integer
from cmask_lab.masks.combinators import Or
from cmask_lab.masks.mask import Mask


class Candidate(NamedTuple):
    """A bias, and the first key and the one after the last that it shows to every query."""

    code: str
    low: Int64s
    high: Int64s
    lengths: tuple[Int64s, ...] = ()
    """Arguments of the class: lengths of the packed sequences, of queries and if they differ of keys."""


def obstacle(plane: Plane) -> str | None:
    """Why no bias class fits the mask, with the row that breaks it; None if one does."""
    return one_mask_only(plane, "an xFormers bias") or _recognised(plane.table)[1]


def source(plane: Plane) -> str:
    """A module with ``make_bias()`` and ``attention(q, k, v)``."""
    bias, reason = _recognised(plane.table)
    if bias is None:
        raise ValueError(f"xformers: {reason}")
    names = ("Q_LENGTHS", "KV_LENGTHS")[: len(bias.lengths)]
    tables = [f"Q_LEN, KV_LEN = {plane.q_len}, {plane.kv_len}"]
    for name, lengths in zip(names, bias.lengths, strict=True):
        tables += number_list(f"{name} = ", lengths)
    code = bias.code.replace("LENGTHS", ", ".join(names))
    imports = ["import xformers.ops as xops"]
    if code != "None":
        imports.append(f"from xformers.ops.fmha.attn_bias import {re.split(r'[.(]', code)[0]}")
    body = "\n".join(statement("return", Term(code), 4))
    make = f'def make_bias():\n    """The bias; None where every query sees every key."""\n{body}\n'
    return module(plane.title, imports, tables, [make, ATTENTION])


def _recognised(table: IntervalTable) -> tuple[Candidate | None, str | None]:
    """The first bias whose rows are those of the table, or why there is none."""
    pieces = np.diff(table.row_ptr)
    broken = np.flatnonzero(pieces != 1)
    if len(broken):
        row = int(broken[0])
        return None, f"row {row} sees {pieces[row]} separate ranges of keys; every xFormers bias shows one to each row"
    low, high = table.bounds()
    furthest = -1
    for candidate in _candidates(low, high, table.kv_len):
        differs = np.flatnonzero((candidate.low != low) | (candidate.high != high))
        if not len(differs):
            return candidate, None
        furthest = max(furthest, int(differs[0]))
    return None, f"row {furthest} sees the keys [{low[furthest]}, {high[furthest]}), which fits no xFormers bias"


def _candidates(low: Int64s, high: Int64s, kv_len: int) -> Iterator[Candidate]:
    rows = len(low)
    i, zero, end = np.arange(rows), np.zeros(rows, np.int64), np.full(rows, kv_len)
    shift = kv_len - rows
    yield Candidate("None", zero, end)
    yield Candidate("LowerTriangularMask()", zero, np.minimum(i + 1, kv_len))
    if not rows:
        return
    if shift >= 0:
        to_the_right = i + 1 + shift
        yield Candidate("LowerTriangularFromBottomRightMask()", zero, to_the_right)
        size = int(high[-1] - low[-1])
        code = f"LowerTriangularFromBottomRightLocalAttentionMask({size})"
        yield Candidate(code, np.maximum(to_the_right - size, 0), to_the_right)
        left, right = int((i + shift - low).max()), int((high - 1 - i - shift).max())
        if left >= 0 and right >= 0:
            code = f"LocalAttentionFromBottomRightMask({left}, {right})"
            yield Candidate(code, np.maximum(i + shift - left, 0), np.minimum(i + shift + right + 1, kv_len))
    yield from _packed(low, high, kv_len)


def _packed(low: Int64s, high: Int64s, kv_len: int) -> Iterator[Candidate]:
    """The block diagonals: a sequence begins where the first key changes."""
    rows = len(low)
    i = np.arange(rows)
    begin = np.append(0, np.flatnonzero(np.diff(low)) + 1)
    q_lengths = np.diff(np.append(begin, rows))
    first_key = np.repeat(low[begin], q_lengths)
    next_key = np.repeat(np.append(low[begin][1:], kv_len), q_lengths)
    in_order = low[0] == 0 and (np.diff(low) >= 0).all()
    if in_order:
        kv_lengths = np.diff(np.append(low[begin], kv_len))
        lengths = (q_lengths,) if np.array_equal(q_lengths, kv_lengths) else (q_lengths, kv_lengths)
        row = i - np.repeat(begin, q_lengths)
        yield Candidate("BlockDiagonalMask.from_seqlens(LENGTHS)", first_key, next_key, lengths)
        stop = np.minimum(first_key + row + 1, next_key)
        yield Candidate("BlockDiagonalCausalMask.from_seqlens(LENGTHS)", first_key, stop, lengths)
        if (kv_lengths >= q_lengths).all():
            stop = next_key - np.repeat(q_lengths, q_lengths) + row + 1
            code = "BlockDiagonalCausalFromBottomRightMask.from_seqlens(LENGTHS)"
            yield Candidate(code, first_key, stop, lengths)
    own = np.flatnonzero(low == i)  # a windowed sequence begins at a query that sees itself first
    if rows == kv_len and len(own) and own[0] == 0:
        size = int((high - low).max())
        lengths = np.diff(np.append(own, rows))
        start = np.maximum(np.repeat(own, lengths), i - size + 1)
        code = f"BlockDiagonalCausalMask.from_seqlens(LENGTHS).make_local_attention({size})"
        yield Candidate(code, start, i + 1, (lengths,))


IN_ONE_BOX = (
    "LowerTriangularMask",
    "LowerTriangularFromBottomRightMask",
    "LowerTriangularFromBottomRightLocalAttentionMask",
    "LocalAttentionFromBottomRightMask",
)
"""Classes of ``attn_bias`` for a single sequence."""


def from_attention_bias(bias: Any, q_len: int, kv_len: int | None = None) -> Mask:
    """The mask of an xFormers bias (or of PyTorch's ``CausalBias``), as regions.

    Args:
        bias: an object of an ``attn_bias`` class; None sees everything.
        kv_len: ``q_len`` if not given.

    Raises:
        ValueError: a class that is no mask (tensor biases) or whose keys lie in pages.

    >>> from_attention_bias(None, 4)
    cm.full()
    """
    rows = integer(q_len, "from_attention_bias: q_len")
    keys = rows if kv_len is None else integer(kv_len, "from_attention_bias: kv_len")
    if bias is None:
        return full()
    kind = type(bias).__name__
    if "Paged" in kind or "Tensor" in kind:
        raise ValueError(
            f"from_attention_bias: {kind} is not a mask of positions; give a bias without pages and tensors"
        )
    if kind == "CausalBias":  # torch.nn.attention.bias
        return _triangle(bias.seq_len_q, bias.seq_len_kv, bias.variant.name == "LOWER_RIGHT", None)
    if not hasattr(bias, "q_seqinfo") and kind not in IN_ONE_BOX:
        raise ValueError(
            f"from_attention_bias: {kind} is no xFormers bias; give an object of attn_bias, or PyTorch's CausalBias; "
            "arrays and tensors go to cm.from_transformers or cm.from_dense"
        )
    if not hasattr(bias, "q_seqinfo"):
        return _in_box(bias, rows, keys)
    boxes = list(zip(bias.q_seqinfo.intervals(), bias.k_seqinfo.intervals(), strict=True))
    lengths = [q1 - q0 for (q0, q1), _ in boxes]
    inner = {(q1 - q0, k1 - k0): _in_box(bias, q1 - q0, k1 - k0) for (q0, q1), (k0, k1) in boxes}
    if len(set(inner.values())) == 1 and all(q == k for q, k in boxes):
        (mask,) = set(inner.values())
        return documents(lengths) if mask == full() else documents(lengths) & mask
    moved = [inner[q[1] - q[0], k[1] - k[0]].at(q=q, k=k) for q, k in boxes]
    return moved[0] if len(moved) == 1 else Or.of(*moved)


def _in_box(bias: Any, rows: int, keys: int) -> Mask:
    """The mask of one sequence of a bias, by the class's name and windows."""
    kind = type(bias).__name__
    shift = keys - rows if "FromBottomRight" in kind or "Offset" in kind or "PaddedKeys" in kind else 0
    if hasattr(bias, "window_left"):
        return (
            band(shift - bias.window_left, shift + bias.window_right + 1)
            if shift
            else window(bias.window_left, bias.window_right)
        )
    size = getattr(bias, "_window_size", None)
    if size is None and "Causal" not in kind and "LowerTriangular" not in kind:
        return full()
    return _triangle(rows, keys, shift != 0, size)


def _triangle(rows: int, keys: int, bottom_right: bool, size: int | None) -> Mask:
    shift = keys - rows if bottom_right else 0
    if shift == 0:
        return causal() if size is None else window(size - 1)
    return band(None if size is None else shift - size + 1, shift + 1)


ATTENTION = '''\
def attention(q, k, v, scale=None):
    """Attention of (B, S, H, D) tensors; packed sequences have B = 1."""
    if (q.shape[1], k.shape[1]) != (Q_LEN, KV_LEN):
        raise ValueError(f"the mask is for {Q_LEN} queries and {KV_LEN} keys")
    return xops.memory_efficient_attention(q, k, v, attn_bias=make_bias(), scale=scale)
'''
