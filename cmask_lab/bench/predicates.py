"""The masks again, as FlexAttention's ``mask_mod``: for each the fastest form that we know.

A baseline is only worth beating at its best. What was learnt on an H200 and is used here:

- what depends on the query alone (where its document starts, where its prompt ends) is looked up in an int32 table, not
  computed from lengths;
- ``torch.where`` takes the place of ``torch.minimum``, which the FLASH backend did not compile;
- grid coordinates are computed by division: two loads a key would cost more.

A test holds each of them against our own dense mask. Masks without a form of their own get one made from their
intervals (:func:`from_intervals`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from cmask_lab.compiler.intervals import IntervalTable

MaskMod = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""``(batch, head, query, key)`` index tensors to a bool tensor."""

MOST_INTERVALS = 4
"""Intervals a row up to which comparing with each is cheaper than looking up a bit."""


def causal() -> MaskMod:
    """``j <= i``."""

    def predicate(b, h, q, kv):
        return kv <= q

    return predicate


def full() -> MaskMod:
    """Everything; written with comparisons, since a constant does not compile everywhere."""

    def predicate(b, h, q, kv):
        return (q >= 0) & (kv >= 0)

    return predicate


def window(width: int) -> MaskMod:
    """The last ``width`` keys, the query's own position included."""

    def predicate(b, h, q, kv):
        return (kv <= q) & (q - kv < width)

    return predicate


def documents(lengths: Sequence[int], device: torch.device) -> MaskMod:
    """Causal inside each document."""
    start = _table(_starts(lengths), device)

    def predicate(b, h, q, kv):
        return (kv <= q) & (kv >= start[q])

    return predicate


def shared_prompts(groups: Sequence[Sequence[int]], device: torch.device) -> MaskMod:
    """Groups of a prompt and its answers: an answer sees its prompt and itself, causally.

    Args:
        groups: lengths ``[prompt, answer, answer, …]`` of each group.
    """
    sizes = [sum(group) for group in groups]
    start = _starts(sizes)
    prompt_stop = start + np.repeat([group[0] for group in groups], sizes)
    own = _starts([length for group in groups for length in group])
    own = np.where(np.arange(len(own)) < prompt_stop, start, own)
    first, stop, piece = (_table(values, device) for values in (start, prompt_stop, own))

    def predicate(b, h, q, kv):
        return (kv <= q) & (kv >= first[q]) & ((kv < stop[q]) | (kv >= piece[q]))

    return predicate


def hstu(length: int, contextual: int, targets: int) -> MaskMod:
    """One user: contextual tokens see all history, history is causal, a target sees history and itself."""
    history = length - targets

    def predicate(b, h, q, kv):
        query = torch.where(q < history, q, history)
        key = torch.where(kv < history, kv, history)
        return (q == kv) | (query > key) | ((q < contextual) & (kv < history))

    return predicate


def hstu_packed(lengths: Sequence[int], contextual: int, targets: int, device: torch.device) -> MaskMod:
    """Many users in one sequence, each with the mask of :func:`hstu`.

    A user shorter than its targets has no history: all its tokens are targets.
    """
    starts, sizes = _starts(lengths), np.repeat(lengths, lengths)
    start, stop = _table(starts, device), _table(starts + sizes, device)
    end_of_history = _table(np.maximum(starts + sizes - targets, starts), device)
    end_of_context = _table(np.minimum(starts + contextual, starts + sizes), device)

    def predicate(b, h, q, kv):
        history = end_of_history[q]
        query = torch.where(q < history, q, history)
        key = torch.where(kv < history, kv, history)
        seen = (q == kv) | (query > key) | ((q < end_of_context[q]) & (kv < history))
        return seen & (kv >= start[q]) & (kv < stop[q])

    return predicate


def clear(
    text: int, height: int, width: int, radius: int, device: torch.device, order: np.ndarray | None = None
) -> MaskMod:
    """Text sees and is seen by all; an image token sees the disk ``dy² + dx² < radius²`` around it.

    Args:
        order: None for an image row by row; else the permutation in which its tokens stand. Patches that divide the
            image are computed, any other order is looked up.
    """
    reach = radius * radius
    patch = None if order is None else _regular_patch(text, height, width, order)
    if order is not None and patch is None:
        pixel = np.maximum(np.asarray(order) - text, 0)
        y, x = _table(pixel // width, device), _table(pixel % width, device)

        def looked_up(b, h, q, kv):
            dy, dx = y[q] - y[kv], x[q] - x[kv]
            return (q < text) | (kv < text) | (dy * dy + dx * dx < reach)

        return looked_up

    if patch is None:

        def row_by_row(b, h, q, kv):
            dy = (q - text) // width - (kv - text) // width
            dx = (q - text) % width - (kv - text) % width
            return (q < text) | (kv < text) | (dy * dy + dx * dx < reach)

        return row_by_row

    rows, columns = patch
    area, across = rows * columns, width // columns

    def coordinates(token):
        number, inside = (token - text) // area, (token - text) % area
        return (number // across) * rows + inside // columns, (number % across) * columns + inside % columns

    def patch_by_patch(b, h, q, kv):
        (qy, qx), (ky, kx) = coordinates(q), coordinates(kv)
        return (q < text) | (kv < text) | ((qy - ky) * (qy - ky) + (qx - kx) * (qx - kx) < reach)

    return patch_by_patch


def from_intervals(table: IntervalTable, device: torch.device) -> MaskMod:
    """A predicate for any mask: a few comparisons where rows have few intervals, else one bit looked up.

    >>> square = IntervalTable.full(2, 3)
    >>> q, kv = torch.arange(2)[:, None], torch.arange(3)[None]
    >>> bool(from_intervals(square, torch.device("cpu"))(q, q, q, kv).all())
    True
    """
    per_row = np.diff(table.row_ptr)
    most = int(per_row.max(initial=0))
    if most > MOST_INTERVALS:
        return _from_bits(table, device)
    bounds = []
    for number in range(max(most, 1)):
        present = per_row > number
        index = np.where(present, table.row_ptr[:-1] + number, 0)
        start = np.where(present, table.start[index], 0) if table.count else np.zeros(table.q_len, np.int64)
        stop = np.where(present, table.stop[index], 0) if table.count else np.zeros(table.q_len, np.int64)
        bounds.append(_interval(start, stop, device))

    def predicate(b, h, q, kv):
        seen = bounds[0](q, kv)
        for inside in bounds[1:]:
            seen = seen | inside(q, kv)
        return seen

    return predicate


def _interval(start: np.ndarray, stop: np.ndarray, device: torch.device) -> Callable:
    """``start[q] <= kv < stop[q]``, without a table where a bound is the same for all or the diagonal."""
    low, high = _table(start, device), _table(stop, device)
    if np.array_equal(stop, np.arange(len(stop)) + 1):
        if not start.any():
            return lambda q, kv: kv <= q
        return lambda q, kv: (kv <= q) & (kv >= low[q])
    if not start.any():
        return lambda q, kv: kv < high[q]
    return lambda q, kv: (kv >= low[q]) & (kv < high[q])


def _from_bits(table: IntervalTable, device: torch.device) -> MaskMod:
    """One int32 word for 32 keys, row by row, packed a few rows at a time."""
    words = -(-table.kv_len // 32)
    packed = np.empty((table.q_len, words * 4), np.uint8)
    step = max(1, 2**26 // max(table.kv_len, 1))
    for first in range(0, table.q_len, step):
        rows = table.take_rows(np.arange(first, min(first + step, table.q_len))).to_dense()
        rows = np.pad(rows, ((0, 0), (0, words * 32 - table.kv_len)))
        packed[first : first + len(rows)] = np.packbits(rows, axis=1, bitorder="little")
    bits = torch.from_numpy(packed.view("<i4").reshape(-1)).to(device)

    def predicate(b, h, q, kv):
        return ((bits[q * words + kv // 32] >> (kv % 32)) & 1) == 1

    return predicate


def _starts(lengths: Sequence[int]) -> np.ndarray:
    """For every position the first one of its piece: lengths 2, 3 → 0 0 2 2 2."""
    sizes = np.asarray(lengths, np.int64)
    return np.repeat(np.cumsum(sizes) - sizes, sizes)


def _table(values: np.ndarray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.int32)).to(device)


def _regular_patch(text: int, height: int, width: int, order: np.ndarray) -> tuple[int, int] | None:
    """``(rows, columns)`` of the patches in which an order walks the image, if such patches divide it."""
    pixels = np.asarray(order)[text:] - text
    if not np.array_equal(np.sort(pixels), np.arange(height * width)):
        return None
    # A patch's row ends where the next pixel is not the neighbour; a row of the whole image may run on.
    columns = min(int(np.argmax(np.diff(pixels, append=-1) != 1)) + 1, width)
    if width % columns:
        return None
    for rows in (side for side in range(1, height + 1) if height % side == 0):
        image = np.arange(height * width).reshape(height // rows, rows, width // columns, columns)
        if np.array_equal(pixels, image.transpose(0, 2, 1, 3).reshape(-1)):
            return rows, columns
    return None
