"""What the launchers share: tensors as TMA descriptors, the scale in the kernels' base, the few sizes of a launch."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from cmask_lab.kernels.registry import Options
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

LOG2_E = math.log2(math.e)
TILE_LAYOUT = {rank: gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=rank) for rank in (2, 3, 4)}
"""Rows of 64 elements of 16 bits, swizzled as ``wgmma`` reads them. A descriptor's layout has the tensor's rank, the
tile in shared memory rank 2; both describe the same bytes."""
ROW_LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=1)
"""One float32 for each query, not swizzled."""


@cache
def programs_of(device: torch.device) -> int:
    """Programs of a persistent grid: one a multiprocessor."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def padded_head_dim(head_dim: int) -> int:
    """Head dimension that the kernel is compiled for: TMA reads columns past the real one as zeros and never writes
    them."""
    return 64 if head_dim <= 64 else 128


def stages(head_dim: int, kv_tile: int) -> int:
    """Stages of the ring of keys and values: 64 KiB of each."""
    return min(4, 2 * (128 // head_dim) * (128 // kv_tile))


def tma_ready(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a contiguous copy if TMA can't read it: rows must be dense, other strides multiples of 16
    bytes."""
    aligned = tensor.data_ptr() % 16 == 0
    if aligned and tensor.is_contiguous() and tensor.shape[-1] % 8 == 0:
        return tensor
    strides_fit = all(
        stride > 0 and stride * tensor.element_size() % 16 == 0
        for stride, size in zip(tensor.stride()[:-1], tensor.shape[:-1], strict=True)
        if size > 1
    )
    if aligned and strides_fit and tensor.stride(-1) == 1:
        return tensor
    # A copy also of what is_contiguous() holds for such already: its storage begins at an aligned address.
    return tensor.clone(memory_format=torch.contiguous_format)


def tile_descriptor(tensor: torch.Tensor, rows: int) -> TensorDescriptor:
    """TMA descriptor of a tensor ``(…, positions, head_dim)`` for tiles of ``rows`` positions.

    Every leading dimension is one of the descriptor's, so that a tile past the last position reads zeros, and not the
    next head, and is cut off when it is written.
    """
    key = (tensor.shape, tensor.stride(), tensor.dtype, rows)
    if key not in _checked_fields:
        strides = list(tensor.stride())
        for axis in range(tensor.ndim - 2, -1, -1):
            if tensor.shape[axis] == 1:  # the stride of a single entry may be anything; TMA wants a valid one
                strides[axis] = strides[axis + 1] * tensor.shape[axis + 1] if axis < tensor.ndim - 2 else 64
        block = [1] * (tensor.ndim - 2) + [rows, padded_head_dim(tensor.shape[-1])]
        checked = TensorDescriptor(tensor, list(tensor.shape), strides, block, TILE_LAYOUT[tensor.ndim])
        _checked_fields[key] = {**vars(checked), "base": None}
    # The constructor's checks of four tensors take as long as a small kernel: once for a shape is enough.
    descriptor = object.__new__(TensorDescriptor)
    vars(descriptor).update(_checked_fields[key], base=tensor)
    return descriptor


_checked_fields: dict[tuple[Any, ...], dict[str, Any]] = {}


def score_scales(options: Options) -> tuple[float, float]:
    """``(score_scale, tanh_scale)`` as the kernels want them.

    Softmax works in base 2, SiLU on half the score; with a soft cap the score is first ``tanh(tanh_scale · q·k)``.
    """
    unit = LOG2_E if options.activation == "softmax" else 0.5
    if options.softcap > 0:
        return options.softcap * unit, options.scale / options.softcap
    return options.scale * unit, 0.0


def with_positive_scale(query: torch.Tensor, options: Options) -> tuple[torch.Tensor, Options]:
    """The same scores with a positive scale, which the running maximum of the kernels needs."""
    if options.scale < 0:
        return -query, replace(options, scale=-options.scale)
    return torch.zeros_like(query), replace(options, scale=1.0)


def no_keys(out: torch.Tensor, lse: torch.Tensor, options: Options) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What attention gives when there is nothing to see, or nobody to see it."""
    out.zero_()
    if options.activation != "softmax":
        return out, None
    if options.sinks is None:
        return out, lse.fill_(-math.inf)
    return out, lse.copy_(options.sinks.float()[None, :, None].expand_as(lse))


def row_descriptor(rows: torch.Tensor, block: int) -> TensorDescriptor:
    """TMA descriptor of float32 ``(heads, positions)``, seen as one line, for blocks of ``block`` positions."""
    return TensorDescriptor(rows, [rows.numel()], [1], [block], ROW_LAYOUT)
