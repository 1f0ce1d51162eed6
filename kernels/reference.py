"""The dense oracle: the definition of masked attention in plain PyTorch, for tests and as the last resort.

Memory goes with ``q_len × kv_len``. float16 and bfloat16 are computed in float32, float64 in float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from cmask_lab.kernels.registry import Options, Problem
from cmask_lab.kernels.sinks import sink_gradient

if TYPE_CHECKING:
    from cmask_lab.compiler.compile import CompiledMask


def dense_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor, options: Options
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """out and lse by their definition, in the dtype of the inputs; differentiable by autograd, also twice.

    Args:
        q: ``(B, H, Sq, D)``.
        k, v: ``(B, Hkv, Skv, D)`` and ``(B, Hkv, Skv, Dv)``.
        visible: bool, broadcastable to ``(B, H, Sq, Skv)``.
        options: of the call.

    >>> x = torch.ones(1, 1, 2, 4)
    >>> out, lse = dense_attention(x, x, x, torch.tensor([[True, True], [False, False]]), Options(scale=0.5))
    >>> out[0, 0, :, 0].tolist(), lse[0, 0, 1].item()
    ([1.0, 0.0], -inf)
    """
    weights, lse, _ = _weights(q, k, visible, options)
    return weights @ _per_query_head(v, q), lse


def visible_pairs(compiled: CompiledMask, device: torch.device) -> torch.Tensor:
    """bool ``(batch or 1, heads or 1, q_len, kv_len)``: the dense mask, from the interval tables."""
    dense = torch.stack([torch.from_numpy(table.to_dense()) for table in compiled.interval_tables])
    return dense[torch.from_numpy(compiled.mask_index).long()].to(device)


class Reference:
    """The backend around :func:`dense_attention`, with its gradients written out."""

    name = "reference"

    def unsupported(self, problem: Problem) -> str | None:
        """None: it runs everything that memory holds."""
        return None

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, compiled: CompiledMask, options: Options
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """out and lse; see :class:`cmask_lab.kernels.registry.Backend`."""
        dtype = q.dtype
        q, k, v = _accurate(q, k, v)
        out, lse = dense_attention(q, k, v, visible_pairs(compiled, q.device), options)
        return out.to(dtype), lse

    def backward(
        self,
        grad_out: torch.Tensor,
        grad_lse: torch.Tensor | None,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor | None,
        compiled: CompiledMask,
        options: Options,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Gradients of q, k, v and sinks; see :class:`cmask_lab.kernels.registry.Backend`."""
        dtypes = (q.dtype, k.dtype, v.dtype)
        q, k, v, grad_out = _accurate(q, k, v, grad_out)
        visible = visible_pairs(compiled, q.device)
        weights, lse, slope = _weights(q, k, visible, options)
        grad_weights = grad_out @ _per_query_head(v, q).mT
        grad_sinks = None
        if options.activation == "softmax":
            delta = (weights * grad_weights).sum(-1)
            if grad_lse is not None:
                delta = delta - torch.where(lse == float("-inf"), 0.0, grad_lse)
            grad_scores = weights * (grad_weights - delta[..., None]) * slope
            if options.sinks is not None:
                assert lse is not None, "a softmax has a log-sum-exp"
                grad_sinks = sink_gradient(options.sinks, lse, delta)
        else:
            grad_scores = grad_weights * slope
        grad_q = options.scale * (grad_scores @ _per_query_head(k, q))
        grad_k = options.scale * _sum_of_group(grad_scores.mT @ q, k)
        grad_v = _sum_of_group(weights.mT @ grad_out, v)
        return grad_q.to(dtypes[0]), grad_k.to(dtypes[1]), grad_v.to(dtypes[2]), grad_sinks


BACKEND = Reference()


def _weights(
    q: torch.Tensor, k: torch.Tensor, visible: torch.Tensor, options: Options
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | float]:
    """Weights ``(B, H, Sq, Skv)``, lse, and the slope: what the gradient of the scores still has to be multiplied with.

    The slope is the derivative of the softcap, and for "silu" also that of the activation (0 where nothing is visible).
    """
    scores = options.scale * (q @ _per_query_head(k, q).mT)
    slope: torch.Tensor | float = 1.0
    if options.softcap:
        saturation = torch.tanh(scores / options.softcap)
        scores = options.softcap * saturation
        slope = 1 - saturation**2
    if options.activation == "silu":
        gate = torch.sigmoid(scores)
        slope = torch.where(visible, slope * gate * (1 + scores * (1 - gate)) / options.normalizer, 0.0)
        return torch.where(visible, scores * gate / options.normalizer, 0.0), None, slope
    scores = scores.masked_fill(~visible, float("-inf"))
    sees = visible.any(-1).expand(scores.shape[:-1])
    # A row without any visible key gets scores of 0 in place of -inf: no NaN in values or derivatives.
    lse = torch.where(sees, torch.logsumexp(torch.where(sees[..., None], scores, 0.0), -1), float("-inf"))
    if options.sinks is not None:
        lse = torch.logaddexp(lse, options.sinks.to(q.dtype)[None, :, None])
        sees = torch.ones_like(sees)
    weights = torch.exp(scores - torch.where(sees, lse, 0.0)[..., None])
    return weights, lse, slope


def _accurate(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(tensor if tensor.dtype == torch.float64 else tensor.float() for tensor in tensors)


def _per_query_head(tensor: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Keys or values with every head repeated for the query heads that share it."""
    return tensor.repeat_interleave(q.shape[1] // tensor.shape[1], dim=1) if tensor.shape[1] != q.shape[1] else tensor


def _sum_of_group(gradient: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Gradients of a query head's keys or values, added up over the query heads that share them."""
    kv_heads = tensor.shape[1]
    return gradient.unflatten(1, (kv_heads, -1)).sum(2) if gradient.shape[1] != kv_heads else gradient
