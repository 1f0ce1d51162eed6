"""What launches read of a compiled mask: lists made when first needed, kept as long as the mask."""

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
def q_lists(compiled: CompiledMask) -> tuple[torch.Tensor | int, ...]:
    """The tiles of query tiles, and for each mask its query tiles, the one with most work first."""
    return _lists(compiled, compiled.descriptor, _order_by_mask(compiled.descriptor))


@once_a_mask
def kv_lists(compiled: CompiledMask) -> tuple[torch.Tensor | int, ...]:
    """The tiles of kv tiles, and for each mask its kv tiles, the one with most work first."""
    return _lists(compiled, compiled.transposed, _order_by_mask(compiled.transposed))


@once_a_mask
def share_lists(compiled: CompiledMask) -> tuple[torch.Tensor | int, ...]:
    """The tiles of query tiles, and the full tiles before each run: so a share finds where it begins."""
    arrays = compiled.descriptor.arrays()
    lengths = arrays["run_stop"] - arrays["run_start"]
    first = lengths.new_zeros(len(lengths) + 1)
    first[1:] = torch.cumsum(lengths, 0)
    return _lists(compiled, compiled.descriptor, first)


def _lists(compiled: CompiledMask, descriptor: Descriptor, own: torch.Tensor) -> tuple[torch.Tensor | int, ...]:
    """As the kernels take them: the descriptor's arrays, ``own`` in place of its order, and which mask is whose.

    The latter are mask_index ``(batch or 1, heads or 1)`` and its strides, 0 along an axis that is shared.
    """
    arrays = [array for name, array in descriptor.arrays().items() if name != "order"]
    index = torch.from_numpy(compiled.mask_index).to(descriptor.order.device)
    batch, heads = index.shape
    return *arrays, own, index, heads if batch > 1 else 0, 1 if heads > 1 else 0


def _order_by_mask(descriptor: Descriptor) -> torch.Tensor:
    """int32 ``(masks, tiles)``: for each mask its own tile rows, in the descriptor's order."""
    tiles = descriptor.order.shape[0] // descriptor.masks
    own = torch.argsort(descriptor.order // tiles, stable=True)
    return (descriptor.order[own] % tiles).reshape(descriptor.masks, tiles).contiguous()
