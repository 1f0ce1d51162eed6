"""Tensors into the token order of a compiled mask and back: what a call in another order pays beside its kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from cmask_lab.kernels.mask_lists import once_a_mask

from cmask_lab.compiler.compile import CompiledMask


def in_order(tensors: Sequence[torch.Tensor], compiled: CompiledMask) -> list[torch.Tensor]:
    """Tensors ``(B, H, positions, …)`` with their positions in the order in which the mask was compiled."""
    if compiled.token_order is None:
        return list(tensors)
    return _taken(tensors, _order(compiled, tensors[0].device)[0])


def in_natural_order(tensors: Sequence[torch.Tensor], compiled: CompiledMask) -> list[torch.Tensor]:
    """The way back: tensors in the mask's order with their positions as the caller counts them."""
    if compiled.token_order is None:
        return list(tensors)
    return _taken(tensors, _order(compiled, tensors[0].device)[1])


def _taken(tensors: Sequence[torch.Tensor], order: torch.Tensor) -> list[torch.Tensor]:
    """``tensor.index_select(2, order)`` of each; rows on a GPU all in one launch."""
    by_rows = [n for n, tensor in enumerate(tensors) if _moves_by_rows(tensor)]
    moved: dict[int, torch.Tensor] = {}
    if by_rows:
        from cmask_lab.kernels.row_gather import gather_rows  # needs Triton, which a machine without a GPU may lack

        moved = dict(zip(by_rows, gather_rows([tensors[n] for n in by_rows], order), strict=True))
    return [moved[n] if n in moved else tensor.index_select(2, order) for n, tensor in enumerate(tensors)]


def _moves_by_rows(tensor: torch.Tensor) -> bool:
    recorded = tensor.requires_grad and torch.is_grad_enabled()  # the kernel has no derivative
    return tensor.is_cuda and tensor.ndim == 4 and tensor.stride(3) == 1 and not recorded


def _order(compiled: CompiledMask, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The token order and its inverse, int32 on a device."""
    known = _orders(compiled)
    if device not in known:
        order = torch.from_numpy(compiled.token_order).to(device)
        known[device] = order, torch.argsort(order).int()
    return known[device]


@once_a_mask
def _orders(_: CompiledMask) -> dict[torch.device, tuple[torch.Tensor, torch.Tensor]]:
    """Those made so far, by device."""
    return {}
