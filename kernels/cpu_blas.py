"""Attention of one part with matrix products, piece by piece: what the fused kernel of PyTorch doesn't know.

SiLU, softcap, a gradient of the log-sum-exp, values of another head dimension. Queries come multiplied with the scale.
"""

from __future__ import annotations

import numpy as np
import torch
from cmask_lab.kernels.cpu_parts import Part, hide_in_piece, into_piece, of_piece
from cmask_lab.kernels.cpu_rows import add_to_keys
from cmask_lab.kernels.registry import Options


def forward(
    part: Part,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    patterns: np.ndarray,
    options: Options,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out ``(units, lanes, Sq, Dv)`` and lse ``(units, lanes, Sq)``, which is -inf or the sink where nothing is seen.

    Args:
        q: ``(units, lanes, Sq, D)``: the query heads of each kv head.
        k, v: ``(units, Skv, D)`` and ``(units, Skv, Dv)``.
        sinks: ``(units, lanes, Sq)`` or None.
        patterns: see :func:`cmask_lab.kernels.cpu_rows.pattern_words`.
    """
    out = q.new_zeros(*q.shape[:3], v.shape[2])
    lse = q.new_full(q.shape[:3], float("-inf")) if sinks is None else sinks.clone()
    sink = None if sinks is None else sinks[..., None]
    for piece in part.pieces(k, v):
        weights = _scores(of_piece(q, piece), piece.k, options)
        if options.activation == "silu":
            weights.mul_(torch.sigmoid(weights)).div_(options.normalizer)
            hide_in_piece(weights, piece, patterns, 0.0)
            into_piece(out, piece, weights @ piece.v)
            continue
        hide_in_piece(weights, piece, patterns, float("-inf"))
        top = weights.amax(-1, keepdim=True)
        if sink is not None:
            top = torch.maximum(top, of_piece(sink, piece))
        # A row that sees nothing: exp(-inf - 0) is 0, where -inf - -inf would be NaN.
        top = top.masked_fill_(top == float("-inf"), 0.0)
        weights.sub_(top).exp_()
        total = weights.sum(-1, keepdim=True)
        if sink is not None:
            total += torch.exp(of_piece(sink, piece) - top)
        into_piece(out, piece, (weights @ piece.v).div_(torch.where(total > 0, total, 1.0)))
        into_piece(lse, piece, top + torch.log(total))
    return out, lse


def backward(
    part: Part,
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    statistics: torch.Tensor | None,
    patterns: np.ndarray,
    options: Options,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q (before the scale), k and v, in their shapes; arguments as for :func:`forward`.

    Args:
        statistics: ``(units, lanes, Sq, 2)``: the lse, finite everywhere, and delta; None for SiLU.
    """
    into_q, into_k, into_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for piece in part.pieces(k, v):
        own_q, grad = of_piece(q, piece), of_piece(grad_out, piece)
        weights = _scores(own_q, piece.k, options)
        slope = 1 - (weights / options.softcap) ** 2 if options.softcap else None
        grad_scores = grad @ piece.v.mT
        if statistics is None:
            gate = torch.sigmoid(weights)
            grad_scores *= gate * (1 + weights * (1 - gate)) / options.normalizer
            weights.mul_(gate).div_(options.normalizer)
            hide_in_piece(weights, piece, patterns, 0.0)
            hide_in_piece(grad_scores, piece, patterns, 0.0)
        else:
            own_lse, own_delta = of_piece(statistics, piece).split(1, -1)
            hide_in_piece(weights, piece, patterns, float("-inf"))
            weights.sub_(own_lse).exp_()
            grad_scores.sub_(own_delta).mul_(weights)
        if slope is not None:
            grad_scores.mul_(slope)
        into_piece(into_q, piece, (grad_scores @ piece.k).mul_(options.scale))
        # q has been multiplied with the scale already.
        add_to_keys(into_k[piece.units], piece.row, grad_scores.mT @ own_q)
        add_to_keys(into_v[piece.units], piece.row, weights.mT @ grad)
    return into_q, into_k, into_v


def _scores(q: torch.Tensor, k: torch.Tensor, options: Options) -> torch.Tensor:
    """``(units, rows, keys)``; q has been multiplied with the scale."""
    scores = q @ k.mT
    return scores.div_(options.softcap).tanh_().mul_(options.softcap) if options.softcap else scores
