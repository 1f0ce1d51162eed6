"""What the launchers share: tensors as TMA descriptors, the schedule of a compiled mask, a positive scale."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from cmask_lab.compiler.compile import CompiledMask

VARYING = ["q_len", "tile_rows", "heads", "kv_heads", "group", "batch_stride", "head_stride"]
"""Integers of the kernels of which no value is compiled in."""


def padded_head_dim(head_dim: int) -> int:
    """Head dimension that a kernel is compiled for: TMA reads columns past the real one as zeros, and never writes
    them."""
    return 64 if head_dim <= 64 else 128


def tma_ready(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a contiguous copy if TMA can't read it: dense rows, other strides multiples of 16 bytes."""
    strides_fit = all(stride > 0 and stride % 8 == 0 for stride in tensor.stride()[:-1])
    if tensor.stride(-1) == 1 and strides_fit and tensor.data_ptr() % 16 == 0:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def tile_descriptor(tensor: torch.Tensor, rows: int) -> TensorDescriptor:
    """TMA descriptor of a tensor (…, positions, head_dim): what lies outside reads as zeros and is not written."""
    block = [1] * (tensor.ndim - 2) + [rows, padded_head_dim(tensor.shape[-1])]
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block)


def with_positive_scale(query: torch.Tensor, scale: float) -> tuple[torch.Tensor, float]:
    """The same scores with a positive scale, which the running maximum of the forward kernel needs."""
    if scale > 0:
        return query, scale
    return (-query, -scale) if scale < 0 else (torch.zeros_like(query), 1.0)


def mask_arguments(compiled: CompiledMask, *, by_kv_tile: bool = False) -> tuple[torch.Tensor | int, ...]:
    """What the kernels read of a compiled mask, made once: lists of tiles, patterns, order, masks and their strides.

    Args:
        by_kv_tile: of the transposed descriptor, for the gradients of keys and values.
    """
    known = _made.setdefault(compiled, {})
    if by_kv_tile not in known:
        descriptor = compiled.transposed if by_kv_tile else compiled.descriptor
        lists = [array for name, array in descriptor.arrays().items() if name != "order"]
        # (masks, tiles): the tiles of each mask, the one with most work first.
        own = torch.argsort(descriptor.order // descriptor.q_tiles, stable=True)
        order = (descriptor.order[own] % descriptor.q_tiles).contiguous()
        mask_index = torch.from_numpy(compiled.mask_index).to(descriptor.order.device)
        masks_by_batch, masks_by_head = compiled.mask_index.shape
        strides = (masks_by_head if masks_by_batch > 1 else 0, 1 if masks_by_head > 1 else 0)
        known[by_kv_tile] = (*lists, order, mask_index, *strides)
    return known[by_kv_tile]


_made: WeakKeyDictionary[CompiledMask, dict[bool, tuple[torch.Tensor | int, ...]]] = WeakKeyDictionary()
