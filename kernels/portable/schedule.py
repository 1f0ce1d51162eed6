"""What launches read of a compiled mask besides its descriptors: made when first needed, kept as long as the mask."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import torch

if TYPE_CHECKING:
    from cmask_lab.compiler.compile import CompiledMask
    from cmask_lab.compiler.descriptor import Descriptor

Made = TypeVar("Made")


def once_a_mask(make: Callable[[CompiledMask], Made]) -> Callable[[CompiledMask], Made]:
    """The function, its results remembered by mask."""
    known: WeakKeyDictionary[CompiledMask, Made] = WeakKeyDictionary()

    @wraps(make)
    def remembered(compiled: CompiledMask) -> Made:
        if compiled not in known:
            known[compiled] = make(compiled)
        return known[compiled]

    return remembered


@once_a_mask
def mask_arguments(compiled: CompiledMask) -> tuple[torch.Tensor, int, int]:
    """mask_index ``(batch or 1, heads or 1)`` on the device and its strides; 0 along an axis that is shared."""
    index = torch.from_numpy(compiled.mask_index).to(compiled.descriptor.order.device)
    batch, heads = index.shape
    return index, heads if batch > 1 else 0, 1 if heads > 1 else 0


@once_a_mask
def q_order(compiled: CompiledMask) -> torch.Tensor:
    """int32 ``(masks, q_tiles)``: query tiles of each mask, the one with most work first."""
    return _order_by_mask(compiled.descriptor)


@once_a_mask
def kv_order(compiled: CompiledMask) -> torch.Tensor:
    """int32 ``(masks, kv_tiles)``: kv tiles of each mask, the one with most work first."""
    return _order_by_mask(compiled.transposed)


@once_a_mask
def run_first(compiled: CompiledMask) -> torch.Tensor:
    """int32 ``(runs + 1,)``: full tiles in the runs before each one, so that a share finds where it begins."""
    arrays = compiled.descriptor.arrays()
    lengths = arrays["run_stop"] - arrays["run_start"]
    first = lengths.new_zeros(len(lengths) + 1)
    first[1:] = torch.cumsum(lengths, 0)
    return first


def tile_lists(descriptor: Descriptor) -> tuple[torch.Tensor, ...]:
    """The arrays of a descriptor as the kernels take them; its order comes by mask, from this file."""
    return tuple(array for name, array in descriptor.arrays().items() if name != "order")


def _order_by_mask(descriptor: Descriptor) -> torch.Tensor:
    """For each mask its own tile rows, in the descriptor's order."""
    tiles = descriptor.order.shape[0] // descriptor.masks
    own = torch.argsort(descriptor.order // tiles, stable=True)
    return (descriptor.order[own] % tiles).reshape(descriptor.masks, tiles).contiguous()
