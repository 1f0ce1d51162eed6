"""The public operator: what it means, and every check that needs no device.

``attention`` looks at its arguments and calls one operator that is registered with ``torch.library``
(:mod:`cmask_lab.kernels.operator`); a mask travels there as a number (:mod:`cmask_lab.kernels.held_masks`). A model under
``torch.compile`` is so one graph for all lengths and devices, and has no part of a mask compiled in.
"""

from __future__ import annotations

import math
import numbers

import torch

from cmask_lab.compiler.compile import CompiledMask
from cmask_lab.kernels import held_masks, operator
from cmask_lab.kernels.registry import ACTIVATIONS, Choice, Options
from cmask_lab.masks.mask import Mask

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Mask | CompiledMask,
    *,
    scale: float | None = None,
    activation: str = "softmax",
    return_lse: bool = False,
    backend: str = "auto",
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    normalizer: float | None = None,
    deterministic: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of ``q`` over the keys that ``mask`` lets each query see.

    Softmax: ``out = softmax(scale · q kᵀ) v`` over the visible keys. SiLU (HSTU): ``out = silu(scale · q kᵀ) v / normalizer``,
    summed over the visible keys. A query that sees nothing gives 0, its log-sum-exp is -inf, its gradients are 0.

    Args:
        q: ``(B, H, Sq, D)``; float16, bfloat16, float32, or float64 (CPU and reference backends). Any strides.
        k: ``(B, Hkv, Skv, D)``; ``H`` is a multiple of ``Hkv``, query heads ``g·H/Hkv …`` share kv head ``g``.
        v: ``(B, Hkv, Skv, Dv)``.
        mask: a mask, compiled here for ``Sq`` and ``Skv`` and remembered, or a mask compiled for these lengths. Positions are
            absolute and a mask given here starts at query 0; for queries that start later (decoding), give
            ``cm.compile(mask, Sq, Skv, q_start=…)``. A mask that differs by batch entry or head must have ``B`` or ``H``
            entries, or one. A token order of the compiled mask is applied here: q, k, v and out stay in natural order.
        scale: factor on the products; ``1 / sqrt(D)`` if not given.
        activation: "softmax" or "silu".
        return_lse: also return the log-sum-exp: natural logarithm, float32 (float64 for float64 inputs) ``(B, H, Sq)``,
            differentiable. Softmax only.
        backend: "auto", or one of ``cmask_lab.kernels.registry.names()``.
        softcap: scores become ``softcap · tanh(score / softcap)``.
        sinks: ``(H,)``, for every head one more logit in the sum of each row, without a value; differentiable. Softmax only.
        normalizer: the divisor of "silu", which needs it (HSTU: the longest sequence).
        deterministic: equal results bit for bit from run to run, gradients included.

    Returns:
        ``(B, H, Sq, Dv)`` in the dtype of q; with ``return_lse`` a tuple of that and the log-sum-exp.

    Raises:
        TypeError, ValueError: anything that does not fit, before any kernel is launched.

    >>> import torch, cmask_lab as cm
    >>> q = k = v = torch.ones(1, 2, 5, 16)
    >>> out, lse = cm.attention(q, k, v, cm.causal(), scale=0.0, return_lse=True)
    >>> out.shape, lse[0, 0].exp().round().tolist()
    (torch.Size([1, 2, 5, 16]), [1.0, 2.0, 3.0, 4.0, 5.0])
    """
    options = _checked(q, k, v, scale, activation, return_lse, softcap, sinks, normalizer, deterministic)
    needs_grad = torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or (sinks is not None and sinks.requires_grad)
    )
    out, lse = torch.ops.cmask_lab.attention(
        q, k, v, sinks, _number(mask), backend, activation, options.scale, options.softcap, options.normalizer, needs_grad,
        deterministic,
    )  # fmt: skip
    return (out, lse) if return_lse else out


def choose_backend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Mask | CompiledMask,
    *,
    backend: str = "auto",
    **options: object,
) -> Choice:
    """Which backend :func:`attention` takes for these arguments, and why not the ones before it; runs nothing.

    Args:
        q, k, v, mask, backend: as for :func:`attention`.
        options: its other arguments.

    >>> import torch, cmask_lab as cm
    >>> q = torch.zeros(1, 1, 4, 16)
    >>> choose_backend(q, q, q, cm.causal()).name
    'cpu'
    """
    named = {"scale": None, "activation": "softmax", "return_lse": False, "softcap": None, "sinks": None}
    named |= {"normalizer": None, "deterministic": False}
    unknown = options.keys() - named.keys()
    if unknown:
        raise TypeError(f"attention: {sorted(unknown)} are no arguments; there are {sorted(named)}")
    checked = _checked(q, k, v, **(named | options))  # type: ignore[arg-type]
    compiled = held_masks.held(_number(mask)).compiled(q.shape[2], k.shape[2])
    needs_grad = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (q, k, v, checked.sinks)
    )
    return operator.choose_backend(q, k, v, compiled, checked, backend, needs_grad)


@torch._dynamo.assume_constant_result
def _number(mask: Mask | CompiledMask) -> int:
    """The number under which the operator finds the mask. While a graph is traced, a constant guarded by the mask's identity."""
    if not isinstance(mask, (Mask, CompiledMask)):
        hint = "; turn it into a mask with cm.from_dense(array)" if hasattr(mask, "shape") else ", such as cm.causal()"
        raise TypeError(f"attention: mask is {type(mask).__name__}; give a cmask_lab mask, compiled or not{hint}")
    return held_masks.hold(mask)


def _checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None,
    activation: str,
    return_lse: bool,
    softcap: float | None,
    sinks: torch.Tensor | None,
    normalizer: float | None,
    deterministic: bool,
) -> Options:
    """The numbers of the call, complete; an error for whatever does not fit."""
    _check_tensors(q, k, v)
    if activation not in ACTIVATIONS:
        raise ValueError(f"attention: activation is {activation!r}; give one of {', '.join(map(repr, ACTIVATIONS))}")
    if scale is None:
        scale = 1 / math.sqrt(q.shape[3])
    else:
        scale = _finite("scale", scale)
    cap = 0.0 if softcap is None else _finite("softcap", softcap, positive=True)
    if activation == "softmax":
        if normalizer is not None:
            raise ValueError(f"attention: normalizer is {normalizer} but softmax has none; it is for activation='silu'")
        divisor = 1.0
    else:
        if normalizer is None:
            raise ValueError(
                "attention: activation 'silu' needs normalizer, the divisor of the sum (HSTU: the longest sequence)"
            )
        divisor = _finite("normalizer", normalizer, positive=True)
        if return_lse:
            raise ValueError("attention: 'silu' has no log-sum-exp; leave return_lse out")
        if sinks is not None:
            raise ValueError("attention: sinks are logits of a softmax; 'silu' takes none")
    if sinks is not None:
        _check_sinks(sinks, q)
    return Options(scale, activation, cap, sinks, divisor, bool(deterministic))


def _check_tensors(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"attention: {name} is {type(tensor).__name__}; give a torch tensor")
        if tensor.dim() != 4:
            raise ValueError(
                f"attention: {name} has shape {tuple(tensor.shape)}; give (batch, heads, positions, head dimension)"
            )
        if tensor.dtype not in DTYPES:
            allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
            raise TypeError(f"attention: {name} is {str(tensor.dtype).removeprefix('torch.')}; give one of {allowed}")
        if tensor.dtype != q.dtype:
            raise TypeError(f"attention: q is {q.dtype} and {name} is {tensor.dtype}; give equal dtypes")
        if tensor.device != q.device:
            raise ValueError(f"attention: q is on {q.device} and {name} on {tensor.device}; give tensors of one device")
        if tensor.shape[3] == 0:
            raise ValueError(f"attention: {name} has shape {tuple(tensor.shape)}; a head dimension is at least 1")
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"attention: k has shape {tuple(k.shape)} and v {tuple(v.shape)}; batch, heads and positions must agree"
        )
    if q.shape[0] != k.shape[0]:
        raise ValueError(
            f"attention: q has {q.shape[0]} batch entries, k and v have {k.shape[0]}; give equal batch sizes"
        )
    if q.shape[3] != k.shape[3]:
        raise ValueError(f"attention: q has head dimension {q.shape[3]} and k {k.shape[3]}; they must be equal")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"attention: q has {q.shape[1]} heads, k and v have {k.shape[1]}; the first must be a multiple of the second"
        )


def _check_sinks(sinks: torch.Tensor, q: torch.Tensor) -> None:
    if not isinstance(sinks, torch.Tensor):
        raise TypeError(f"attention: sinks are {type(sinks).__name__}; give a torch tensor of shape ({q.shape[1]},)")
    if sinks.shape != (q.shape[1],):
        raise ValueError(f"attention: sinks have shape {tuple(sinks.shape)}; give one logit a head, ({q.shape[1]},)")
    if sinks.dtype not in DTYPES:
        raise TypeError(f"attention: sinks are {str(sinks.dtype).removeprefix('torch.')}; give a float tensor")
    if sinks.device != q.device:
        raise ValueError(f"attention: q is on {q.device} and sinks on {sinks.device}; give tensors of one device")


def _finite(name: str, value: float, positive: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"attention: {name} is {value!r}; give a number")
    number = float(value)
    if not math.isfinite(number) or (positive and number <= 0):
        raise ValueError(f"attention: {name} is {number}; give a finite{' positive' if positive else ''} number")
    return number
