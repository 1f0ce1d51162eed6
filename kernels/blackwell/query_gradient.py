"""The gradient of the queries on Blackwell, query-tile-major; :mod:`backward` says why it is a pass of its own."""

from __future__ import annotations

import triton
import triton.language as tl
from cmask_lab.kernels.blackwell.launch import VARYING
from cmask_lab.kernels.portable.tiles import LOG2_E, load_rows, visible


@triton.jit
def _query_step(
    grad_q, q, grad_out, row_lse2, row_delta, k_tensor, v_tensor, batch, kv_head, first_key, words, first_word, factor,
    MASKED: tl.constexpr, Q_TILE: tl.constexpr, STEP: tl.constexpr, HEAD: tl.constexpr, WORDS_A_ROW: tl.constexpr,
):  # fmt: skip
    """What one step of keys adds to the gradient of a tile of queries; scores are (queries, keys)."""
    k = load_rows(k_tensor, batch, kv_head, first_key, STEP, HEAD)
    v = load_rows(v_tensor, batch, kv_head, first_key, STEP, HEAD)
    scores = tl.dot(q, k.T)
    grad_weights = tl.dot(grad_out, v.T)
    weights = tl.exp2(scores * factor - row_lse2[:, None])
    if MASKED:
        weights = tl.where(visible(words, tl.arange(0, Q_TILE), first_word, STEP, WORDS_A_ROW), weights, 0.0)
    grad_scores = weights * (grad_weights - row_delta[:, None])
    return tl.dot(grad_scores.to(k.dtype), k, grad_q)


@triton.jit(do_not_specialize=VARYING)
def query_gradient_kernel(
    q_tensor,  # (B, H, Sq, D)
    k_tensor,  # (B, Hkv, Skv, D)
    v_tensor,  # (B, Hkv, Skv, D)
    grad_out_tensor,  # (B, H, Sq, D)
    grad_q_tensor,  # (B * H, Sq, D)
    lse2,  # (B * H, Sq)
    delta,  # (B * H, Sq)
    run_ptr,
    run_start,
    run_stop,
    partial_ptr,
    partial_tile,
    partial_pattern,
    patterns,
    order,
    mask_index,
    batch_stride,
    head_stride,
    scale,
    q_len,
    tile_rows,  # query tiles
    heads,
    group,
    Q_TILE: tl.constexpr,
    KV_TILE: tl.constexpr,
    STEP: tl.constexpr,
    HEAD: tl.constexpr,
):
    """The gradient of one tile of queries."""
    words_a_row: tl.constexpr = KV_TILE // 32
    pieces: tl.constexpr = KV_TILE // STEP
    head_index = tl.program_id(0) // tile_rows
    batch = head_index // heads
    head = head_index % heads
    mask = tl.load(mask_index + batch * batch_stride + head * head_stride)
    tile = tl.load(order + mask * tile_rows + tl.program_id(0) % tile_rows)
    tile_row = mask * tile_rows + tile
    factor = scale * LOG2_E
    query = tile * Q_TILE + tl.arange(0, Q_TILE)
    position = head_index.to(tl.int64) * q_len + query
    row_lse2 = tl.load(lse2 + position, mask=query < q_len, other=float("inf"))
    row_delta = tl.load(delta + position, mask=query < q_len, other=0.0)
    q = load_rows(q_tensor, batch, head, tile * Q_TILE, Q_TILE, HEAD)
    grad_out = load_rows(grad_out_tensor, batch, head, tile * Q_TILE, Q_TILE, HEAD)
    grad_q = tl.zeros([Q_TILE, HEAD], tl.float32)
    first, last = tl.load(partial_ptr + tile_row) * pieces, tl.load(partial_ptr + tile_row + 1) * pieces
    for piece in tl.range(first, last, warp_specialize=True):
        column = (piece % pieces) * STEP
        words = patterns + tl.load(partial_pattern + piece // pieces).to(tl.int64) * (Q_TILE * words_a_row)
        grad_q = _query_step(
            grad_q, q, grad_out, row_lse2, row_delta, k_tensor, v_tensor, batch, head // group,
            tl.load(partial_tile + piece // pieces) * KV_TILE + column, words, column // 32, factor,
            True, Q_TILE, STEP, HEAD, words_a_row,
        )  # fmt: skip
    for run in range(tl.load(run_ptr + tile_row), tl.load(run_ptr + tile_row + 1)):
        first, last = tl.load(run_start + run) * pieces, tl.load(run_stop + run) * pieces
        for piece in tl.range(first, last, warp_specialize=True):
            grad_q = _query_step(
                grad_q, q, grad_out, row_lse2, row_delta, k_tensor, v_tensor, batch, head // group, piece * STEP,
                patterns, 0, factor,
                False, Q_TILE, STEP, HEAD, words_a_row,
            )  # fmt: skip
    grad_q_tensor.store(
        [head_index, tile * Q_TILE, 0], (grad_q * scale).to(grad_q_tensor.dtype).reshape(1, Q_TILE, HEAD)
    )
