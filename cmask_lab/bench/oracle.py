"""Is it the right mask, and is it accurate? Asked of every contender, in the run that times it.

Two questions, two inputs:

- **The mask, exactly.** With equal scores everywhere an output row is the mean of the values that it sees, and with
  whole numbers as values that mean is known exactly. Prefix sums over the interval table give it for every row of every
  head without ever forming the mask. Neighbouring values cancel, so that a mean over thousands of keys is a small
  number and one key too many or too few stands out from rounding. The gradient of v proves the columns alike.
- **Accuracy.** On random data a dense reference in higher precision, a few rows at a time, gives output and gradients.
  What may be wrong is not a number somebody chose: it is a small multiple of the error that the same dense computation
  makes when it keeps its probabilities and results in the dtype at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from cmask_lab.bench.report import Check
from cmask_lab.compiler.intervals import IntervalTable

CHUNK_BYTES = 2**27
"""Memory of one matrix of scores, a few rows by all keys."""

FACTOR = 3.0
"""How much more than the plain computation in the same dtype a contender may err: other orders of summation, other
roundings of the probabilities, fast exponentials."""

CHECKED_ROWS = 192
"""Query rows of every head that are checked for accuracy when no gradient is asked for."""

GRADIENT_FLOPS = {"cuda": 1.6e13, "cpu": 3e10}
"""Work that may go into the gradients' reference: it decides how many heads are checked."""

Forward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""A contender: q, k, v ``(B, H, S, D)`` to out, differentiable if gradients are checked."""


@dataclass(frozen=True)
class Task:
    """What a contender is to compute.

    Attributes:
        tables: the distinct masks.
        mask_index: int ``(batch or 1, heads or 1)``: which of them a batch entry and head uses.
        scale: factor on the scores.
        activation: "softmax", or "silu" with its ``normalizer``.
    """

    tables: tuple[IntervalTable, ...]
    mask_index: np.ndarray
    scale: float
    activation: str = "softmax"
    normalizer: float = 1.0

    def number(self, b: int, h: int) -> int:
        """Which of the tables is the mask of a batch entry and query head."""
        rows, columns = self.mask_index.shape
        return int(self.mask_index[b % rows, h % columns])

    @cached_property
    def transposed(self) -> tuple[IntervalTable, ...]:
        """The masks with queries and keys exchanged."""
        return tuple(table.transpose() for table in self.tables)


@dataclass(frozen=True)
class Reference:
    """Right answers at some places, and how far the plain computation in the dtype is from them.

    Attributes:
        rows: positions of the query rows at which out and dq are known.
        heads: ``(batch entry, query head)`` at which out is known.
        kv_heads: ``(batch entry, kv head)`` at which dk and dv are known; all query heads of these have dq.
        exact, plain: by result name, one tensor a head.
    """

    rows: torch.Tensor
    heads: tuple[tuple[int, int], ...]
    kv_heads: tuple[tuple[int, int], ...]
    exact: dict[str, list[torch.Tensor]]
    plain: dict[str, list[torch.Tensor]]

    @property
    def allowed(self) -> dict[str, float]:
        """The relative error that each result may have."""
        return {
            name: FACTOR * max(_relative(p, e) for p, e in zip(self.plain[name], exact, strict=True))
            for name, exact in self.exact.items()
        }


def reference(
    task: Task, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad_out: torch.Tensor | None = None
) -> Reference:
    """The right answers for these inputs: sampled rows of every head, or, with ``grad_out``, all rows of some heads."""
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1:3]
    group = heads // kv_heads
    everywhere = tuple((b, h) for b in range(batch) for h in range(heads))
    if grad_out is None:
        rows = _sampled_rows(q_len, CHECKED_ROWS, q.device)
        chosen, chosen_kv = everywhere, ()
    else:
        rows = torch.arange(q_len, device=q.device)
        flops = 2 * 14 * q_len * kv_len * head_dim * group
        every_kv = [(b, h) for b in range(batch) for h in range(kv_heads)]
        number = int(np.clip(GRADIENT_FLOPS[q.device.type] // max(flops, 1), 1, len(every_kv)))
        chosen_kv = tuple(every_kv[i] for i in np.unique(np.linspace(0, len(every_kv) - 1, number).astype(int)))
        chosen = tuple((b, h * group + g) for b, h in chosen_kv for g in range(group))
    exact_dtype, plain_dtype, stored = _precisions(q.dtype)
    results = {}
    with _full_precision():
        for name, arithmetic, storage in (("exact", exact_dtype, None), ("plain", plain_dtype, stored)):
            found: dict[str, list[torch.Tensor]] = {}
            sums: dict[tuple[int, int], list[torch.Tensor]] = {}
            for b, h in chosen:
                n = h // group
                qh, kh, vh = q[b, h].to(arithmetic), k[b, n].to(arithmetic), v[b, n].to(arithmetic)
                gradient = None if grad_out is None else grad_out[b, h].to(arithmetic)
                out, dq, dk, dv = _dense_head(task, task.tables[task.number(b, h)], rows, qh, kh, vh, gradient, storage)
                found.setdefault("out", []).append(out)
                if dq is not None and dk is not None and dv is not None:
                    found.setdefault("dq", []).append(dq)
                    total = sums.setdefault((b, n), [torch.zeros_like(dk), torch.zeros_like(dv)])
                    total[0] += dk
                    total[1] += dv
            for number, result in enumerate(("dk", "dv") if sums else ()):
                found[result] = [_stored(sums[place][number], storage) for place in chosen_kv]
            results[name] = found
    return Reference(rows, chosen, chosen_kv, results["exact"], results["plain"])


def errors_against(
    right: Reference, out: torch.Tensor, gradients: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
) -> dict[str, float]:
    """Largest relative error over heads of each result that the reference knows."""
    found = {"out": [out[b, h][right.rows] for b, h in right.heads]}
    if gradients is not None:
        dq, dk, dv = gradients
        found["dq"] = [dq[b, h][right.rows] for b, h in right.heads]
        found["dk"] = [dk[b, h] for b, h in right.kv_heads]
        found["dv"] = [dv[b, h] for b, h in right.kv_heads]
    return {
        name: max(_relative(f, e) for f, e in zip(found[name], exact, strict=True))
        for name, exact in right.exact.items()
        if name in found
    }


def check(
    task: Task,
    right: Reference,
    forward: Forward,
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    grad_out: torch.Tensor | None = None,
) -> Check:
    """Prove the mask of a contender and compare its results with the reference for ``inputs``."""
    proved, wrong = prove_mask(task, forward, inputs, backward=grad_out is not None)
    if wrong:
        return Check({}, {}, 0, wrong)
    leaves = [x.detach().requires_grad_(grad_out is not None) for x in inputs]
    out = forward(*leaves)
    gradients = None
    if grad_out is not None:
        dq, dk, dv = torch.autograd.grad(out, leaves, grad_out)
        gradients = (dq, dk, dv)
    errors = errors_against(right, out.detach(), gradients)
    allowed = {name: bound for name, bound in right.allowed.items() if name in errors}
    worst = next((name for name in errors if not errors[name] <= allowed[name]), None)
    reason = f"{worst} is off by {errors[worst]:.1e}, allowed are {allowed[worst]:.1e}" if worst else ""
    return Check(errors, allowed, proved, reason)


def prove_mask(
    task: Task, forward: Forward, like: tuple[torch.Tensor, torch.Tensor, torch.Tensor], *, backward: bool
) -> tuple[int, str]:
    """Rows (times heads) whose visible keys are proved right, and what was wrong ("" if nothing)."""
    q, k, v = (torch.zeros_like(x) for x in like)
    q[..., 0] = k[..., 0] = 1
    v.copy_(_in_cancelling_pairs(v.shape, highest=4, seed=7))
    q, k, v = (x.requires_grad_(backward) for x in (q, k, v))
    out = forward(q, k, v)
    batch, heads, q_len, value_dim = out.shape
    group = heads // k.shape[1]
    ends = [_ends(table, q.device) for table in task.tables]
    weights = [_equal_weights(task, _row_counts(each, q_len)) for each in ends]
    for b in range(batch):
        for h in range(heads):
            number = task.number(b, h)
            weight = weights[number]
            seen = _interval_sums(v[b, h // group].detach(), *ends[number], q_len)
            one_key = weight * value_dim**0.5  # every value is at least 1
            row = _first_wrong_row(out[b, h].detach(), [seen * weight[:, None]], one_key, q.dtype)
            if row is not None:
                return 0, f"query {row} of batch entry {b}, head {h} does not see the keys that the mask shows it"
    return _prove_columns(task, out, v, weights) if backward else (batch * heads * q_len, "")


def _prove_columns(task: Task, out: torch.Tensor, v: torch.Tensor, weights: Sequence[torch.Tensor]) -> tuple[int, str]:
    """The same for dv: the gradient of out is such that every visible pair adds a number of the same size.

    A kernel rounds the weights to the dtype before this product, or it does not; either is right, and both are known.
    """
    batch, heads, q_len, value_dim = out.shape
    group = heads // v.shape[1]
    signs = _in_cancelling_pairs(out.shape, highest=1, seed=8).to(out.device)
    grad_out = torch.empty_like(out)
    piece = [float(w[w != 0].abs().min()) if bool((w != 0).any()) else 0.0 for w in weights]
    for b in range(batch):
        for h in range(heads):
            number = task.number(b, h)
            size = torch.where(weights[number] != 0, piece[number] / weights[number], 1)
            grad_out[b, h] = (signs[b, h] * size[:, None]).to(out.dtype)
    (dv,) = torch.autograd.grad(out, v, grad_out)
    ends = [_ends(table, out.device) for table in task.transposed]
    for b in range(batch):
        for n in range(v.shape[1]):
            shape = (v.shape[2], value_dim)
            expected = [torch.zeros(shape, dtype=torch.float64, device=v.device) for _ in range(2)]
            smallest = torch.inf
            for h in range(n * group, (n + 1) * group):
                number = task.number(b, h)
                weight = weights[number]
                for total, used in zip(expected, (weight, _stored(weight, out.dtype)), strict=True):
                    pieces = used[:, None] * grad_out[b, h].to(torch.float64)
                    total += _interval_sums(pieces, *ends[number], shape[0])
                smallest = min(smallest, piece[number] or torch.inf)
            one_query = torch.full(shape[:1], smallest * value_dim**0.5, dtype=torch.float64, device=v.device)
            row = _first_wrong_row(dv[b, n], expected, one_query, out.dtype)
            if row is not None:
                return 0, f"the gradient of value {row} of batch entry {b}, kv head {n} has other queries than see it"
    return batch * heads * q_len, ""


def _in_cancelling_pairs(shape: torch.Size, highest: int, seed: int) -> torch.Tensor:
    """Whole numbers, none 0, of which neighbours along the sequence cancel.

    However many neighbours a sum takes in, only those at the ends of an interval are left of it: the sum stays small,
    its rounding too, and one number too many or too few stands out.
    """
    generator = torch.Generator(device="cpu").manual_seed(seed)
    pairs = (*shape[:2], -(-shape[2] // 2), shape[3])
    sizes = torch.randint(1, highest + 1, pairs, generator=generator, dtype=torch.int8)
    numbers = sizes * (2 * torch.randint(0, 2, pairs, generator=generator, dtype=torch.int8) - 1)
    return torch.stack([numbers, -numbers], dim=3).flatten(2, 3)[:, :, : shape[2]]


def _first_wrong_row(
    found: torch.Tensor, expected: Sequence[torch.Tensor], one: torch.Tensor, dtype: torch.dtype
) -> int | None:
    """The first row that is not one of those expected, rounded twice.

    ``one`` is by how much a row is off, in the Euclidean norm, if it has one summand too many or too few. A quarter of
    it is left to the order of summation.
    """
    unit = torch.finfo(dtype).eps / 2
    found = found.to(torch.float64)
    right = torch.zeros(len(found), dtype=torch.bool, device=found.device)
    slack = torch.where(torch.isfinite(one), one, 0) / 4 + 1e-30
    for rows in expected:
        right |= (found - rows).norm(dim=1) <= (2 * unit + 2**-20) * rows.norm(dim=1) + slack
    return None if bool(right.all()) else int((~right).nonzero()[0])


def _equal_weights(task: Task, counts: torch.Tensor) -> torch.Tensor:
    """What every visible key of a row weighs when all scores are ``scale``; 0 for a row that sees nothing."""
    if task.activation == "softmax":
        return torch.where(counts > 0, 1 / counts.clamp(min=1), 0)
    score = torch.tensor(task.scale, dtype=torch.float64, device=counts.device)
    return (counts > 0) * (torch.nn.functional.silu(score) / task.normalizer)


def _ends(table: IntervalTable, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    arrays = (table.rows_per_interval(), table.start.astype(np.int64), table.stop.astype(np.int64))
    row, start, stop = (torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in arrays)
    return row, start, stop


def _row_counts(ends: tuple[torch.Tensor, torch.Tensor, torch.Tensor], rows: int) -> torch.Tensor:
    row, start, stop = ends
    counts = torch.zeros(rows, dtype=torch.float64, device=row.device)
    return counts.index_add_(0, row, (stop - start).to(torch.float64))


def _interval_sums(
    values: torch.Tensor, row: torch.Tensor, start: torch.Tensor, stop: torch.Tensor, rows: int
) -> torch.Tensor:
    """float64 ``(rows, D)``: the sum of ``values`` over the intervals of every row, from prefix sums."""
    prefix = torch.zeros(len(values) + 1, values.shape[1], dtype=torch.float64, device=values.device)
    prefix[1:] = values.to(torch.float64).cumsum(0)
    sums = torch.zeros(rows, values.shape[1], dtype=torch.float64, device=values.device)
    step = max(1, CHUNK_BYTES // (8 * values.shape[1]))  # a million intervals at once would be a gigabyte
    for first in range(0, len(row), step):
        part = slice(first, first + step)
        sums.index_add_(0, row[part], prefix[stop[part]] - prefix[start[part]])
    return sums


def _dense_head(
    task: Task,
    table: IntervalTable,
    rows: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    grad_out: torch.Tensor | None,
    storage: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """out and dq at ``rows``, dk and dv of one head, a few rows at a time; ``storage`` is what a kernel rounds to."""
    out = torch.empty(len(rows), v.shape[1], dtype=v.dtype, device=v.device)
    dq = dk = dv = None
    if grad_out is not None:
        dq, dk, dv = (
            torch.empty(len(rows), q.shape[1], dtype=q.dtype, device=q.device),
            torch.zeros_like(k),
            torch.zeros_like(v),
        )
    for first, visible in _dense_rows(table, rows, q.element_size()):
        part = rows[first : first + len(visible)]
        here = slice(first, first + len(visible))
        scores = (q[part] @ k.T) * task.scale
        slope = None
        if task.activation == "softmax":
            scores.masked_fill_(~visible, -torch.inf)
            top = scores.amax(1, keepdim=True)
            weights = (scores - torch.where(top == -torch.inf, 0, top)).exp_()
            weights /= weights.sum(1, keepdim=True).clamp(min=torch.finfo(v.dtype).tiny)
        else:
            gate = torch.sigmoid(scores)
            weights = torch.where(visible, scores * gate, 0) / task.normalizer
            slope = torch.where(visible, gate * (1 + scores * (1 - gate)), 0) / task.normalizer
        rounded = _stored(weights, storage)
        out[here] = _stored(rounded @ v, storage)
        if grad_out is None or dq is None or dk is None or dv is None:
            continue
        above = grad_out[part]
        down = above @ v.T
        if slope is None:
            down, slope = down - (above * out[here]).sum(1, keepdim=True), weights
        down = _stored(slope * down, storage)
        dq[here] = _stored(down @ k * task.scale, storage)
        dk += down.T @ q[part] * task.scale
        dv += rounded.T @ above
    return out, dq, dk, dv


def _dense_rows(table: IntervalTable, rows: torch.Tensor, itemsize: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Bool ``(some rows, kv_len)`` on the rows' device, one after another: ends of intervals marked, then summed."""
    device = rows.device
    row_ptr = torch.from_numpy(table.row_ptr).to(device)
    _, start, stop = _ends(table, device)
    step = max(1, CHUNK_BYTES // (itemsize * max(table.kv_len, 1)))
    for first in range(0, len(rows), step):
        part = rows[first : first + step]
        counts = row_ptr[part + 1] - row_ptr[part]
        owner = torch.repeat_interleave(torch.arange(len(part), device=device), counts)
        before = counts.cumsum(0) - counts
        index = torch.arange(len(owner), device=device) + (row_ptr[part] - before)[owner]
        marks = torch.zeros(len(part), table.kv_len + 1, dtype=torch.int8, device=device)
        marks[owner, start[index]] = 1
        marks[owner, stop[index]] = -1
        yield first, marks.cumsum(1, dtype=torch.int8)[:, : table.kv_len].bool()


def _sampled_rows(length: int, number: int, device: torch.device) -> torch.Tensor:
    """Rows spread over the sequence, first and last included, at odd places inside their tiles."""
    return torch.from_numpy(np.unique(np.linspace(0, max(length - 1, 0), min(number, length)).astype(np.int64))).to(
        device
    )


def _precisions(dtype: torch.dtype) -> tuple[torch.dtype, torch.dtype, torch.dtype | None]:
    """Arithmetic of the reference, arithmetic of the plain computation, and what the plain one stores in."""
    if dtype in (torch.float16, torch.bfloat16):
        return torch.float32, torch.float32, dtype
    return torch.float64, torch.float32, None


def _stored(values: torch.Tensor, storage: torch.dtype | None) -> torch.Tensor:
    return values if storage is None else values.to(storage).to(values.dtype)


def _relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative error in the Frobenius norm; NaN where the result has one; the plain norm where all should be 0."""
    size = exact.norm().item()
    return ((found.to(exact.dtype) - exact).norm() / (size or 1.0)).item()


@contextmanager
def _full_precision() -> Iterator[None]:
    """No TF32 inside: float32 products are float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
