"""Rows of tensors gathered by a Triton kernel: a permutation of tokens costs the bytes that it moves."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

PROGRAM_BYTES = 2**15
"""What a program moves, at most: with eight warps every thread has eight accesses of 16 bytes under way."""


@triton.jit
def gather_kernel(
    sources, targets, strides, heads, first_line, order, positions,
    WIDTHS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """``target[b, h, p] = source[b, h, order[p]]`` for each tensor; a program takes ``ROWS`` positions of a line.

    A line is one head of one batch entry; those of all tensors are numbered through.
    """
    steps = tl.cdiv(positions, ROWS)
    line = tl.program_id(0) // steps
    at = tl.program_id(0) % steps * ROWS + tl.arange(0, ROWS)
    inside = at < positions
    from_row = tl.load(order + at, inside, 0).to(tl.int64)
    for n in tl.static_range(len(sources)):
        if (line >= first_line[n]) & (line < first_line[n + 1]):
            own = line - first_line[n]
            column = tl.arange(0, COLUMNS[n])
            cells = inside[:, None] & (column < WIDTHS[n])[None, :]
            start = (own // heads[n]).to(tl.int64) * strides[n][0] + (own % heads[n]).to(tl.int64) * strides[n][1]
            rows = tl.load(sources[n] + start + from_row[:, None] * strides[n][2] + column[None, :], cells)
            to_row = own.to(tl.int64) * positions + at
            tl.store(targets[n] + to_row[:, None] * WIDTHS[n] + column[None, :], rows, cells)


def gather_rows(tensors: Sequence[torch.Tensor], order: torch.Tensor) -> list[torch.Tensor]:
    """``tensor[:, :, order]`` of tensors ``(B, H, positions, width)``, in one launch; results are contiguous.

    The last stride of each must be 1; ``order`` is int32 ``(positions,)`` on their device.
    """
    targets = [torch.empty_like(each, memory_format=torch.contiguous_format) for each in tensors]
    first_line = [0]
    for each in tensors:
        first_line.append(first_line[-1] + each.shape[0] * each.shape[1])
    columns = [triton.next_power_of_2(each.shape[3]) for each in tensors]
    rows = max(
        1, min(128, PROGRAM_BYTES // max(c * each.element_size() for c, each in zip(columns, tensors, strict=True)))
    )
    positions = order.numel()
    if positions and first_line[-1]:
        gather_kernel[(triton.cdiv(positions, rows) * first_line[-1],)](
            tuple(tensors),
            tuple(targets),
            tuple(each.stride()[:3] for each in tensors),
            tuple(each.shape[1] for each in tensors),
            tuple(first_line),
            order,
            positions,
            WIDTHS=tuple(each.shape[3] for each in tensors),
            COLUMNS=tuple(columns),
            ROWS=rows,
            num_warps=8,  # pyright: ignore[reportCallIssue] - an option of the launch, not a parameter
        )
    return targets
