"""``torch.ops.cmask_lab.attention`` and its backward, registered so that ``torch.compile`` sees one node.

Everything that depends on lengths and devices happens here at run time: the mask is looked up and compiled, the backend
chosen, the tokens brought into the mask's order. Nothing is launched before all of that has succeeded.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any, cast

import torch
from cmask_lab.kernels import held_masks, registry
from cmask_lab.kernels.device import current
from cmask_lab.kernels.registry import Choice, Options, Problem
from cmask_lab.kernels.token_order import in_natural_order, in_order

from cmask_lab.compiler.compile import CompiledMask
from cmask_lab.masks.numbered import numbered

log = logging.getLogger("cmask_lab")

NUMBERS = (
    "SymInt mask, str backend, str activation, float scale, float softcap, float normalizer, "
    "bool needs_grad, bool deterministic"
)

LOWEST_SINK = -1e30
"""Stands for a sink of -inf (a head without one) where backends compute: -inf - -inf would be NaN in an empty row."""

library = torch.library.Library("cmask_lab", "DEF")
library.define(f"attention(Tensor q, Tensor k, Tensor v, Tensor? sinks, {NUMBERS}) -> (Tensor, Tensor)")
library.define(
    "attention_backward(Tensor grad_out, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"Tensor? sinks, {NUMBERS}) -> (Tensor, Tensor, Tensor, Tensor)"
)


def _attention(q, k, v, sinks, mask, backend, activation, scale, softcap, normalizer, needs_grad, deterministic):
    compiled = held_masks.held(mask).compiled(q.shape[2], k.shape[2])
    options = Options(scale, activation, softcap, _finite_sinks(sinks), normalizer, deterministic)
    choice = choose_backend(q, k, v, compiled, options, backend, needs_grad)
    on_device = compiled.to(q.device)
    with current(q.device):
        q, k, v = in_order((q, k, v), on_device)
        out, lse = registry.load(choice.name).forward(q, k, v, on_device, options)
        if sinks is not None and lse is not None:
            lse = torch.where(lse <= LOWEST_SINK / 2, float("-inf"), lse)
        if lse is None:
            return *in_natural_order((out,), on_device), _no_statistics(q)
        return tuple(in_natural_order((out, lse), on_device))


def _attention_backward(
    grad_out, grad_lse, q, k, v, out, lse, sinks, mask, backend, activation, scale, softcap, normalizer, needs_grad,
    deterministic
):  # fmt: skip
    compiled = held_masks.held(mask).compiled(q.shape[2], k.shape[2])
    options = Options(scale, activation, softcap, _finite_sinks(sinks), normalizer, deterministic)
    choice = choose_backend(q, k, v, compiled, options, backend, needs_grad)
    with current(q.device):
        return _gradients_on_device(grad_out, grad_lse, q, k, v, out, lse, sinks, compiled, choice, options)


def _gradients_on_device(grad_out, grad_lse, q, k, v, out, lse, sinks, compiled, choice, options):
    on_device, activation = compiled.to(q.device), options.activation
    lse, grad_lse = (None, None) if activation == "silu" else (lse, grad_lse)
    if sinks is not None and lse is not None:
        grad_lse = None if grad_lse is None else torch.where(lse == float("-inf"), 0.0, grad_lse)
        lse = torch.maximum(lse, cast(torch.Tensor, options.sinks).to(lse.dtype)[None, :, None])  # no row has less
    grad_out, q, k, v, out = in_order((grad_out, q, k, v, out), on_device)
    lse, grad_lse = (None if tensor is None else in_order((tensor,), on_device)[0] for tensor in (lse, grad_lse))
    backend_module = registry.load(choice.name)
    # Only the reference is made of operations that have derivatives themselves.
    twice = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (grad_out, q, k, v, sinks))
    with torch.set_grad_enabled(twice and choice.name == "reference"):
        *gradients, grad_sinks = backend_module.backward(grad_out, grad_lse, q, k, v, out, lse, on_device, options)
    if twice and choice.name != "reference":
        made = [each for each in (*gradients, grad_sinks) if each is not None]
        inputs = [each for each in (grad_out, q, k, v, sinks) if each is not None]
        made = _WithoutDerivatives.apply(choice.name, len(made), *made, *inputs)
        gradients, grad_sinks = list(made[:3]), made[3] if len(made) > 3 else None
    grad_q, grad_k, grad_v = in_natural_order(cast(list[torch.Tensor], gradients), on_device)
    if sinks is None:
        return grad_q, grad_k, grad_v, _no_statistics(q)
    assert grad_sinks is not None, f"the {choice.name} backend gave no gradient of sinks"
    return grad_q, grad_k, grad_v, grad_sinks.to(sinks.dtype)


library.impl("attention", _attention, "CompositeExplicitAutograd")
library.impl("attention_backward", _attention_backward, "CompositeExplicitAutograd")
# What it does is recorded as it is done: second derivatives, or the error of those that there are not.
library.impl("attention_backward", torch.library.fallthrough_kernel, "Autograd")


@torch.library.register_fake("cmask_lab::attention")
def _(q, k, v, sinks, mask, backend, activation, *numbers):
    out = q.new_empty(*q.shape[:3], v.shape[3])
    return out, _no_statistics(q) if activation == "silu" else q.new_empty(q.shape[:3], dtype=statistics_dtype(q.dtype))


@torch.library.register_fake("cmask_lab::attention_backward")
def _(grad_out, grad_lse, q, k, v, out, lse, sinks, *numbers):
    grad_sinks = _no_statistics(q) if sinks is None else sinks.new_empty(sinks.shape)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), grad_sinks


def _save(ctx, inputs, output):
    q, k, v, sinks, mask, *numbers = inputs
    ctx.save_for_backward(q, k, v, sinks, *output)
    ctx.numbers = (mask, *numbers)
    # The caller may drop the mask before backward(). While a graph is traced the number stands for any mask.
    ctx.mask = numbered(mask) if isinstance(mask, int) else None
    ctx.set_materialize_grads(False)


def _gradients(ctx, grad_out, grad_lse):
    q, k, v, sinks, out, lse = ctx.saved_tensors
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    grad_q, grad_k, grad_v, grad_sinks = torch.ops.cmask_lab.attention_backward(
        grad_out, grad_lse, q, k, v, out, lse, sinks, *ctx.numbers
    )
    return grad_q, grad_k, grad_v, None if sinks is None else grad_sinks, *(None for _ in ctx.numbers)


torch.library.register_autograd("cmask_lab::attention", _gradients, setup_context=_save)


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """dtype of the log-sum-exp for inputs of ``dtype``."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def choose_backend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    compiled: CompiledMask,
    options: Options,
    backend: str = "auto",
    needs_grad: bool = False,
) -> Choice:
    """The backend that a call with these tensors gets, with the reasons against the others.

    Raises:
        ValueError: batch or head count and mask don't agree; or the backend that was named can't run the call.
    """
    batch, heads = q.shape[:2]
    for axis, (given, have) in enumerate(zip(compiled.mask_index.shape, (batch, heads), strict=True)):
        if given not in (1, have):
            what = ("batch entries", "heads")[axis]
            raise ValueError(
                f"attention: the mask tells {given} {what} apart, q has {have}; give one mask for each of the {have}, "
                f"or one for all"
            )
    return _choice(
        backend,
        q.device.type,
        registry.device_capability(q.device),
        q.dtype,
        q.shape[3],
        v.shape[3],
        batch,
        heads,
        k.shape[1],
        q.shape[2],
        k.shape[2],
        compiled.tile,
        compiled.masks_count,
        options.activation,
        options.softcap > 0,
        options.sinks is not None,
        needs_grad,
        options.deterministic,
    )


@lru_cache(maxsize=1024)
def _choice(backend: str, *problem: Any) -> Choice:
    """Remembered by plain values: hashing a Problem at every call would take longer than the rest of the operator."""
    choice = registry.choose(Problem(*problem), backend)
    log.debug("attention: backend %s", choice)
    return choice


class _WithoutDerivatives(torch.autograd.Function):
    """Gradients as they are, known to depend on ``inputs``: a derivative of them is an error and not silently 0."""

    @staticmethod
    def forward(ctx, backend, count, *gradients_and_inputs):
        ctx.backend = backend
        return tuple(each.view_as(each) for each in gradients_and_inputs[:count])

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(
            f"attention: backend {ctx.backend!r} has no second derivatives; use backend='reference' (dense) for those"
        )


def _finite_sinks(sinks: torch.Tensor | None) -> torch.Tensor | None:
    """The sinks as backends get them, float32 or float64."""
    if sinks is None:
        return None
    return sinks.to(statistics_dtype(sinks.dtype)).clamp_min(LOWEST_SINK)


def _no_statistics(q: torch.Tensor) -> torch.Tensor:
    """Stands for a tensor that does not exist; an operator can't return None."""
    return q.new_empty(0, dtype=torch.float32)
