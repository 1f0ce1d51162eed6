"""Forward attention for Blackwell (sm_100), written for a chip that it has **not run on**.

It is plain ``tl``: the same source runs in Triton's interpreter, where its arithmetic is tested, and compiles ahead of
time for sm_100, where the test reads in the PTX what became of it. One program computes 128 query rows of one head.
Triton splits the loops that say ``warp_specialize`` into warps that load K and V by TMA, one that starts the tensor
cores (``tcgen05.mma``, with the scores and the output in tensor memory), and warps that do the softmax.

Partial tiles come first, then runs of full tiles. Scores are in base 2, as in the Hopper kernel; a row that has seen
nothing has a maximum of -1e29 and a sum of 0, so that no infinities are subtracted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from cmask_lab.kernels.blackwell.launch import VARYING, tile_descriptor
from cmask_lab.kernels.mask_lists import q_lists
from cmask_lab.kernels.portable.tiles import LN_2, LOG2_E, load_rows, visible
from cmask_lab.kernels.registry import Options
from cmask_lab.kernels.scales import positive_scale
from cmask_lab.kernels.tensor_maps import padded_head_dim, tma_ready

from cmask_lab.compiler.compile import CompiledMask

LOWEST_MAX = tl.constexpr(-1.0e29)


@triton.jit
def _attend(
    q, out, row_max, row_sum, k_tensor, v_tensor, batch, kv_head, tile, words, factor,
    MASKED: tl.constexpr, Q_TILE: tl.constexpr, KV_TILE: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """One kv tile: scores, unnormalised softmax, and the sum of values."""
    k = load_rows(k_tensor, batch, kv_head, tile * KV_TILE, KV_TILE, HEAD)
    scores = tl.dot(q, k.T)
    if MASKED:
        scores = tl.where(visible(words, tl.arange(0, Q_TILE), 0, KV_TILE, KV_TILE // 32), scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1) * factor)
    weights = tl.exp2(scores * factor - new_max[:, None])
    shrink = tl.exp2(row_max - new_max)
    v = load_rows(v_tensor, batch, kv_head, tile * KV_TILE, KV_TILE, HEAD)
    out = tl.dot(weights.to(v.dtype), v, out * shrink[:, None])
    return out, new_max, row_sum * shrink + tl.sum(weights, 1)


@triton.jit(do_not_specialize=VARYING)
def forward_kernel(
    q_tensor,  # (B, H, Sq, D)
    k_tensor,  # (B, Hkv, Skv, D)
    v_tensor,  # (B, Hkv, Skv, D)
    out_tensor,  # (B * H, Sq, D)
    lse,  # (B * H, Sq), float32
    run_ptr,
    run_start,
    run_stop,
    partial_ptr,
    partial_tile,
    partial_pattern,
    patterns,
    order,  # (masks, tile_rows): query tiles of each mask, the one with most work first
    mask_index,
    batch_stride,  # of mask_index; 0 along an axis that is shared
    head_stride,
    scale,
    q_len,
    tile_rows,
    heads,
    group,  # query heads a key head
    Q_TILE: tl.constexpr,
    KV_TILE: tl.constexpr,
    HEAD: tl.constexpr,
):
    """out and lse of one query tile of one head."""
    head_index = tl.program_id(0) // tile_rows
    batch = head_index // heads
    head = head_index % heads
    mask = tl.load(mask_index + batch * batch_stride + head * head_stride)
    query_tile = tl.load(order + mask * tile_rows + tl.program_id(0) % tile_rows)
    tile_row = mask * tile_rows + query_tile
    factor = scale * LOG2_E
    row_max = tl.full([Q_TILE], LOWEST_MAX, tl.float32)
    row_sum = tl.zeros([Q_TILE], tl.float32)
    out = tl.zeros([Q_TILE, HEAD], tl.float32)
    q = load_rows(q_tensor, batch, head, query_tile * Q_TILE, Q_TILE, HEAD)
    first, last = tl.load(partial_ptr + tile_row), tl.load(partial_ptr + tile_row + 1)
    for partial in tl.range(first, last, warp_specialize=True):
        words = patterns + tl.load(partial_pattern + partial).to(tl.int64) * (Q_TILE * KV_TILE // 32)
        out, row_max, row_sum = _attend(
            q, out, row_max, row_sum, k_tensor, v_tensor, batch, head // group, tl.load(partial_tile + partial), words,
            factor, True, Q_TILE, KV_TILE, HEAD,
        )  # fmt: skip
    for run in range(tl.load(run_ptr + tile_row), tl.load(run_ptr + tile_row + 1)):
        for tile in tl.range(tl.load(run_start + run), tl.load(run_stop + run), warp_specialize=True):
            out, row_max, row_sum = _attend(
                q, out, row_max, row_sum, k_tensor, v_tensor, batch, head // group, tile, patterns, factor,
                False, Q_TILE, KV_TILE, HEAD,
            )  # fmt: skip
    query = query_tile * Q_TILE + tl.arange(0, Q_TILE)
    out = out / tl.where(row_sum > 0, row_sum, 1.0)[:, None]
    tl.store(
        lse + head_index.to(tl.int64) * q_len + query,
        tl.where(row_sum > 0, (row_max + tl.log2(tl.where(row_sum > 0, row_sum, 1.0))) * LN_2, float("-inf")),
        mask=query < q_len,
    )
    out_tensor.store([head_index, query_tile * Q_TILE, 0], out.to(out_tensor.dtype).reshape(1, Q_TILE, HEAD))


def launch_options(kv_tile: int) -> dict[str, int]:
    """Warps of the softmax and stages of the K and V ring: as many as fit into shared memory."""
    return {"num_warps": 8, "num_stages": 2 if kv_tile == 128 else 3}


def forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, compiled: CompiledMask, options: Options
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the kernel; see ``Backend.forward``."""
    batch, heads, q_len, head_dim = query.shape
    out = torch.empty((batch, heads, q_len, head_dim), dtype=query.dtype, device=query.device)
    lse = torch.empty((batch, heads, q_len), dtype=torch.float32, device=query.device)
    if not out.numel() or not key.numel():
        return out.zero_(), lse.fill_(float("-inf"))
    query, scale = positive_scale(query, options.scale)
    q_tiles, (q_tile, kv_tile) = compiled.descriptor.q_tiles, compiled.tile
    forward_kernel[(batch * heads * q_tiles,)](
        tile_descriptor(tma_ready(query), q_tile),
        tile_descriptor(tma_ready(key), kv_tile),
        tile_descriptor(tma_ready(value), kv_tile),
        tile_descriptor(out.view(batch * heads, q_len, head_dim), q_tile),
        lse,
        *q_lists(compiled),
        scale,
        q_len,
        q_tiles,
        heads,
        heads // key.shape[1],
        Q_TILE=q_tile,
        KV_TILE=kv_tile,
        HEAD=padded_head_dim(head_dim),
        **launch_options(kv_tile),
    )
    return out, lse
