"""The CPU backend: work on the visible tiles only, forward and backward.

For each query tile the keys it sees, full and partial tiles alike, are brought together (as a view if they are
neighbours) and multiplied at once for many heads; patterns hide cells of the partial tiles. Plain softmax goes through
PyTorch's fused kernel (:mod:`cmask_lab.kernels.cpu_fused`), the rest through the BLAS that PyTorch has
(:mod:`cmask_lab.kernels.cpu_blas`). The backward pass computes the weights again from
the log-sum-exp. float16 and bfloat16 are computed in float32, float64 in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from cmask_lab.kernels import cpu_blas, cpu_fused
from cmask_lab.kernels.cpu_parts import Part
from cmask_lab.kernels.cpu_rows import TileRow, pattern_words, tile_rows
from cmask_lab.kernels.mask_lists import once_a_mask
from cmask_lab.kernels.registry import Options, Problem
from cmask_lab.kernels.sinks import sink_gradient

if TYPE_CHECKING:
    from cmask_lab.compiler.compile import CompiledMask


class Cpu:
    """The backend."""

    name = "cpu"

    def unsupported(self, problem: Problem) -> str | None:
        """None: it runs everything that is on a CPU."""
        return None

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, compiled: CompiledMask, options: Options
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """out and lse; see :class:`cmask_lab.kernels.registry.Backend`."""
        dtype, patterns = _working_dtype(q), pattern_words(compiled)
        out = q.new_zeros(*q.shape[:3], v.shape[3])
        lse = torch.full(q.shape[:3], float("-inf"), dtype=dtype)
        if options.sinks is not None:
            lse.copy_(options.sinks[None, :, None].expand_as(lse))
        # Before anything is seen the log-sum-exp of a row is its sink alone.
        only_sinks = lse.clone() if options.sinks is not None else None
        fused = _fused_kernel_knows(q, v, options)
        q = q.to(dtype)
        if not fused:  # which converts only what a tile row sees: of a long cache a window
            k, v = k.to(dtype), v.to(dtype)
        scaled = q if fused else q * options.scale
        for part in _parts(q, k, compiled):
            part_q, part_k, part_v = part.of_queries(scaled), part.of_keys(k), part.of_keys(v)
            sinks = None if only_sinks is None else part.of_queries(only_sinks)
            if fused:
                part_out, part_lse = cpu_fused.forward(part_q, part_k, part_v, part.rows, patterns, options.scale)
                part_lse.masked_fill_(part.blind, float("-inf"))
                if sinks is not None:
                    total = torch.logaddexp(part_lse, sinks)
                    part_out *= torch.exp(part_lse - total)[..., None]
                    part_lse = total
            else:
                part_out, part_lse = cpu_blas.forward(part, part_q, part_k, part_v, sinks, patterns, options)
            part.put_queries(out, part_out)
            part.put_queries(lse, part_lse)
        return out, None if options.activation == "silu" else lse

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
        dtype, patterns = _working_dtype(q), pattern_words(compiled)
        gradients = tuple(torch.zeros(tensor.shape, dtype=dtype) for tensor in (q, k, v))
        grad_out = grad_out.to(dtype)
        grad_sinks = None
        finite_lse = statistics = None
        if lse is not None:
            delta = (grad_out * out).sum(-1)
            if grad_lse is not None:
                delta -= torch.where(lse == float("-inf"), 0.0, grad_lse)
            if options.sinks is not None:
                grad_sinks = sink_gradient(options.sinks, lse, delta)
            # In a row that sees nothing every score is -inf, and so is the lse; against 0 the weights become 0.
            finite_lse = torch.where(lse == float("-inf"), 0.0, lse)
            statistics = torch.stack([finite_lse, delta], -1)
        fused = grad_lse is None and _fused_kernel_knows(q, v, options)
        q_all, k_all, v_all = (tensor.to(dtype) for tensor in (q, k, v))
        scaled = q_all if fused else q_all * options.scale
        for part in _parts(q, k, compiled):
            part_q, part_k, part_v = part.of_queries(scaled), part.of_keys(k_all), part.of_keys(v_all)
            part_grad = part.of_queries(grad_out)
            if fused and finite_lse is not None:
                part_out, part_lse = part.of_queries(out.to(dtype)), part.of_queries(finite_lse)
                into = cpu_fused.backward(
                    part_grad, part_q, part_k, part_v, part_out, part_lse, part.rows, patterns, options.scale
                )
            else:
                own = None if statistics is None else part.of_queries(statistics)
                into = cpu_blas.backward(part, part_grad, part_q, part_k, part_v, own, patterns, options)
            part.put_queries(gradients[0], into[0])
            part.add_keys(gradients[1], into[1])
            part.add_keys(gradients[2], into[2])
        grad_q, grad_k, grad_v = (gradient.to(q.dtype) for gradient in gradients)
        return grad_q, grad_k, grad_v, grad_sinks


BACKEND = Cpu()


@once_a_mask
def _rows(compiled: CompiledMask) -> list[tuple[list[TileRow], torch.Tensor]]:
    """For each distinct mask the tile rows that see anything, and which queries see nothing."""
    blind = [torch.from_numpy(np.diff(table.row_ptr) == 0) for table in compiled.interval_tables]
    return list(zip(tile_rows(compiled), blind, strict=True))


def _parts(q: torch.Tensor, k: torch.Tensor, compiled: CompiledMask) -> Iterator[Part]:
    """The problem cut by masks and heads."""
    (batch, heads), kv_heads = q.shape[:2], k.shape[1]
    if not q.numel() or not k.numel():
        return
    masks = _rows(compiled)
    index = np.broadcast_to(compiled.mask_index, (batch, heads)).reshape(batch * kv_heads, -1)
    users: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for unit, used in enumerate(index):
        for mask in np.unique(used):
            users.setdefault((int(mask), tuple(np.flatnonzero(used == mask).tolist())), []).append(unit)
    for (mask, lanes), units in users.items():
        yield Part(units, list(lanes), index.shape, *masks[mask])


def _fused_kernel_knows(q: torch.Tensor, v: torch.Tensor, options: Options) -> bool:
    return options.activation == "softmax" and not options.softcap and q.shape[-1] == v.shape[-1]


def _working_dtype(tensor: torch.Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
