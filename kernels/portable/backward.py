"""The backward kernels: gradients of keys and values by kv tiles, of queries by query tiles.

Weights are computed again from the scores and the log-sum-exp. Each program owns what it writes, so there are no atomic
additions and every run gives the same bits. A query or key beyond the sequence reads as zeros; the statistics of a
query beyond it read as +inf and 0, which makes its weights and gradients vanish.
"""

from __future__ import annotations

import triton
import triton.language as tl
from cmask_lab.kernels.portable.row_statistics import statistic
from cmask_lab.kernels.portable.tiles import (
    LOG2_E,
    VARYING,
    capped,
    load_rows,
    mask_number,
    over_tiles,
    own_block,
    sigmoid,
    store_rows,
    visible,
)


@triton.jit
def _weights_and_slope(scores, lse2, scale, softcap, SILU: tl.constexpr, SOFTCAP: tl.constexpr):
    """Weights, and for "silu" or a softcap the derivative that the gradient of the scores still needs (else 1)."""
    slope = 1.0
    if SILU:
        scores = scores * scale
        if SOFTCAP:
            scores = capped(scores, softcap)
            slope = 1 - (scores / softcap) * (scores / softcap)
        gate = sigmoid(scores)
        weights = scores * gate
        slope = slope * gate * (1 + scores * (1 - gate))
    elif SOFTCAP:
        scores = capped(scores * scale, softcap)
        slope = 1 - (scores / softcap) * (scores / softcap)
        weights = tl.exp2(scores * LOG2_E - lse2)
    else:
        weights = tl.exp2(scores * (scale * LOG2_E) - lse2)
    return weights, slope


@triton.jit
def _key_step(
    sums,
    first_query,
    words,
    row,
    first_word,
    MASKED: tl.constexpr,
    WORDS_A_ROW: tl.constexpr,
    k,
    v,
    q_tensor,
    grad_out_tensor,
    lse2,  # of this head, as delta
    delta,
    batch,
    head,
    q_len,
    scale,
    softcap,
    SILU: tl.constexpr,
    SOFTCAP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    HEAD: tl.constexpr,
    VALUE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """What one block of queries adds to the gradients of a block of keys and values; scores are (keys, queries)."""
    grad_k, grad_v = sums
    query = first_query + tl.arange(0, BLOCK_M)
    q = load_rows(q_tensor, batch, head, first_query, BLOCK_M, HEAD)
    scores = tl.dot(k, q.T, input_precision=PRECISION)
    row_lse2 = statistic(lse2, query, query < q_len, float("inf"), SILU)[None, :]
    weights, slope = _weights_and_slope(scores, row_lse2, scale, softcap, SILU, SOFTCAP)
    if MASKED:
        seen = visible(words, row, first_word, BLOCK_M, WORDS_A_ROW)
        weights = tl.where(seen, weights, 0.0)
    grad_out = load_rows(grad_out_tensor, batch, head, first_query, BLOCK_M, VALUE)
    grad_v = tl.dot(weights.to(grad_out.dtype), grad_out, grad_v, input_precision=PRECISION)
    grad_weights = tl.dot(v, grad_out.T, input_precision=PRECISION)
    if SILU:
        grad_scores = grad_weights * slope
        if MASKED:
            grad_scores = tl.where(seen, grad_scores, 0.0)
    else:
        row_delta = statistic(delta, query, query < q_len, 0.0, SILU)[None, :]
        grad_scores = weights * (grad_weights - row_delta) * slope
    grad_k = tl.dot(grad_scores.to(q.dtype), q, grad_k, input_precision=PRECISION)
    return grad_k, grad_v


@triton.jit(do_not_specialize=VARYING)
def attention_backward_keys(
    q_tensor,  # (B, H, Sq, D)
    k_tensor,  # (B, Hkv, Skv, D)
    v_tensor,  # (B, Hkv, Skv, Dv)
    grad_out_tensor,  # (B, H, Sq, Dv)
    lse2,  # (B, H, Sq)
    delta,  # (B, H, Sq)
    grad_k,  # (B, Hkv, Skv, D), contiguous
    grad_v,  # (B, Hkv, Skv, Dv), contiguous
    run_ptr,  # of the transposed descriptor, as all of these
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
    softcap,
    normalizer,
    q_len,
    kv_len,
    tile_rows,  # kv tiles
    heads,
    kv_heads,
    group,
    SILU: tl.constexpr,
    SOFTCAP: tl.constexpr,
    Q_TILE: tl.constexpr,
    KV_TILE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD: tl.constexpr,
    VALUE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gradients of one block of keys and values, from all query heads that share it."""
    # Heads of a group may have different masks; the first one's order of work serves all.
    batch_kv_head, batch, kv_head, _, tile, first_row = own_block(
        order, mask_index, batch_stride, head_stride, tile_rows, kv_heads, group, KV_TILE, BLOCK_N
    )
    first_key = tile * KV_TILE + first_row
    k = load_rows(k_tensor, batch, kv_head, first_key, BLOCK_N, HEAD)
    v = load_rows(v_tensor, batch, kv_head, first_key, BLOCK_N, VALUE)
    sums = (tl.zeros([BLOCK_N, HEAD], tl.float32), tl.zeros([BLOCK_N, VALUE], tl.float32))
    for head in range(kv_head * group, (kv_head + 1) * group):
        mask = mask_number(mask_index, batch, head, batch_stride, head_stride)
        statistics = (batch * heads + head).to(tl.int64) * q_len
        sums = over_tiles(
            _key_step, sums,
            (k, v, q_tensor, grad_out_tensor, lse2 + statistics, delta + statistics, batch, head, q_len, scale, softcap,
             SILU, SOFTCAP, BLOCK_M, HEAD, VALUE, PRECISION),
            run_ptr, run_start, run_stop, partial_ptr, partial_tile, partial_pattern, patterns,
            mask * tile_rows + tile, first_row + tl.arange(0, BLOCK_N), KV_TILE, Q_TILE, BLOCK_M,
        )  # fmt: skip

    sum_k, sum_v = sums
    if SILU:
        sum_v = sum_v / normalizer
        sum_k = sum_k / normalizer
    key = first_key + tl.arange(0, BLOCK_N)
    position = batch_kv_head.to(tl.int64) * kv_len + key
    store_rows(grad_k, sum_k * scale, position, key < kv_len, HEAD_DIM)
    store_rows(grad_v, sum_v, position, key < kv_len, VALUE_DIM)


@triton.jit
def _query_step(
    sums,
    first_key,
    words,
    row,
    first_word,
    MASKED: tl.constexpr,
    WORDS_A_ROW: tl.constexpr,
    q,
    grad_out,
    row_lse2,
    row_delta,
    k_tensor,
    v_tensor,
    batch,
    kv_head,
    scale,
    softcap,
    SILU: tl.constexpr,
    SOFTCAP: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD: tl.constexpr,
    VALUE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """What one block of keys adds to the gradient of a block of queries; scores are (queries, keys)."""
    k = load_rows(k_tensor, batch, kv_head, first_key, BLOCK_N, HEAD)
    scores = tl.dot(q, k.T, input_precision=PRECISION)
    weights, slope = _weights_and_slope(scores, row_lse2, scale, softcap, SILU, SOFTCAP)
    v = load_rows(v_tensor, batch, kv_head, first_key, BLOCK_N, VALUE)
    grad_weights = tl.dot(grad_out, v.T, input_precision=PRECISION)
    # Not a conditional expression: only a statement leaves the other branch out at compile time.
    if SILU:  # noqa: SIM108
        grad_scores = grad_weights * slope
    else:
        grad_scores = weights * (grad_weights - row_delta) * slope
    if MASKED:
        seen = visible(words, row, first_word, BLOCK_N, WORDS_A_ROW)
        grad_scores = tl.where(seen, grad_scores, 0.0)
    return (tl.dot(grad_scores.to(k.dtype), k, sums[0], input_precision=PRECISION),)


@triton.jit(do_not_specialize=VARYING)
def attention_backward_queries(
    q_tensor,  # (B, H, Sq, D)
    k_tensor,  # (B, Hkv, Skv, D)
    v_tensor,  # (B, Hkv, Skv, Dv)
    grad_out_tensor,  # (B, H, Sq, Dv)
    lse2,  # (B, H, Sq)
    delta,  # (B, H, Sq)
    grad_q,  # (B, H, Sq, D), contiguous
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
    softcap,
    normalizer,
    q_len,
    tile_rows,  # query tiles
    heads,
    group,
    SILU: tl.constexpr,
    SOFTCAP: tl.constexpr,
    Q_TILE: tl.constexpr,
    KV_TILE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD: tl.constexpr,
    VALUE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient of one block of queries."""
    batch_head, batch, head, mask, tile, first_row = own_block(
        order, mask_index, batch_stride, head_stride, tile_rows, heads, 1, Q_TILE, BLOCK_M
    )
    first_query = tile * Q_TILE + first_row
    query = first_query + tl.arange(0, BLOCK_M)
    position = batch_head.to(tl.int64) * q_len + query
    q = load_rows(q_tensor, batch, head, first_query, BLOCK_M, HEAD)
    grad_out = load_rows(grad_out_tensor, batch, head, first_query, BLOCK_M, VALUE)
    row_lse2 = statistic(lse2, position, query < q_len, float("inf"), SILU)[:, None]
    row_delta = statistic(delta, position, query < q_len, 0.0, SILU)[:, None]
    (total,) = over_tiles(
        _query_step, (tl.zeros([BLOCK_M, HEAD], tl.float32),),
        (q, grad_out, row_lse2, row_delta, k_tensor, v_tensor, batch, head // group, scale, softcap, SILU, SOFTCAP,
         BLOCK_N, HEAD, VALUE, PRECISION),
        run_ptr, run_start, run_stop, partial_ptr,
        partial_tile, partial_pattern, patterns, mask * tile_rows + tile, first_row + tl.arange(0, BLOCK_M), Q_TILE,
        KV_TILE, BLOCK_N,
    )  # fmt: skip

    if SILU:
        total = total / normalizer
    store_rows(grad_q, total * scale, position, query < q_len, HEAD_DIM)
