"""What the launchers share: tensors as descriptors of the copy engine, padded sizes, constants of a kernel."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
import triton
from cmask_lab.kernels.portable.blocks import Blocks
from cmask_lab.kernels.registry import Options
from triton.tools.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    from cmask_lab.compiler.descriptor import Descriptor

TENSOR_MAP_BYTES = 16
"""Base address and strides of a tensor that the copy engine reads must be multiples of this."""


def padded(dim: int) -> int:
    """Head dimension as a power of two, at least the 16 that a matrix instruction takes.

    >>> padded(7), padded(80), padded(128)
    (16, 128, 128)
    """
    return max(triton.next_power_of_2(dim), 16)


def positive_scale(q: torch.Tensor, scale: float) -> tuple[torch.Tensor, float]:
    """q and a positive scale with the same products: the kernels apply it after the maximum."""
    if scale > 0:
        return q, scale
    return (-q, -scale) if scale < 0 else (torch.zeros_like(q), 1.0)


def in_pieces(tensor: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
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


def kernel_constants(
    descriptor: Descriptor, options: Options, blocks: Blocks, head: int, value: int, dtype: torch.dtype
) -> dict[str, object]:
    """The constants that every kernel over tiles has, and its launch options."""
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


def on_device(device: torch.device) -> contextlib.AbstractContextManager:
    """The context in which kernels are launched on a device."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
