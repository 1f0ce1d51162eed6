"""Pieces of code that the forward and the backward kernels share: loads, pattern bits, scores."""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def load_rows(tensor, batch, head, first, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """(ROWS, COLUMNS) of a (B, H, S, D) tensor descriptor from position ``first`` on; zeros outside the tensor."""
    return tensor.load([batch, head, first, 0]).reshape(ROWS, COLUMNS)


@triton.jit
def visible(words, row, first_word, COLUMNS: tl.constexpr, WORDS_A_ROW: tl.constexpr):
    """bool (rows, COLUMNS): cells of a pattern (row-major words) in its rows ``row``, from word ``first_word`` on.

    Each thread loads the few words of its own rows; only the compare is done for every cell. ``1 << column`` does not
    change from tile to tile, so what is left in the loop is one AND and one select a cell.
    """
    word = first_word + tl.arange(0, COLUMNS // 32)
    bits = tl.load(words + row[:, None] * WORDS_A_ROW + word[None, :])
    one = tl.full([1, 1, 32], 1, tl.int32) << tl.arange(0, 32)[None, None, :]
    return ((bits[:, :, None] & one) != 0).reshape(row.shape[0], COLUMNS)


@triton.jit
def capped(x, cap):
    """``cap * tanh(x / cap)``, through exp2 so that it also runs in the interpreter; saturates cleanly at ±cap."""
    return cap - 2 * cap / (1 + tl.exp2(x * (2 * LOG2_E / cap)))


@triton.jit
def sigmoid(x):
    """Logistic function."""
    return 1 / (1 + tl.exp2(-x * LOG2_E))


@triton.jit
def mask_number(mask_index, batch, head, batch_stride, head_stride):
    """Number of the distinct mask that a batch entry and query head use; a stride is 0 where all share one."""
    return tl.load(mask_index + batch * batch_stride + head * head_stride)
