"""The backend: which of the Triton kernels run for a call, with which block shapes, and their launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import triton
from cmask_lab.kernels.device import multiprocessors
from cmask_lab.kernels.mask_lists import kv_lists, q_lists
from cmask_lab.kernels.portable import blocks as block_shapes
from cmask_lab.kernels.portable.backward import attention_backward_keys, attention_backward_queries
from cmask_lab.kernels.portable.blocks import Blocks
from cmask_lab.kernels.portable.forward import attention_forward
from cmask_lab.kernels.portable.launch import in_pieces, kernel_constants, padded
from cmask_lab.kernels.portable.row_statistics import statistics_of_rows
from cmask_lab.kernels.portable.shares import Split, rows_shape, rows_wanted, share_count
from cmask_lab.kernels.portable.split_keys import forward_by_shares
from cmask_lab.kernels.registry import Options, Problem
from cmask_lab.kernels.scales import positive_scale
from cmask_lab.kernels.sinks import nothing_visible, sink_gradient

if TYPE_CHECKING:
    from cmask_lab.compiler.compile import CompiledMask

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
HEAD_DIM_LIMIT = 256
GRID_LIMIT = 2**31 - 1


class Portable:
    """The backend.

    Args:
        blocks: block shapes instead of those that are chosen, by kind of kernel; for measurements.
        shares: programs that the keys of every query tile are split among in the forward pass, instead of as many as
            the rule of :mod:`cmask_lab.kernels.portable.shares` gives; for measurements.
    """

    name = "portable"

    def __init__(self, blocks: Mapping[str, Blocks] | None = None, shares: int | None = None):
        self._blocks = dict(blocks or {})
        self._shares = shares

    def unsupported(self, problem: Problem) -> str | None:
        """Why this backend can't run the problem; None if it can."""
        if problem.dtype not in DTYPES:
            return f"computes in float16, bfloat16 or float32, not {str(problem.dtype).removeprefix('torch.')}"
        if (
            not 1
            <= min(problem.head_dim, problem.value_dim)
            <= max(problem.head_dim, problem.value_dim)
            <= HEAD_DIM_LIMIT
        ):
            return f"needs head dimensions of 1 to {HEAD_DIM_LIMIT}, got {problem.head_dim} and {problem.value_dim}"
        programs = problem.batch * problem.heads * max(problem.q_len, problem.kv_len) // 32
        if programs > GRID_LIMIT:
            return f"launches at most {GRID_LIMIT} programs, this needs {programs}"
        return None

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, compiled: CompiledMask, options: Options
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """out and lse; see :class:`cmask_lab.kernels.registry.Backend`."""
        batch, heads, q_len, _ = q.shape
        silu = options.activation == "silu"
        out = q.new_empty(batch, heads, q_len, v.shape[-1])
        lse = torch.empty(batch, heads, q_len, dtype=torch.float32, device=q.device)
        if not out.numel() or not k.numel():
            nothing_visible(out, None if silu else lse, options.sinks)
            return out, None if silu else lse
        q, scale = positive_scale(q, options.scale)
        options = replace(options, scale=scale)
        split = self.split(q, k, v, compiled)
        if split.shares > 1:
            forward_by_shares(q, k, v, out, lse, compiled, options, split)
        else:
            self._forward_by_tiles(q, k, v, out, lse, compiled, options)
        return out, None if silu else lse

    def split(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, compiled: CompiledMask) -> Split:
        """How the keys of a forward pass are split: by the count of work items, see :func:`share_count`."""
        (batch, heads, q_len, head_dim), kv_heads = q.shape, k.shape[1]
        q_tile, kv_tile = compiled.tile
        index, group = compiled.mask_index, heads // kv_heads
        by_group = index.reshape(index.shape[0], -1, group if index.shape[1] > 1 else 1)
        together = group if bool((by_group == by_group[..., :1]).all()) else 1
        rows = rows_wanted(q_len, together, q_tile)
        blocks = self._chosen("split_keys", q, padded(head_dim), padded(v.shape[-1]), (rows, kv_tile))
        packed, queries = rows_shape(blocks.queries, q_len, together, q_tile)
        items = batch * kv_heads * triton.cdiv(group, packed) * triton.cdiv(q_len, queries)
        shares = self._shares or share_count(items, compiled.longest_row * kv_tile, multiprocessors(q.device))
        return Split(blocks, packed, queries, shares)

    def _forward_by_tiles(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        compiled: CompiledMask,
        options: Options,
    ) -> None:
        """One program a block of queries and head."""
        (batch, heads, q_len, head_dim), value_dim = q.shape, v.shape[-1]
        head, value = padded(head_dim), padded(value_dim)
        descriptor = compiled.descriptor
        blocks = self._chosen("forward", q, head, value, compiled.tile)
        attention_forward[(batch * heads * descriptor.q_tiles * (descriptor.q_tile // blocks.queries),)](
            in_pieces(q, blocks.queries, head),
            in_pieces(k, blocks.keys, head),
            in_pieces(v, blocks.keys, value),
            out,
            lse,
            lse if options.sinks is None else options.sinks.float().contiguous(),
            *q_lists(compiled),
            options.scale,
            options.softcap,
            options.normalizer,
            q_len,
            descriptor.q_tiles,
            heads,
            heads // k.shape[1],
            SINKS=options.sinks is not None,
            VALUE_DIM=value_dim,
            **kernel_constants(descriptor, options, blocks, head, value, q.dtype),
        )

    def backward(
        self,
        grad_out: torch.Tensor,
        grad_lse: torch.Tensor | None,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor | None,
        compiled: CompiledMask,
        options: Options,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Gradients of q, k, v and sinks; see :class:`cmask_lab.kernels.registry.Backend`. Always deterministic."""
        (batch, heads, q_len, head_dim), (_, kv_heads, kv_len, value_dim) = q.shape, v.shape
        if not out.numel() or not k.numel():
            grad_sinks = None
            if options.sinks is not None and lse is not None:
                grad_sinks = sink_gradient(options.sinks, lse, torch.zeros_like(lse) if grad_lse is None else -grad_lse)
            return q.new_zeros(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape), grad_sinks
        grad_out = grad_out.contiguous()
        head, value = padded(head_dim), padded(value_dim)
        descriptor = compiled.descriptor
        positive_q, scale = positive_scale(q, options.scale)
        grad_q, grad_k, grad_v = (t.new_empty(t.shape) for t in (q, k, v))

        def inputs(blocks: Blocks) -> tuple[object, ...]:
            """The tensors that both kernels read."""
            queries, keys = blocks.queries, blocks.keys
            return (
                in_pieces(positive_q, queries, head),
                in_pieces(k, keys, head),
                in_pieces(v, keys, value),
                in_pieces(grad_out, queries, value),
                lse2,
                delta,
            )

        lse2, delta = statistics_of_rows(out, grad_out, lse, grad_lse, value)
        numbers = (scale, options.softcap, options.normalizer, q_len)
        blocks = self._chosen("backward_keys", q, head, value, compiled.tile)
        attention_backward_keys[(batch * kv_heads * descriptor.kv_tiles * (descriptor.kv_tile // blocks.keys),)](
            *inputs(blocks),
            grad_k,
            grad_v,
            *kv_lists(compiled),
            *numbers,
            kv_len,
            descriptor.kv_tiles,
            heads,
            kv_heads,
            heads // kv_heads,
            HEAD_DIM=head_dim,
            VALUE_DIM=value_dim,
            **kernel_constants(descriptor, options, blocks, head, value, q.dtype),
        )
        blocks = self._chosen("backward_queries", q, head, value, compiled.tile)
        attention_backward_queries[(batch * heads * descriptor.q_tiles * (descriptor.q_tile // blocks.queries),)](
            *inputs(blocks),
            grad_q,
            *q_lists(compiled),
            *numbers,
            descriptor.q_tiles,
            heads,
            heads // kv_heads,
            HEAD_DIM=head_dim,
            **kernel_constants(descriptor, options, blocks, head, value, q.dtype),
        )
        if options.scale <= 0:
            grad_q *= float(options.scale < 0) * -1.0
        grad_sinks = None if options.sinks is None else sink_gradient(options.sinks, lse, delta)
        return grad_q, grad_k, grad_v, grad_sinks

    def _chosen(self, kind: str, q: torch.Tensor, head: int, value: int, tile: tuple[int, int]) -> Blocks:
        if kind in self._blocks:
            return self._blocks[kind]
        return block_shapes.choose(kind, q.dtype, head, value, tile, block_shapes.shared_limit(q.device))


BACKEND = Portable()
