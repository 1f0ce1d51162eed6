"""The public operator: what it means, and every check that needs no device.

``attention`` looks at its arguments and calls one operator that is registered with ``torch.library``
(:mod:`cmask_lab.kernels.operator`); a mask travels there as a number (:mod:`cmask_lab.kernels.held_masks`). A model
under ``torch.compile`` is so one graph for all lengths and devices, and has no part of a mask compiled in.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import torch
from torch.autograd import forward_ad

from cmask_lab.compiler.compile import CompiledMask
from cmask_lab.kernels import held_masks, operator
from cmask_lab.kernels.registry import ACTIVATIONS, Choice, Options, names
from cmask_lab.masks.mask import Mask, how_to_make_a_mask

functorch: Any = torch._C._functorch  # type: ignore[attr-defined]
"""Which transforms of ``torch.func`` are under way; PyTorch has no public way to ask."""

FLOAT32 = torch.finfo(torch.float32)
"""Kernels compute in float32: a factor beyond its range would be infinite or 0 there."""

CAST_BY_AUTOCAST = (torch.float16, torch.bfloat16, torch.float32)
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

    Softmax: ``out = softmax(scale · q kᵀ) v`` over the visible keys. SiLU (HSTU):
    ``out = silu(scale · q kᵀ) v / normalizer``, summed over the visible keys. A query that sees nothing gives 0, its
    log-sum-exp is -inf, its gradients are 0.

    Args:
        q: ``(B, H, Sq, D)``; float16, bfloat16, float32, or float64 (CPU and reference backends). Any strides. Inside
            ``torch.autocast`` q, k and v are cast to its dtype, as for ``scaled_dot_product_attention``.
        k: ``(B, Hkv, Skv, D)``; ``H`` is a multiple of ``Hkv``, query heads ``g·H/Hkv …`` share kv head ``g``.
        v: ``(B, Hkv, Skv, Dv)``.
        mask: a mask, compiled here for ``Sq`` and ``Skv`` and remembered, or a mask compiled for these lengths.
            Positions are absolute and a mask given here starts at query 0; for queries that start later (decoding),
            give ``cm.compile(mask, Sq, Skv, q_start=…)``. A mask that differs by batch entry or head must have ``B`` or
            ``H`` entries, or one. A token order of the compiled mask is applied here: q, k, v and out stay in natural
            order. Under ``torch.compile`` make the mask outside the compiled function and give it as an argument: the
            graph then serves other masks too, once it was traced a second time. A mask of another class (a window in
            place of a union) is traced once more; compiled masks are all of one class.
        scale: factor on the products; ``1 / sqrt(D)`` if not given.
        activation: "softmax" or "silu".
        return_lse: also return the log-sum-exp: natural logarithm, float32 (float64 for float64 inputs) ``(B, H, Sq)``,
            differentiable. Softmax only.
        backend: "auto", or one of ``cmask_lab.kernels.registry.names()``.
        softcap: scores become ``softcap · tanh(score / softcap)``.
        sinks: ``(H,)``, for every head one more logit in the sum of each row, without a value; differentiable.
            -inf is no sink. Softmax only.
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
    q, k, v = _autocast(q, k, v)
    factors = _checked(q, k, v, backend, scale, activation, return_lse, softcap, sinks, normalizer)
    out, lse = torch.ops.cmask_lab.attention.default(
        q, k, v, sinks, _number(mask), backend, activation, *factors, _needs_grad(q, k, v, sinks), bool(deterministic)
    )
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
    named |= options
    q, k, v = _autocast(q, k, v)
    activation, sinks, deterministic = named["activation"], named["sinks"], bool(named.pop("deterministic"))
    scale, softcap, normalizer = _checked(q, k, v, backend, **named)
    compiled = held_masks.held(_number(mask)).compiled(q.shape[2], k.shape[2])
    checked = Options(scale, activation, softcap, sinks, normalizer, deterministic)
    return operator.choose_backend(q, k, v, compiled, checked, backend, _needs_grad(q, k, v, sinks))


def _autocast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors in the dtype that autocast asks for where they are; what is no float32, float16 or bfloat16 stays."""
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        return tensors
    kind = tensors[0].device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(tensor.to(dtype) if tensor.dtype in CAST_BY_AUTOCAST else tensor for tensor in tensors)


def _needs_grad(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None) -> bool:
    wanted = q.requires_grad or k.requires_grad or v.requires_grad or (sinks is not None and sinks.requires_grad)
    return wanted and torch.is_grad_enabled()


def _number(mask: Mask | CompiledMask) -> int:
    """The number under which the operator finds the mask; while a graph is traced, an attribute like any other."""
    if not isinstance(mask, (Mask, CompiledMask)):
        raise TypeError(f"attention: mask is {type(mask).__name__}; {how_to_make_a_mask(mask)}")
    return mask.number


def _checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    backend: str,
    scale: float | None,
    activation: str,
    return_lse: bool,
    softcap: float | None,
    sinks: torch.Tensor | None,
    normalizer: float | None,
) -> tuple[float, float, float]:
    """scale, softcap (0.0: none) and normalizer (1.0: none); an error for whatever does not fit."""
    _check_tensors(q, k, v)
    if not isinstance(backend, str):
        raise TypeError(f"attention: backend is {backend!r}; give 'auto' or one of {', '.join(map(repr, names()))}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"attention: activation is {activation!r}; give one of {', '.join(map(repr, ACTIVATIONS))}")
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else _finite("scale", scale)
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
    _check_derivatives(q, k, v, sinks)
    return scale, cap, divisor


def _check_derivatives(*tensors: torch.Tensor | None) -> None:
    """Refuse what there is no rule for: an operator without one drops tangents silently, the derivative would be 0."""
    tracing = torch.compiler.is_dynamo_compiling()
    if forward_ad._current_level >= 0 and (
        tracing or any(t is not None and forward_ad.unpack_dual(t).tangent is not None for t in tensors)
    ):
        raise NotImplementedError(
            "attention: q, k, v or sinks carry a tangent (jvp, forward mode), for which there is no rule; take "
            "derivatives backward: torch.autograd.grad or backward()"
        )
    if tracing or functorch.peek_interpreter_stack() is None:
        return
    nested = any(level.key() == functorch.TransformType.Grad for level in functorch.get_interpreter_stack() or ())
    if nested and any(t is not None and functorch.is_functorch_wrapped_tensor(t) for t in tensors):
        raise NotImplementedError(
            "attention: torch.func.grad, vjp and what is made of them need a rule that PyTorch's registered operators "
            "can't have; take derivatives with torch.autograd.grad or backward()"
        )


def _check_tensors(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"attention: {name} is {type(tensor).__name__}; give a torch tensor")
        if tensor.is_nested or tensor.layout != torch.strided:
            layout = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
            raise TypeError(
                f"attention: {name} is a {layout} tensor; give a dense one (sequences of several lengths: one after "
                f"another, with cm.documents(lengths))"
            )
        shape, dtype = tensor.shape, tensor.dtype
        if len(shape) != 4:
            raise ValueError(
                f"attention: {name} has shape {tuple(shape)}; give (batch, heads, positions, head dimension)"
            )
        if dtype not in DTYPES:
            allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
            raise TypeError(f"attention: {name} is {str(dtype).removeprefix('torch.')}; give one of {allowed}")
        if dtype != q.dtype:
            raise TypeError(f"attention: q is {q.dtype} and {name} is {dtype}; give equal dtypes")
        if tensor.device != q.device:
            raise ValueError(f"attention: q is on {q.device} and {name} on {tensor.device}; give tensors of one device")
        if shape[3] == 0:
            raise ValueError(f"attention: {name} has shape {tuple(shape)}; a head dimension is at least 1")
    (q_batch, q_heads, _, q_dim), (k_batch, k_heads, k_len, k_dim), v_shape = q.shape, k.shape, v.shape
    if (k_batch, k_heads, k_len) != (v_shape[0], v_shape[1], v_shape[2]):
        raise ValueError(
            f"attention: k has shape {tuple(k.shape)} and v {tuple(v_shape)}; batch, heads and positions must agree"
        )
    if q_batch != k_batch:
        raise ValueError(f"attention: q has {q_batch} batch entries, k and v have {k_batch}; give equal batch sizes")
    if q_dim != k_dim:
        raise ValueError(f"attention: q has head dimension {q_dim} and k {k_dim}; they must be equal")
    if k_heads == 0 or q_heads % k_heads:
        raise ValueError(
            f"attention: q has {q_heads} heads, k and v have {k_heads}; the first must be a multiple of the second"
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
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or (positive and number <= 0):
        raise ValueError(f"attention: {name} is {number}; give a finite{' positive' if positive else ''} number")
    if abs(number) > FLOAT32.max or (positive and number < FLOAT32.tiny):
        least = f" from {FLOAT32.tiny}" if positive else ""
        raise ValueError(f"attention: {name} is {number}; give a number{least} up to {FLOAT32.max}, as float32 holds")
    return number
