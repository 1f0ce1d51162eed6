"""What the launchers share: tensors as descriptors of the copy engine, padded sizes, constants of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
from cmask_lab.kernels.portable.blocks import Blocks
from cmask_lab.kernels.registry import Options
from cmask_lab.kernels.tensor_maps import tma_ready, tma_strides
from triton.tools.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    from cmask_lab.compiler.descriptor import Descriptor


def padded(dim: int) -> int:
    """Head dimension as a power of two, at least the 16 that a matrix instruction takes.

    >>> padded(7), padded(80), padded(128)
    (16, 128, 128)
    """
    return max(triton.next_power_of_2(dim), 16)


def in_pieces(tensor: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """A (B, H, S, D) tensor to be read in pieces of ``(rows, columns)``; a copy if its strides can't be read so."""
    tensor = tma_ready(tensor)
    return TensorDescriptor(tensor, list(tensor.shape), tma_strides(tensor), [1, 1, rows, columns])


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
