"""The oracle against autograd, and against contenders that are wrong on purpose: each must be found out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import cmask_lab as cm
from cmask_lab.bench import oracle
from cmask_lab.bench.oracle import Task

LENGTH, DIM = 96, 16
MASKS = {
    "causal": cm.causal(),
    "documents": cm.documents([40, 30, 26]) & cm.causal(),
    "holes": cm.strided(3) & cm.window(20),
    "empty rows": cm.rect(q=(10, 50), k=(0, 30)),
    "nothing": cm.empty(),
}


def task(mask: cm.Mask, activation: str = "softmax") -> Task:
    compiled = cm.compile(mask, LENGTH)
    normalizer = 7.0 if activation == "silu" else 1.0
    return Task(compiled.interval_tables, compiled.mask_index, DIM**-0.5, activation, normalizer)


def inputs(dtype: torch.dtype, kv_heads: int = 2) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, LENGTH, DIM, generator=generator).to(dtype) for heads in (4, kv_heads, kv_heads))
    return q, k, v


def dense(mask: np.ndarray | torch.Tensor, activation: str = "softmax") -> Callable[..., torch.Tensor]:
    """Attention written out, with a mask ``(S, S)`` for all heads or ``(H, S, S)``."""
    visible = torch.as_tensor(mask)

    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        scores = (q @ k.transpose(-1, -2)) * DIM**-0.5
        if activation == "silu":
            return (torch.nn.functional.silu(scores) * visible / 7.0) @ v
        weights = torch.softmax(scores.masked_fill(~visible, -torch.inf), -1)
        return torch.where(visible.any(-1, keepdim=True), weights, 0).nan_to_num() @ v

    return forward


@pytest.mark.parametrize("activation", ["softmax", "silu"])
@pytest.mark.parametrize("name", MASKS)
def test_the_reference_is_what_autograd_finds_in_float64(name: str, activation: str) -> None:
    about = task(MASKS[name], activation)
    q, k, v = (x.double().requires_grad_() for x in inputs(torch.float32))
    grad = torch.randn(q.shape, generator=torch.Generator().manual_seed(1)).double()
    out = dense(MASKS[name].to_dense(LENGTH), activation)(q, k, v)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), grad)
    right = oracle.reference(about, *inputs(torch.float32), grad.float())
    assert right.kv_heads == ((0, 0), (0, 1), (1, 0), (1, 1))
    errors = oracle.errors_against(right, out.detach(), (dq, dk, dv))
    assert errors.keys() == {"out", "dq", "dk", "dv"}
    # The gradient was rounded to float32 for the reference; nothing else was.
    assert all(error < 1e-6 for error in errors.values()), errors


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("activation", ["softmax", "silu"])
@pytest.mark.parametrize("name", MASKS)
def test_a_plain_implementation_passes(name: str, activation: str, dtype: torch.dtype) -> None:
    about, data = task(MASKS[name], activation), inputs(dtype)
    grad = torch.randn(data[0].shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    right = oracle.reference(about, *data, grad)
    result = oracle.check(about, right, dense(MASKS[name].to_dense(LENGTH), activation), data, grad)
    assert result.passed, result
    assert result.proved_rows == 2 * 4 * LENGTH


def test_masks_that_differ_by_head_are_checked_by_head() -> None:
    masks = [cm.causal(), cm.window(5), cm.full(), cm.causal()]
    each = np.stack([m.to_dense(LENGTH) for m in masks])
    about, data = task(cm.per_head(masks)), inputs(torch.float32)
    right = oracle.reference(about, *data)
    assert oracle.check(about, right, dense(each), data).passed
    found = oracle.check(about, right, dense(each[[1, 0, 2, 3]]), data)
    assert "head 0 does not see the keys that the mask shows it" in found.reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cell", [(0, 0), (95, 0), (95, 95), (50, 17), (95, 64)])
def test_one_key_too_few_is_found(cell: tuple[int, int], dtype: torch.dtype) -> None:
    wrong = cm.causal().to_dense(LENGTH).copy()
    wrong[cell] = False
    about, data = task(cm.causal()), inputs(dtype)
    result = oracle.check(about, oracle.reference(about, *data), dense(wrong), data)
    assert result.reason == f"query {cell[0]} of batch entry 0, head 0 does not see the keys that the mask shows it"
    assert result.proved_rows == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cell", [(0, 1), (94, 95), (30, 70)])
def test_one_key_too_many_is_found(cell: tuple[int, int], dtype: torch.dtype) -> None:
    wrong = cm.causal().to_dense(LENGTH).copy()
    wrong[cell] = True
    about, data = task(cm.causal()), inputs(dtype)
    assert not oracle.check(about, oracle.reference(about, *data), dense(wrong), data).passed


def test_one_key_of_sixteen_thousand_is_found_in_bfloat16() -> None:
    """The longest row of the suite, where rounding hides most: a plain product for the row, with one key left out."""
    length = 16384
    compiled = cm.compile(cm.full(), 1, length)
    about = Task(compiled.interval_tables, compiled.mask_index, DIM**-0.5)

    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, skip: int | None = None) -> torch.Tensor:
        scores = (q.float() @ k.float().transpose(-1, -2)) * DIM**-0.5
        if skip is not None:
            scores[..., skip] = -torch.inf
        weights = torch.exp(scores - scores.amax(-1, keepdim=True)).bfloat16().float()
        return ((weights @ v.float()) / weights.sum(-1, keepdim=True)).bfloat16()

    like = tuple(torch.empty(1, 1, n, DIM, dtype=torch.bfloat16) for n in (1, length, length))
    assert oracle.prove_mask(about, forward, like, backward=False) == (1, "")
    for skip in (0, 5000, length - 1):
        proved, reason = oracle.prove_mask(about, lambda q, k, v, s=skip: forward(q, k, v, s), like, backward=False)
        assert proved == 0
        assert "query 0" in reason


class _Bent(torch.autograd.Function):
    """Right forward, and a backward pass that uses another mask: what a wrong transposed descriptor would do."""

    @staticmethod
    def forward(ctx, q, k, v, forward, backward):
        ctx.save_for_backward(q, k, v)
        ctx.wrong = backward
        return forward(q, k, v)

    @staticmethod
    def backward(ctx, *grads: torch.Tensor):
        with torch.enable_grad():
            q, k, v = (x.detach().requires_grad_() for x in ctx.saved_tensors)
            found = torch.autograd.grad(ctx.wrong(q, k, v), (q, k, v), grads[0])
        return *found, None, None


def test_a_mask_that_is_wrong_in_backward_alone_is_found() -> None:
    wrong = cm.causal().to_dense(LENGTH).copy()
    wrong[70, 20] = False
    about, data = task(cm.causal()), inputs(torch.float32)
    grad = torch.randn(data[0].shape, generator=torch.Generator().manual_seed(1))
    right = oracle.reference(about, *data, grad)
    good, bad = dense(cm.causal().to_dense(LENGTH)), dense(wrong)
    result = oracle.check(about, right, lambda q, k, v: _Bent.apply(q, k, v, good, bad), data, grad)
    # Every weight of row 70 grows when one is missing, so the first wrong column is not that of the cell.
    assert "the gradient of value" in result.reason
    assert oracle.check(about, right, lambda q, k, v: _Bent.apply(q, k, v, good, good), data, grad).passed


def test_one_query_of_two_thousand_is_found_in_the_gradients_of_bfloat16() -> None:
    """Every weight is rounded by itself there; the sum over a column hides what is missing unless its size is known."""
    length = 2048
    compiled = cm.compile(cm.causal(), length)
    about = Task(compiled.interval_tables, compiled.mask_index, DIM**-0.5)
    like = tuple(torch.empty(1, 1, length, DIM, dtype=torch.bfloat16) for _ in range(3))
    good = dense(cm.causal().to_dense(length))
    assert oracle.prove_mask(about, good, like, backward=True) == (length, "")
    for cell in ((2047, 3), (1500, 1500), (900, 2)):
        wrong = cm.causal().to_dense(length).copy()
        wrong[cell] = False
        bad = dense(wrong)
        proved, reason = oracle.prove_mask(
            about, lambda q, k, v, bad=bad: _Bent.apply(q, k, v, good, bad), like, backward=True
        )
        assert proved == 0
        assert "the gradient of value" in reason


def test_an_inaccurate_result_is_found() -> None:
    about, data = task(cm.causal()), inputs(torch.bfloat16)
    right = oracle.reference(about, *data)
    good = dense(cm.causal().to_dense(LENGTH))

    def sloppy(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        # Equal scores stay equal under this, so the mask is proved and only the accuracy is wrong.
        return good((q * 1.03).to(q.dtype), k, v)

    result = oracle.check(about, right, sloppy, data)
    assert result.reason.startswith("out is off by")
    assert result.errors["out"] > result.allowed["out"] > 0


def test_a_nan_never_passes() -> None:
    about, data = task(cm.causal()), inputs(torch.float32)
    right = oracle.reference(about, *data)
    result = oracle.check(about, right, lambda q, k, v: torch.full_like(q, torch.nan), data)
    assert not result.passed


def test_rows_without_keys_must_be_zero() -> None:
    about, data = task(cm.empty()), inputs(torch.float32)
    result = oracle.check(about, oracle.reference(about, *data), lambda q, k, v: torch.ones_like(q), data)
    assert "query 0" in result.reason


def test_long_masks_are_checked_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows are taken at once, the answer is the same."""
    about, data = task(MASKS["documents"]), inputs(torch.float32)
    grad = torch.randn(data[0].shape, generator=torch.Generator().manual_seed(1))
    whole = oracle.reference(about, *data, grad)
    monkeypatch.setattr(oracle, "CHUNK_BYTES", 4 * LENGTH * 7)
    pieces = oracle.reference(about, *data, grad)
    for name, exact in whole.exact.items():
        assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(exact, pieces.exact[name], strict=True))
    assert oracle.check(about, pieces, dense(MASKS["documents"].to_dense(LENGTH)), data, grad).passed
