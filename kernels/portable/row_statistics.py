"""What the gradients need of each row of a softmax: its log-sum-exp, and how its output and gradient agree."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from cmask_lab.kernels.portable.tiles import LOG2_E, VARYING

STATISTICS_ROWS = 32
"""Rows of a program."""


@triton.jit(do_not_specialize=VARYING)
def row_statistics(
    out,  # (rows, Dv), contiguous
    grad_out,  # (rows, Dv), contiguous
    lse,  # (rows,), natural logarithm
    grad_lse,  # (rows,); not touched unless GRAD_LSE
    lse2,  # written, (rows,): lse in units of log2, and +inf for a row that sees nothing
    delta,  # written, (rows,): sum(out * grad_out) - grad_lse
    rows,
    GRAD_LSE: tl.constexpr,
    BLOCK: tl.constexpr,
    VALUE: tl.constexpr,
    VALUE_DIM: tl.constexpr,
):
    """What the gradients need of each row of a softmax."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, VALUE)
    inside = row < rows
    cells = row[:, None] * VALUE_DIM + column[None, :]
    both = inside[:, None] & (column < VALUE_DIM)[None, :]
    product = tl.load(out + cells, mask=both, other=0).to(tl.float32)
    product *= tl.load(grad_out + cells, mask=both, other=0).to(tl.float32)
    total = tl.sum(product, 1)
    natural = tl.load(lse + row, mask=inside, other=0)
    if GRAD_LSE:
        # A row that sees nothing has a constant lse (-inf): whatever its gradient is, nothing follows from it.
        total -= tl.where(natural == float("-inf"), 0.0, tl.load(grad_lse + row, mask=inside, other=0))
    tl.store(delta + row, total, mask=inside)
    tl.store(lse2 + row, tl.where(natural == float("-inf"), float("inf"), natural * LOG2_E), mask=inside)


@triton.jit
def statistic(written, position, inside, beyond, SILU: tl.constexpr):
    """Rows of what row_statistics wrote: lse2 or delta. For SILU zeros that nobody uses.

    A row that does not exist gets ``beyond``: +inf for lse2 and 0 for delta make its weights and gradients vanish.
    """
    values = tl.zeros(position.shape, tl.float32)
    if not SILU:
        values = tl.load(written + position, mask=inside, other=beyond)
    return values


def statistics_of_rows(
    out: torch.Tensor,
    grad_out: torch.Tensor,
    lse: torch.Tensor | None,
    grad_lse: torch.Tensor | None,
    value: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a softmax row's gradients need, float32 ``(B, H, Sq)`` twice; for "silu" nothing that is read."""
    if lse is None:
        unread = torch.empty(1, dtype=torch.float32, device=out.device)
        return unread, unread
    lse2, delta = torch.empty_like(lse), torch.empty_like(lse)
    rows = lse.numel()
    row_statistics[(triton.cdiv(rows, STATISTICS_ROWS),)](
        out.contiguous(),
        grad_out,
        lse,
        lse if grad_lse is None else grad_lse.contiguous(),
        lse2,
        delta,
        rows,
        GRAD_LSE=grad_lse is not None,
        BLOCK=STATISTICS_ROWS,
        VALUE=value,
        VALUE_DIM=out.shape[-1],
    )
    return lse2, delta
