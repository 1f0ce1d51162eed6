"""Pieces of code that the forward and the backward kernels share: loads, pattern bits."""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def load_rows(tensor, batch, head, first, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """(ROWS, COLUMNS) of a (B, H, S, D) tensor from position ``first`` on; zeros outside of it."""
    return tensor.load([batch, head, first, 0]).reshape(ROWS, COLUMNS)


@triton.jit
def visible(words, first_word, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WORDS_A_ROW: tl.constexpr):
    """bool (ROWS, COLUMNS): cells of a pattern, from row-major words of 32, from word ``first_word`` of each row on."""
    row = tl.arange(0, ROWS)
    word = first_word + tl.arange(0, COLUMNS // 32)
    bits = tl.load(words + row[:, None] * WORDS_A_ROW + word[None, :])
    one = tl.full([1, 1, 32], 1, tl.int32) << tl.arange(0, 32)[None, None, :]
    return ((bits[:, :, None] & one) != 0).reshape(ROWS, COLUMNS)
