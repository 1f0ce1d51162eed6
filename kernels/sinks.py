"""What an attention sink is outside of the tiles: one more logit of every row, without a value."""

from __future__ import annotations

import torch


def nothing_visible(out: torch.Tensor, lse: torch.Tensor | None, sinks: torch.Tensor | None) -> None:
    """Fill the result where there is no key or no query at all: out 0, lse -inf or the sink of the head.

    Args:
        out: ``(B, H, Sq, D)``.
        lse: ``(B, H, Sq)``, None for an activation that has none.
        sinks: ``(H,)`` or None.
    """
    out.zero_()
    if lse is not None:
        lse.fill_(float("-inf"))
        if sinks is not None:
            lse.copy_(sinks[None, :, None].expand_as(lse))


def sink_gradient(sinks: torch.Tensor, lse: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """``(H,)`` in the dtype of ``lse``: the sink's weight times minus delta, summed over batch and queries.

    Args:
        lse, delta: ``(B, H, Sq)``; delta is ``sum(grad_out · out) - grad_lse``.
    """
    weight = torch.exp(sinks.to(lse.dtype)[None, :, None] - lse)
    return -(weight * delta).sum((0, 2))
