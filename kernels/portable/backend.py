"""Launching the Triton kernels: tensor descriptors, block shapes, and the schedule of a compiled mask."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
import triton
from cmask_lab.kernels.portable import blocks as block_shapes
from cmask_lab.kernels.portable.backward import attention_backward_keys, attention_backward_queries, row_statistics
from cmask_lab.kernels.portable.blocks import Blocks
from cmask_lab.kernels.portable.forward import attention_forward
from cmask_lab.kernels.registry import Options, Problem
from triton.tools.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    from cmask_lab.compiler.compile import CompiledMask
    from cmask_lab.compiler.descriptor import Descriptor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
HEAD_DIM_LIMIT = 256
TENSOR_MAP_BYTES = 16
"""Base address and strides of a tensor that the copy engine reads must be multiples of this."""
STATISTICS_ROWS = 32
GRID_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Schedule:
    """What a launch needs of a compiled mask besides its descriptors; int32 tensors on the device.

    Attributes:
        mask_index: ``(batch or 1, heads or 1)``.
        q_order, kv_order: ``(masks, tiles)``: query tiles and kv tiles of each mask, the one with most work first.
    """

    mask_index: torch.Tensor
    q_order: torch.Tensor
    kv_order: torch.Tensor | None

    def mask_arguments(self) -> tuple[torch.Tensor, int, int]:
        """mask_index and its strides; 0 along an axis that is shared."""
        batch, heads = self.mask_index.shape
        return self.mask_index, heads if batch > 1 else 0, 1 if heads > 1 else 0


class Portable:
    """The backend; ``blocks`` overrides the block shapes that are chosen, for measurements."""

    name = "portable"

    def __init__(self, blocks: Mapping[str, Blocks] | None = None):
        self._blocks = dict(blocks or {})
        self._schedules: WeakKeyDictionary[CompiledMask, Schedule] = WeakKeyDictionary()

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
        (batch, heads, q_len, head_dim), value_dim = q.shape, v.shape[-1]
        silu = options.activation == "silu"
        out = q.new_empty(batch, heads, q_len, value_dim)
        lse = torch.empty(batch, heads, q_len, dtype=torch.float32, device=q.device)
        if not out.numel() or not k.numel():
            return _nothing_visible(out, None if silu else lse, options.sinks)
        descriptor, schedule = compiled.descriptor, self._schedule(compiled)
        head, value = _padded(head_dim), _padded(value_dim)
        blocks = self._chosen("forward", q, head, value, compiled.tile)
        q, scale = _positive_scale(q, options.scale)
        with _on(q.device):
            attention_forward[(batch * heads * descriptor.q_tiles * (descriptor.q_tile // blocks.queries),)](
                _tensor(q, blocks.queries, head),
                _tensor(k, blocks.keys, head),
                _tensor(v, blocks.keys, value),
                out,
                lse,
                lse if options.sinks is None else options.sinks.float().contiguous(),
                *_tile_lists(descriptor),
                schedule.q_order,
                *schedule.mask_arguments(),
                scale,
                options.softcap,
                options.normalizer,
                q_len,
                descriptor.q_tiles,
                heads,
                heads // k.shape[1],
                SINKS=options.sinks is not None,
                VALUE_DIM=value_dim,
                **_constants(descriptor, options, blocks, head, value, q.dtype),
            )
        return out, None if silu else lse

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
            grad_sinks = (
                None if options.sinks is None else _sink_gradient(options.sinks, lse, -_or_zeros(grad_lse, lse))
            )
            return q.new_zeros(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape), grad_sinks
        grad_out = grad_out.contiguous()
        head, value = _padded(head_dim), _padded(value_dim)
        descriptor, transposed, schedule = compiled.descriptor, compiled.transposed, self._schedule(compiled, True)
        positive_q, scale = _positive_scale(q, options.scale)
        grad_q, grad_k, grad_v = (t.new_empty(t.shape) for t in (q, k, v))
        with _on(q.device):
            lse2, delta = self._statistics(out, grad_out, lse, grad_lse, value)
            numbers = (scale, options.softcap, options.normalizer, q_len)
            blocks = self._chosen("backward_keys", q, head, value, compiled.tile)
            attention_backward_keys[(batch * kv_heads * descriptor.kv_tiles * (descriptor.kv_tile // blocks.keys),)](
                _tensor(positive_q, blocks.queries, head),
                _tensor(k, blocks.keys, head),
                _tensor(v, blocks.keys, value),
                _tensor(grad_out, blocks.queries, value),
                lse2,
                delta,
                grad_k,
                grad_v,
                *_tile_lists(transposed),
                schedule.kv_order,
                *schedule.mask_arguments(),
                *numbers,
                kv_len,
                descriptor.kv_tiles,
                heads,
                kv_heads,
                heads // kv_heads,
                HEAD_DIM=head_dim,
                VALUE_DIM=value_dim,
                **_constants(descriptor, options, blocks, head, value, q.dtype),
            )
            blocks = self._chosen("backward_queries", q, head, value, compiled.tile)
            attention_backward_queries[(batch * heads * descriptor.q_tiles * (descriptor.q_tile // blocks.queries),)](
                _tensor(positive_q, blocks.queries, head),
                _tensor(k, blocks.keys, head),
                _tensor(v, blocks.keys, value),
                _tensor(grad_out, blocks.queries, value),
                lse2,
                delta,
                grad_q,
                *_tile_lists(descriptor),
                schedule.q_order,
                *schedule.mask_arguments(),
                *numbers,
                descriptor.q_tiles,
                heads,
                heads // kv_heads,
                HEAD_DIM=head_dim,
                **_constants(descriptor, options, blocks, head, value, q.dtype),
            )
        if options.scale <= 0:
            grad_q *= float(options.scale < 0) * -1.0
        grad_sinks = None if options.sinks is None else _sink_gradient(options.sinks, lse, delta)
        return grad_q, grad_k, grad_v, grad_sinks

    def _statistics(
        self,
        out: torch.Tensor,
        grad_out: torch.Tensor,
        lse: torch.Tensor | None,
        grad_lse: torch.Tensor | None,
        value: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What a softmax row's gradients need, float32 ``(B, H, Sq)`` twice; for "silu" nothing that is read."""
        if lse is None:
            unread = torch.empty(1, dtype=torch.float32, device=out.device)
            return unread, unread
        lse2, delta = torch.empty_like(lse), torch.empty_like(lse)
        rows = lse.numel()
        row_statistics[(triton.cdiv(rows, STATISTICS_ROWS),)](
            out.contiguous(),
            grad_out,
            lse,
            lse if grad_lse is None else grad_lse.contiguous(),
            lse2,
            delta,
            rows,
            GRAD_LSE=grad_lse is not None,
            BLOCK=STATISTICS_ROWS,
            VALUE=value,
            VALUE_DIM=out.shape[-1],
        )
        return lse2, delta

    def _chosen(self, kind: str, q: torch.Tensor, head: int, value: int, tile: tuple[int, int]) -> Blocks:
        if kind in self._blocks:
            return self._blocks[kind]
        return block_shapes.choose(kind, q.dtype, head, value, tile, block_shapes.shared_limit(q.device))

    def _schedule(self, compiled: CompiledMask, backward: bool = False) -> Schedule:
        known = self._schedules.get(compiled)
        if known is None or (backward and known.kv_order is None):
            descriptor = compiled.descriptor
            known = Schedule(
                torch.from_numpy(compiled.mask_index).to(descriptor.order.device),
                _order_by_mask(descriptor),
                _order_by_mask(compiled.transposed) if backward else None,
            )
            self._schedules[compiled] = known
        return known


BACKEND = Portable()


def _padded(dim: int) -> int:
    """Head dimension as a power of two, at least the 16 that a matrix instruction takes."""
    return max(triton.next_power_of_2(dim), 16)


def _positive_scale(q: torch.Tensor, scale: float) -> tuple[torch.Tensor, float]:
    """q and a positive scale with the same products: the kernels apply it after the maximum."""
    if scale > 0:
        return q, scale
    return (-q, -scale) if scale < 0 else (torch.zeros_like(q), 1.0)


def _tensor(tensor: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """A (B, H, S, D) tensor to be read in pieces of ``(rows, columns)``; a copy if its strides can't be read so."""
    unit = TENSOR_MAP_BYTES // tensor.element_size()
    *sizes, dim = tensor.shape
    readable = tensor.stride(-1) == 1 and tensor.data_ptr() % TENSOR_MAP_BYTES == 0
    readable &= all(
        stride > 0 and stride % unit == 0 for size, stride in zip(sizes, tensor.stride()[:-1], strict=True) if size > 1
    )
    if not readable:
        copy = tensor.new_empty(*sizes, -(-dim // unit) * unit)[..., :dim]
        tensor = copy.copy_(tensor)
    # The stride of an axis of length 1 is free in PyTorch but has to be a multiple as well.
    strides = [stride if size > 1 else unit for size, stride in zip(sizes, tensor.stride()[:-1], strict=True)]
    return TensorDescriptor(tensor, list(tensor.shape), [*strides, 1], [1, 1, rows, columns])


def _tile_lists(descriptor: Descriptor) -> tuple[torch.Tensor, ...]:
    return tuple(array for name, array in descriptor.arrays().items() if name != "order")


def _order_by_mask(descriptor: Descriptor) -> torch.Tensor:
    """int32 ``(masks, tiles)``: for each mask its own tile rows, in the descriptor's order."""
    tiles = descriptor.order.shape[0] // descriptor.masks
    own = torch.argsort(descriptor.order // tiles, stable=True)
    return (descriptor.order[own] % tiles).reshape(descriptor.masks, tiles).contiguous()


def _constants(
    descriptor: Descriptor, options: Options, blocks: Blocks, head: int, value: int, dtype: torch.dtype
) -> dict[str, object]:
    return {
        "SILU": options.activation == "silu",
        "SOFTCAP": options.softcap > 0,
        "Q_TILE": descriptor.q_tile,
        "KV_TILE": descriptor.kv_tile,
        "BLOCK_M": blocks.queries,
        "BLOCK_N": blocks.keys,
        "HEAD": head,
        "VALUE": value,
        "PRECISION": "ieee" if dtype == torch.float32 else "tf32",
        "num_warps": blocks.warps,
        "num_stages": blocks.stages,
    }


def _on(device: torch.device) -> contextlib.AbstractContextManager:
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _nothing_visible(
    out: torch.Tensor, lse: torch.Tensor | None, sinks: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The result where there is no key or no query at all."""
    out.zero_()
    if lse is not None:
        lse.fill_(float("-inf"))
        if sinks is not None:
            lse.copy_(sinks.float()[None, :, None].expand_as(lse))
    return out, lse


def _or_zeros(grad_lse: torch.Tensor | None, lse: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(lse) if grad_lse is None else grad_lse


def _sink_gradient(sinks: torch.Tensor, lse: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """float32 ``(H,)``: the sink's weight times minus delta, summed over batch and queries."""
    weight = torch.exp(sinks.float()[None, :, None] - lse)
    return -(weight * delta).sum((0, 2))
