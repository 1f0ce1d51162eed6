"""What the launchers share: tensors as TMA descriptors, and which integers are not compiled in."""

from __future__ import annotations

import torch
from cmask_lab.kernels.tensor_maps import padded_head_dim, tma_strides
from triton.tools.tensor_descriptor import TensorDescriptor

VARYING = ["q_len", "tile_rows", "heads", "kv_heads", "group", "batch_stride", "head_stride"]
"""Integers of the kernels of which no value is compiled in."""


def tile_descriptor(tensor: torch.Tensor, rows: int) -> TensorDescriptor:
    """TMA descriptor of a tensor (…, positions, head_dim): what lies outside reads as zeros and is not written."""
    block = [1] * (tensor.ndim - 2) + [rows, padded_head_dim(tensor.shape[-1])]
    return TensorDescriptor(tensor, list(tensor.shape), tma_strides(tensor), block)
