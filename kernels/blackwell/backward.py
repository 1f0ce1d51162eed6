"""Backward attention for Blackwell (sm_100), written for a chip that it has **not run on**.

Two kernels, each of which owns what it writes, so that there are no atomic additions and every run gives the same bits:

==========================  ======================================================================================
``key_gradient_kernel``     dK and dV of one kv tile: over the query heads that share it and the query tiles that see
                            it (transposed descriptor), in steps of 64 queries. Scores are transposed, (keys,
                            queries), so that P and dS are left operands of dV = P dO and dK = dS Q: those may lie in
                            tensor memory
``query_gradient_kernel``   dQ = dS K of one query tile, over the kv tiles that it sees, in steps of 64 keys; in
                            :mod:`query_gradient`
==========================  ======================================================================================

Why dQ has a pass of its own, with S and dP computed again (seven products instead of five): the other way, to add it to
memory in the first kernel by TMA, can be said in ``tl`` (``atomic_add`` of a tensor descriptor) but neither run in the
interpreter nor compiled well. In a trial, with Triton 3.6 and 3.7, steps of 64 queries ended in an error of the
compiler, and with steps of 32 the product for dQ was left to ``mma.sync``. Tensor memory would be short, too: of its
512 columns dK and dV take 256 for head dimension 128, and S, dP, P and dS of one step 192.

It is plain ``tl``, as the forward kernel is: the same source runs in the interpreter and compiles for sm_100, where
Triton splits each loop into a warp that loads by TMA, one that starts ``tcgen05.mma``, and eight that compute P and
dS. With four, a thread holds more of dK and dV between two loops than it has registers for, and spills them. Left to
itself Triton keeps S and dP of two steps in tensor memory; for dK and dV that makes 576 columns, so here it may not
(``disallow_acc_multi_buffer``).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from cmask_lab.kernels.blackwell.launch import VARYING, tile_descriptor
from cmask_lab.kernels.blackwell.query_gradient import query_gradient_kernel
from cmask_lab.kernels.mask_lists import kv_lists, q_lists
from cmask_lab.kernels.portable.row_statistics import statistics_of_rows
from cmask_lab.kernels.portable.tiles import LOG2_E, load_rows, visible
from cmask_lab.kernels.registry import Options
from cmask_lab.kernels.scales import positive_scale
from cmask_lab.kernels.tensor_maps import padded_head_dim, tma_ready

from cmask_lab.compiler.compile import CompiledMask

STEP = 64
"""Queries of a step of the first kernel, keys of a step of the second: what fits into tensor memory."""
LAUNCH_OPTIONS = {"num_warps": 8, "num_stages": 3}
"""Warps that compute weights, and stages of the ring that TMA fills."""


@triton.jit
def _key_step(
    grad_k, grad_v, k, v, q_tensor, grad_out_tensor, lse2, delta, statistics, batch, head, first_query, q_len,
    words, first_word, factor,
    MASKED: tl.constexpr, STEP: tl.constexpr, KV_TILE: tl.constexpr, HEAD: tl.constexpr, WORDS_A_ROW: tl.constexpr,
):  # fmt: skip
    """What one step of queries adds to the gradients of a tile of keys and values; scores are (keys, queries)."""
    query = first_query + tl.arange(0, STEP)
    q = load_rows(q_tensor, batch, head, first_query, STEP, HEAD)
    scores = tl.dot(k, q.T)
    row_lse2 = tl.load(lse2 + statistics + query, mask=query < q_len, other=float("inf"))
    weights = tl.exp2(scores * factor - row_lse2[None, :])
    if MASKED:
        weights = tl.where(visible(words, tl.arange(0, KV_TILE), first_word, STEP, WORDS_A_ROW), weights, 0.0)
    grad_out = load_rows(grad_out_tensor, batch, head, first_query, STEP, HEAD)
    grad_v = tl.dot(weights.to(grad_out.dtype), grad_out, grad_v)
    grad_weights = tl.dot(v, grad_out.T)
    row_delta = tl.load(delta + statistics + query, mask=query < q_len, other=0.0)
    grad_scores = weights * (grad_weights - row_delta[None, :])
    grad_k = tl.dot(grad_scores.to(q.dtype), q, grad_k)
    return grad_k, grad_v


@triton.jit(do_not_specialize=VARYING)
def key_gradient_kernel(
    q_tensor,  # (B, H, Sq, D)
    k_tensor,  # (B, Hkv, Skv, D)
    v_tensor,  # (B, Hkv, Skv, D)
    grad_out_tensor,  # (B, H, Sq, D)
    grad_k_tensor,  # (B * Hkv, Skv, D)
    grad_v_tensor,  # (B * Hkv, Skv, D)
    lse2,  # (B * H, Sq)
    delta,  # (B * H, Sq)
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
    q_len,
    tile_rows,  # kv tiles
    heads,
    kv_heads,
    group,
    Q_TILE: tl.constexpr,
    KV_TILE: tl.constexpr,
    STEP: tl.constexpr,
    HEAD: tl.constexpr,
):
    """Gradients of one tile of keys and values, from all query heads that share it."""
    words_a_row: tl.constexpr = Q_TILE // 32
    pieces: tl.constexpr = Q_TILE // STEP
    kv_index = tl.program_id(0) // tile_rows
    batch = kv_index // kv_heads
    kv_head = kv_index % kv_heads
    # Heads of a group may have different masks; the first one's order of work serves all.
    first_mask = tl.load(mask_index + batch * batch_stride + kv_head * group * head_stride)
    tile = tl.load(order + first_mask * tile_rows + tl.program_id(0) % tile_rows)
    factor = scale * LOG2_E
    k = load_rows(k_tensor, batch, kv_head, tile * KV_TILE, KV_TILE, HEAD)
    v = load_rows(v_tensor, batch, kv_head, tile * KV_TILE, KV_TILE, HEAD)
    grad_k = tl.zeros([KV_TILE, HEAD], tl.float32)
    grad_v = tl.zeros([KV_TILE, HEAD], tl.float32)
    for head in range(kv_head * group, (kv_head + 1) * group):
        tile_row = tl.load(mask_index + batch * batch_stride + head * head_stride) * tile_rows + tile
        statistics = (batch * heads + head).to(tl.int64) * q_len
        first, last = tl.load(partial_ptr + tile_row) * pieces, tl.load(partial_ptr + tile_row + 1) * pieces
        for piece in tl.range(first, last, warp_specialize=True, disallow_acc_multi_buffer=True):
            column = (piece % pieces) * STEP
            words = patterns + tl.load(partial_pattern + piece // pieces).to(tl.int64) * (KV_TILE * words_a_row)
            grad_k, grad_v = _key_step(
                grad_k, grad_v, k, v, q_tensor, grad_out_tensor, lse2, delta, statistics, batch, head,
                tl.load(partial_tile + piece // pieces) * Q_TILE + column, q_len, words, column // 32, factor,
                True, STEP, KV_TILE, HEAD, words_a_row,
            )  # fmt: skip
        for run in range(tl.load(run_ptr + tile_row), tl.load(run_ptr + tile_row + 1)):
            first, last = tl.load(run_start + run) * pieces, tl.load(run_stop + run) * pieces
            for piece in tl.range(first, last, warp_specialize=True, disallow_acc_multi_buffer=True):
                grad_k, grad_v = _key_step(
                    grad_k, grad_v, k, v, q_tensor, grad_out_tensor, lse2, delta, statistics, batch, head,
                    piece * STEP, q_len, patterns, 0, factor,
                    False, STEP, KV_TILE, HEAD, words_a_row,
                )  # fmt: skip
    grad_k_tensor.store(
        [kv_index, tile * KV_TILE, 0], (grad_k * scale).to(grad_k_tensor.dtype).reshape(1, KV_TILE, HEAD)
    )
    grad_v_tensor.store([kv_index, tile * KV_TILE, 0], grad_v.to(grad_v_tensor.dtype).reshape(1, KV_TILE, HEAD))


def backward(
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    compiled: CompiledMask,
    options: Options,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
    """Run the kernels; see ``Backend.backward``. Always deterministic."""
    grad_query, grad_key, grad_value = (
        torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (query, key, value)
    )
    if not out.numel() or not key.numel():
        return grad_query.zero_(), grad_key.zero_(), grad_value.zero_(), None
    assert lse is not None, "this backend computes the softmax alone, which has a log-sum-exp"
    (batch, heads, q_len, head_dim), (_, kv_heads, kv_len, _) = query.shape, key.shape
    group, descriptor, (q_tile, kv_tile) = heads // kv_heads, compiled.descriptor, compiled.tile
    positive, scale = positive_scale(query, options.scale)
    grad_out = grad_out.contiguous()
    positive, key, value, grad_out = (tma_ready(tensor) for tensor in (positive, key, value, grad_out))
    constants = {"Q_TILE": q_tile, "KV_TILE": kv_tile, "STEP": STEP, "HEAD": padded_head_dim(head_dim)}
    lse2, delta = statistics_of_rows(out, grad_out, lse.contiguous(), grad_lse, padded_head_dim(head_dim))
    key_gradient_kernel[(batch * kv_heads * descriptor.kv_tiles,)](
        tile_descriptor(positive, STEP),
        tile_descriptor(key, kv_tile),
        tile_descriptor(value, kv_tile),
        tile_descriptor(grad_out, STEP),
        tile_descriptor(grad_key.view(batch * kv_heads, kv_len, head_dim), kv_tile),
        tile_descriptor(grad_value.view(batch * kv_heads, kv_len, head_dim), kv_tile),
        lse2,
        delta,
        *kv_lists(compiled),
        scale,
        q_len,
        descriptor.kv_tiles,
        heads,
        kv_heads,
        group,
        **constants,
        **LAUNCH_OPTIONS,
    )
    query_gradient_kernel[(batch * heads * descriptor.q_tiles,)](
        tile_descriptor(positive, q_tile),
        tile_descriptor(key, STEP),
        tile_descriptor(value, STEP),
        tile_descriptor(grad_out, q_tile),
        tile_descriptor(grad_query.view(batch * heads, q_len, head_dim), q_tile),
        lse2,
        delta,
        *q_lists(compiled),
        scale,
        q_len,
        descriptor.q_tiles,
        heads,
        group,
        **constants,
        **LAUNCH_OPTIONS,
    )
    if options.scale <= 0:
        grad_query *= -1.0 if options.scale < 0 else 0.0
    return grad_query, grad_key, grad_value, None
