"""Every backend against masked attention in float64, within what rounding allows.

The bounds follow the error through the algorithm, cell by cell, with the magnitudes of the data at hand; nothing in
them is tuned to a kernel. With ``eps`` the spacing of the dtype, ``eps32`` that of float32 in which sums are kept, and
``gamma`` = (number of terms) · ``eps32`` for the sums:

- a score is off by at most ``delta`` = (D + 8) · eps32 · scale · |q|·|k| (and 8 · eps32 · cap where a softcap
  recomputes it);
- a softmax weight W by (2 · delta + gamma) · W for that, and eps · W where it is rounded for the next product;
- a derivative of the softcap or of SiLU by its own derivative times delta;
- each product of matrices passes on the errors of one factor times the magnitude of the other, plus eps of both;
- the result is rounded once more: eps of its magnitude. What is smaller than the dtype's least step may become that
  step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from cmask_lab.kernels.reference import dense_attention
from cmask_lab.kernels.registry import Backend, Options

from cmask_lab.compiler.compile import CompiledMask, distinct_masks


@dataclass(frozen=True)
class Case:
    """Shapes and options of one comparison; lengths come from the compiled mask."""

    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    head_dim: int = 16
    value_dim: int = 16
    dtype: torch.dtype = torch.float32
    scale: float | None = None
    activation: str = "softmax"
    softcap: float = 0.0
    sinks: bool = False
    normalizer: float = 1.0
    grad_lse: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Tensors:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    grad_out: torch.Tensor
    grad_lse: torch.Tensor | None
    options: Options


def dense(compiled: CompiledMask) -> torch.Tensor:
    """bool (batch or 1, heads or 1, q_len, kv_len): the mask by its meaning, not by anything that was compiled."""
    masks, index = distinct_masks(compiled.mask)
    each = np.stack([mask.to_dense(compiled.q_len, compiled.kv_len, compiled.q_start) for mask in masks])
    return torch.from_numpy(each[index])


def tensors(compiled: CompiledMask, case: Case, device: str = "cpu") -> Tensors:
    """Random inputs, the same on every device."""
    generator = torch.Generator().manual_seed(case.seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(case.dtype).to(device)

    q = normal(case.batch, case.heads, compiled.q_len, case.head_dim)
    k = normal(case.batch, case.kv_heads, compiled.kv_len, case.head_dim)
    v = normal(case.batch, case.kv_heads, compiled.kv_len, case.value_dim)
    grad_out = normal(case.batch, case.heads, compiled.q_len, case.value_dim)
    grad_lse = normal(*q.shape[:3]).float() if case.grad_lse and case.activation == "softmax" else None
    options = Options(
        scale=case.head_dim**-0.5 if case.scale is None else case.scale,
        activation=case.activation,
        softcap=case.softcap,
        sinks=normal(case.heads).float() if case.sinks else None,
        normalizer=case.normalizer,
    )
    return Tensors(q, k, v, grad_out, grad_lse, options)


def expected(data: Tensors, visible: torch.Tensor) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """float64 results by autograd, and the largest error that each element may have."""
    leaves = {name: getattr(data, name).double().requires_grad_() for name in ("q", "k", "v")}
    options = data.options
    if options.sinks is not None:
        leaves["sinks"] = options.sinks.double().requires_grad_()
        options = replace(options, sinks=leaves["sinks"])
    out, lse = dense_attention(leaves["q"], leaves["k"], leaves["v"], visible, options)
    objective = (out * data.grad_out.double()).sum()
    if data.grad_lse is not None:
        objective = objective + torch.where(lse > float("-inf"), lse * data.grad_lse.double(), 0.0).sum()
    gradients = torch.autograd.grad(objective, list(leaves.values()), materialize_grads=True)
    results = {"out": out.detach()} | ({} if lse is None else {"lse": lse.detach()})
    results |= {f"grad_{name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
    return results, bounds(data, visible, results)


def bounds(data: Tensors, visible: torch.Tensor, results: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The bound of this module's text for every element of every result."""
    options, dtype = data.options, data.q.dtype
    group = data.q.shape[1] // data.k.shape[1]
    q, grad_out = data.q.double(), data.grad_out.double()
    k, v = (tensor.double().repeat_interleave(group, 1) for tensor in (data.k, data.v))
    finfo, eps32 = torch.finfo(dtype), torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    eps, step = finfo.eps, finfo.smallest_normal * finfo.eps
    gamma = (q.shape[-1] + v.shape[-1] + group * q.shape[2] + k.shape[2]) * eps32
    scale, cap = abs(options.scale), options.softcap

    scores = options.scale * (q @ k.mT)
    delta = (q.shape[-1] + 8) * eps32 * scale * (q.abs() @ k.abs().mT)
    slope, slope_error = torch.ones_like(scores), torch.zeros_like(scores)
    if cap:
        saturation = torch.tanh(scores / cap)
        scores, delta = cap * saturation, delta + 8 * eps32 * cap
        slope, slope_error = 1 - saturation**2, 2 * delta / cap + 8 * eps32
    magnitude = grad_out.abs() @ v.abs().mT  # of the gradient of a weight
    if options.activation == "silu":
        gate = torch.sigmoid(scores)
        # |silu'| < 1.1 and |silu''| <= 0.5
        weights = torch.where(visible, scores * gate / options.normalizer, 0.0).abs()
        weights_error = torch.where(visible, (1.1 * delta + 8 * eps32) / options.normalizer, 0.0)
        slope_error = (1.1 * slope_error + 0.5 * delta * slope + 8 * eps32) / options.normalizer
        slope = (slope * gate * (1 + scores * (1 - gate))).abs() / options.normalizer
        grad_scores_error = torch.where(visible, magnitude * (slope_error + (eps + gamma) * slope) + step, 0.0)
    else:
        lse = results["lse"]
        rest = torch.where(lse > float("-inf"), lse, 0.0)[..., None]
        weights = torch.where(visible, torch.exp(scores - rest), 0.0)
        worst = (
            delta.masked_fill(~visible, 0.0).amax(-1, keepdim=True) if delta.shape[-1] else delta.sum(-1, keepdim=True)
        )
        weights_error = (delta + worst + gamma) * weights + torch.where(visible, step, 0.0)
        row = (results["out"].abs() * grad_out.abs()).sum(-1)  # of delta
        if data.grad_lse is not None:
            row = row + data.grad_lse.double().abs()
        magnitude = magnitude + row[..., None]
        grad_scores_error = magnitude * (
            weights_error * slope + weights * slope_error + (eps + gamma) * weights * slope
        )
        grad_scores_error = grad_scores_error + torch.where(visible, step, 0.0)
    carried = weights_error + (eps + gamma) * weights

    def summed(gradient: torch.Tensor) -> torch.Tensor:
        return gradient.unflatten(1, (-1, group)).sum(2)

    limit = {
        "out": carried @ v.abs(),
        "grad_q": scale * (grad_scores_error @ k.abs()),
        "grad_k": scale * summed(grad_scores_error.mT @ q.abs()),
        "grad_v": summed(carried.mT @ grad_out.abs()),
    }
    limit = {name: value + eps * results[name].abs() + step for name, value in limit.items()}
    if options.activation == "softmax":
        limit["lse"] = worst[..., 0] + gamma + 4 * eps32 * torch.nan_to_num(lse, neginf=0.0).abs()
        if options.sinks is not None:
            sink_weight = torch.exp(options.sinks.double()[None, :, None] - lse)
            limit["grad_sinks"] = ((2 * worst[..., 0] + 2 * gamma + eps) * sink_weight * row).sum((0, 2)) + step
    return limit


def compare(actual: dict[str, torch.Tensor], data: Tensors, visible: torch.Tensor) -> None:
    """Assert that every element is within its bound, and that no NaN is anywhere."""
    results, limit = expected(data, visible)
    assert actual.keys() == results.keys()
    _within(actual, results, limit)


def _within(actual: dict[str, torch.Tensor], results: dict[str, torch.Tensor], limit: dict[str, torch.Tensor]) -> None:
    for name, wanted in results.items():
        got = actual[name].double()
        assert got.shape == wanted.shape, f"{name} has shape {tuple(got.shape)}, not {tuple(wanted.shape)}"
        finite = torch.isfinite(wanted)
        assert torch.equal(got[~finite], wanted[~finite]), f"{name} is not -inf where it should be"
        error = torch.where(finite, (got - wanted).abs(), 0.0)
        good = error <= torch.where(finite, limit[name], 0.0)
        if not good.all():
            worst = int(torch.argmax(torch.where(good, 0.0, torch.nan_to_num(error, nan=torch.inf) / limit[name])))
            at = tuple(int(i) for i in np.unravel_index(worst, error.shape))
            raise AssertionError(
                f"{name}: {int((~good).sum())} of {good.numel()} elements out of bounds; at {at} got {got[at]}, "
                f"wanted {wanted[at]} ± {limit[name][at]}"
            )


def run(backend: Backend, compiled: CompiledMask, data: Tensors) -> dict[str, torch.Tensor]:
    """Forward and backward of a backend, by the names of :func:`expected`."""
    on_device = compiled.to(data.q.device)
    out, lse = backend.forward(data.q, data.k, data.v, on_device, data.options)
    gradients = backend.backward(
        data.grad_out, data.grad_lse, data.q, data.k, data.v, out, lse, on_device, data.options
    )
    results = {"out": out, "lse": lse}
    results |= dict(zip(("grad_q", "grad_k", "grad_v", "grad_sinks"), gradients, strict=True))
    return {name: value for name, value in results.items() if value is not None}


def check(backend: Backend, compiled: CompiledMask, case: Case, device: str = "cpu") -> None:
    """Run a case on a backend and compare."""
    data = tensors(compiled, case, device)
    compare(run(backend, compiled, data), data, dense(compiled).to(device))


def check_forward(backends: Iterable[Backend], compiled: CompiledMask, case: Case, device: str = "cpu") -> None:
    """Run the forward pass of a case on each backend and compare."""
    data = tensors(compiled, case, device)
    results, limit = expected(data, dense(compiled).to(device))
    wanted = {name: results[name] for name in ("out", "lse") if name in results}
    for backend in backends:
        out, lse = backend.forward(data.q, data.k, data.v, compiled.to(device), data.options)
        assert (lse is None) == ("lse" not in wanted)
        _within({"out": out} if lse is None else {"out": out, "lse": lse}, wanted, limit)
