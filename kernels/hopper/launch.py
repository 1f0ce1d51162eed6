"""What the launchers share: tensors as TMA descriptors, the scale in the kernels' base, the few sizes of a launch."""

from __future__ import annotations

from typing import Any

import torch
from cmask_lab.kernels.registry import Options
from cmask_lab.kernels.scales import LOG2_E
from cmask_lab.kernels.tensor_maps import padded_head_dim, tma_strides
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

TILE_LAYOUT = {rank: gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=rank) for rank in (2, 3, 4)}
"""Rows of 64 elements of 16 bits, swizzled as ``wgmma`` reads them. A descriptor's layout has the tensor's rank, the
tile in shared memory rank 2; both describe the same bytes."""
ROW_LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=1)
"""One float32 for each query, not swizzled."""


def stages(head_dim: int, kv_tile: int) -> int:
    """Stages of the ring of keys and values: 64 KiB of each."""
    return min(4, 2 * (128 // head_dim) * (128 // kv_tile))


def tile_descriptor(tensor: torch.Tensor, rows: int) -> TensorDescriptor:
    """TMA descriptor of a tensor ``(…, positions, head_dim)`` for tiles of ``rows`` positions.

    Every leading dimension is one of the descriptor's, so that a tile past the last position reads zeros, and not the
    next head, and is cut off when it is written.
    """
    key = (tensor.shape, tensor.stride(), tensor.dtype, rows)
    if key not in _checked_fields:
        block = [1] * (tensor.ndim - 2) + [rows, padded_head_dim(tensor.shape[-1])]
        checked = TensorDescriptor(tensor, list(tensor.shape), tma_strides(tensor), block, TILE_LAYOUT[tensor.ndim])
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


def row_descriptor(rows: torch.Tensor, block: int) -> TensorDescriptor:
    """TMA descriptor of float32 ``(heads, positions)``, seen as one line, for blocks of ``block`` positions."""
    return TensorDescriptor(rows, [rows.numel()], [1], [block], ROW_LAYOUT)
