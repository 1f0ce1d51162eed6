"""Tensors as TMA, the copy engine of sm_90 and later, reads them: what it demands of their addresses and strides."""

from __future__ import annotations

import torch

UNIT_BYTES = 16
"""Base address and strides must be multiples of this."""


def padded_head_dim(head_dim: int) -> int:
    """Head dimension that a Hopper or Blackwell kernel is compiled for: TMA reads columns past the real one as zeros
    and never writes them.

    >>> padded_head_dim(64), padded_head_dim(80)
    (64, 128)
    """
    return 64 if head_dim <= 64 else 128


def tma_ready(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor ``(…, positions, head_dim)``, or a copy with dense rows of whole units if TMA can't read it.

    >>> tma_ready(torch.zeros(2, 5, 80)).stride(), tma_ready(torch.zeros(2, 5, 7)).stride()
    ((400, 80, 1), (40, 8, 1))
    """
    unit = UNIT_BYTES // tensor.element_size()
    *sizes, width = tensor.shape
    if (
        tensor.stride(-1) == 1
        and tensor.data_ptr() % UNIT_BYTES == 0
        and all(
            stride > 0 and stride % unit == 0
            for size, stride in zip(sizes, tensor.stride()[:-1], strict=True)
            if size > 1
        )
    ):
        return tensor
    copy = tensor.new_empty(*sizes, -(-width // unit) * unit)[..., :width]
    return copy.copy_(tensor)


def tma_strides(tensor: torch.Tensor) -> list[int]:
    """The strides of what :func:`tma_ready` gave: that of an axis of length 1 is free in PyTorch, but not for TMA."""
    unit = UNIT_BYTES // tensor.element_size()
    *sizes, _ = tensor.shape
    return [*(s if size > 1 else unit for size, s in zip(sizes, tensor.stride()[:-1], strict=True)), 1]
