"""Softmax attention of one tile row after another with PyTorch's fused CPU kernel, which holds no scores.

A row of tiles is one call: its query positions against all keys that it sees, with a mask only if some tile is partial.
The fused kernel knows neither softcap nor other activations, needs equal head dimensions, and has no gradient for the
log-sum-exp; :mod:`cmask_lab.kernels.cpu` does those itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from cmask_lab.kernels.cpu_rows import TileRow, add_to_keys, hide, joined

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: Sequence[TileRow], patterns: np.ndarray, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """out ``(units, lanes, Sq, D)`` and lse ``(units, lanes, Sq)``; 0 and -inf in tile rows that see nothing.

    A single query that sees nothing, in a tile row that sees something, gets 0 and 0: the caller knows which those are.

    Args:
        q: ``(units, lanes, Sq, D)``: the query heads of each kv head.
        k, v: ``(units, Skv, D)``, of any float dtype.
        rows: the tile rows that see anything.
        patterns: see :func:`cmask_lab.kernels.cpu_rows.pattern_words`.
        scale: factor on the products.
    """
    q, k, v = _readable(q), _readable(k), _readable(v)
    out, lse = q.new_zeros(q.shape), q.new_full(q.shape[:3], float("-inf"))
    for row in rows:
        own = slice(row.first, row.last)
        own_k, own_v = (_for_lanes(joined(tensor, row).to(q.dtype), q) for tensor in (k, v))
        mask = _mask(row, patterns, q)
        # The fused kernel adds the mask to the scores; what is no number would stay none where it is hidden.
        if mask is not None and not bool(torch.isfinite(own_k.sum())):
            found = _forward_of_hidden_nans(q[:, :, own], own_k, own_v, mask, scale)
        else:
            found = _forward(q[:, :, own], own_k, own_v, attn_mask=mask, scale=scale)
        out[:, :, own], lse[:, :, own] = found
    return out, lse


def _forward_of_hidden_nans(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same for keys that hold infinities or NaN (memory that nobody has written yet, say)."""
    scores = (q @ k.mT * scale).masked_fill_(mask == float("-inf"), float("-inf"))
    lse = scores.logsumexp(-1)
    top = lse.masked_fill(lse == float("-inf"), 0.0)
    return torch.exp(scores - top[..., None]) @ v, top


def backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    rows: Sequence[TileRow],
    patterns: np.ndarray,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, k and v, in their shapes; arguments as for :func:`forward`, and lse finite everywhere."""
    grad_out, q, k, v, out = (_readable(tensor) for tensor in (grad_out, q, k, v, out))
    grad_q, grad_k, grad_v = (tensor.new_zeros(tensor.shape) for tensor in (q, k, v))
    for row in rows:
        own = slice(row.first, row.last)
        own_k, own_v = (_for_lanes(joined(tensor, row), q) for tensor in (k, v))
        grad_q[:, :, own], row_grad_k, row_grad_v = _backward(
            grad_out[:, :, own],
            q[:, :, own],
            own_k,
            own_v,
            out[:, :, own],
            lse[:, :, own],
            0.0,
            False,
            attn_mask=_mask(row, patterns, q),
            scale=scale,
        )
        add_to_keys(grad_k, row, row_grad_k.sum(1))
        add_to_keys(grad_v, row, row_grad_v.sum(1))
    return grad_q, grad_k, grad_v


def _for_lanes(keys: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Keys or values ``(units, keys, D)`` for all query heads that share them, without a copy."""
    return keys[:, None].expand(-1, q.shape[1], -1, -1)


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor; a copy if the elements of a vector don't lie side by side, as the fused kernel takes for granted."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _mask(row: TileRow, patterns: np.ndarray, q: torch.Tensor) -> torch.Tensor | None:
    """What is added to the scores of a tile row, ``(1, 1, queries, keys)``; None if all tiles are full."""
    if not row.partial:
        return None
    added = q.new_zeros(1, 1, row.last - row.first, row.keys)
    hide(added, row, slice(row.first, row.last), patterns, float("-inf"))
    return added
