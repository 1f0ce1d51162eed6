"""A mask moved into a box, repeated along the diagonal, or transposed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cmask_lab.compiler.intervals import Int64s, IntervalTable
from cmask_lab.masks.arguments import integer, integers, listed, pair
from cmask_lab.masks.mask import (
    Bounds,
    Extent,
    Mask,
    Support,
    Window,
    abbreviated,
    bounds_of,
    bracketed,
    clipped,
    moved,
)


@dataclass(frozen=True, eq=False, repr=False)
class At(Mask):
    """A mask moved into a box."""

    mask: Mask
    q: tuple[int, int]
    k: tuple[int, int]

    type = "at"

    @property
    def _children(self) -> tuple[Mask, ...]:
        return (self.mask,)

    @property
    def _extent(self) -> Extent:
        return self.q[1], self.k[1]

    @property
    def _formula(self) -> str:
        return f"{bracketed(self.mask)} at i ∈ [{self.q[0]}, {self.q[1]}), j ∈ [{self.k[0]}, {self.k[1]})"

    @property
    def _support(self) -> Support:
        inner = self.mask._support
        return Support(
            min(self.q[0] + inner.q0, self.q[1]),
            min(self.q[0] + inner.q1, self.q[1]),
            min(self.k[0] + inner.k0, self.k[1]),
            min(self.k[0] + inner.k1, self.k[1]),
        )

    @property
    def _single(self) -> bool:
        return self.mask._single

    def _row_bounds(self, window: Window) -> Bounds:
        low, high = np.zeros((2, window.q_len), np.int64)
        part = window.rows(*self.q)
        first = part.q_start - window.q_start
        inside = slice(first, first + part.q_len)
        inner = Window(part.q_start - self.q[0], part.q_len, self.k[1] - self.k[0])
        if part.q_len:
            inner_low, inner_high = self.mask._row_bounds(inner)
            low[inside] = np.maximum(inner_low, 0) + self.k[0]
            high[inside] = np.minimum(inner_high, inner.kv_len) + self.k[0]
        return low, high

    def _estimate(self, window: Window) -> int:
        part = window.rows(*self.q)
        return self.mask._estimate(Window(max(part.q_start - self.q[0], 0), part.q_len, self.k[1] - self.k[0]))

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        part = window.rows(*self.q)
        keys = min(self.k[1], window.kv_len) - self.k[0]
        if not part.q_len or keys <= 0:
            return IntervalTable.empty(window.q_len, window.kv_len)
        first = part.q_start - window.q_start
        bounds = bounds_of(part, window, bounds)
        if bounds is not None:
            bounds = bounds[0] - self.k[0], bounds[1] - self.k[0]
        if self.mask._support.k1 <= keys:
            # Nothing lies behind the box, so the inner plane may be as wide as ours: the move is one addition.
            inner = self.mask._lower(Window(part.q_start - self.q[0], part.q_len, window.kv_len), bounds)
            return moved(inner, first, self.k[0], window)
        inner = self.mask._lower(Window(part.q_start - self.q[0], part.q_len, keys), bounds)
        return moved(inner.shift(self.k[0], window.kv_len), first, 0, window)

    def _code(self) -> str:
        return f"{self.mask._inner_code()}.at(q={self.q}, k={self.k})"


def at(mask: Mask, q: Any, k: Any) -> At:
    """``mask.at(q=q, k=k)``, checked."""
    q, k = pair(q, "at: q"), pair(k, "at: k")
    for noun, made, (start, stop) in zip(("queries", "keys"), mask.extent, (q, k), strict=True):
        if made is not None and made > stop - start:
            raise ValueError(
                f"at: the mask was made for {made} {noun} and does not fit [{start}, {stop}), "
                f"which holds {stop - start}; make the box larger or build the mask for it"
            )
    return At(mask, q, k)


class _Boxes(Mask):
    """Square boxes one after another on the diagonal."""

    sizes: Int64s

    @cached_property
    def offsets(self) -> Int64s:
        """int64 ``(boxes + 1,)``: where each box starts."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def _extent(self) -> Extent:
        total = int(self.offsets[-1])
        return total, total

    @property
    def _support(self) -> Support:
        total = int(self.offsets[-1])
        return Support(0, total, 0, total)

    def _boxes(self, window: Window) -> Iterator[tuple[int, Window]]:
        """The boxes with rows in the window: number and, in the box's own positions, the window's part of it."""
        part = window.rows(0, int(self.offsets[-1]))
        first = int(np.searchsorted(self.offsets, part.q_start, "right")) - 1
        last = int(np.searchsorted(self.offsets, part.q_stop, "left"))
        for box in range(first, last if part.q_len else first):
            offset, size = int(self.offsets[box]), int(self.sizes[box])
            rows = Window(part.q_start - offset, part.q_len, size).rows(0, size)
            if rows.q_len:
                yield box, rows


@dataclass(frozen=True, eq=False, repr=False)
class Repeat(_Boxes):
    """One mask in every box of the diagonal."""

    sizes: Int64s
    mask: Mask

    type = "repeat"

    @property
    def _children(self) -> tuple[Mask, ...]:
        return (self.mask,)

    @property
    def _formula(self) -> str:
        return f"{bracketed(self.mask)} in each box of sizes {abbreviated(self.sizes)}"

    @property
    def _single(self) -> bool:
        return self.mask._single

    def _local(self, window: Window) -> tuple[Int64s, Int64s, Int64s]:
        """For every row of the window inside a box: position in its box, first key of the box, size of the box."""
        total = int(self.offsets[-1])
        first, last = min(window.q_start, total), min(window.q_stop, total)
        rows_in_box = np.diff(np.clip(self.offsets, first, last))
        offset = np.repeat(self.offsets[:-1], rows_in_box)
        return np.arange(first, last) - offset, offset, np.repeat(self.sizes, rows_in_box)

    def _row_bounds(self, window: Window) -> Bounds:
        row, offset, size = self._local(window)
        largest = int(self.sizes.max())
        inner_low, inner_high = self.mask._row_bounds(Window(0, largest, largest))
        low, high = np.zeros((2, window.q_len), np.int64)
        low[: len(row)] = np.maximum(inner_low[row], 0) + offset
        high[: len(row)] = np.minimum(inner_high[row], size) + offset
        return low, high

    def _estimate(self, window: Window) -> int:
        largest = int(self.sizes.max())
        return window.q_len * self.mask._estimate(Window(0, largest, largest)) // max(largest, 1)

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        if self._single:
            return super()._lower(window, bounds)
        # Positions are absolute, so the mask in a small box is the corner of the mask in the largest one.
        row, offset, size = self._local(window)
        if not len(row):
            return IntervalTable.empty(window.q_len, window.kv_len)
        first, last = int(row.min()), int(row.max()) + 1
        inner = self.mask._lower(Window(first, last - first, int(self.sizes.max())))
        boxes = inner.take_rows(row - first)
        if (size < inner.kv_len).any():
            boxes = boxes.clip(0, size)
        boxes = boxes.shift(offset, window.kv_len)
        return clipped(moved(boxes, 0, 0, window), bounds)

    def _code(self) -> str:
        return f"{self.mask._inner_code()}.repeat({self.sizes.tolist()})"


@dataclass(frozen=True, eq=False, repr=False)
class RepeatEach(_Boxes):
    """A mask of its own in every box of the diagonal."""

    sizes: Int64s
    masks: tuple[Mask, ...]

    type = "repeat"

    @property
    def _children(self) -> tuple[Mask, ...]:
        return self.masks

    @property
    def _formula(self) -> str:
        return f"{len(self.masks)} masks in boxes of sizes {abbreviated(self.sizes)}"

    @property
    def _single(self) -> bool:
        return all(mask._single for mask in self.masks)

    def _row_bounds(self, window: Window) -> Bounds:
        low, high = np.zeros((2, window.q_len), np.int64)
        for box, rows in self._boxes(window):
            offset = int(self.offsets[box])
            first = rows.q_start + offset - window.q_start
            inner_low, inner_high = self.masks[box]._row_bounds(rows)
            low[first : first + rows.q_len] = np.maximum(inner_low, 0) + offset
            high[first : first + rows.q_len] = np.minimum(inner_high, rows.kv_len) + offset
        return low, high

    def _estimate(self, window: Window) -> int:
        return sum(self.masks[box]._estimate(rows) for box, rows in self._boxes(window))

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        if self._single:
            return super()._lower(window, bounds)
        lines = [np.empty(0, np.int64)]
        for box, rows in self._boxes(window):
            offset = int(self.offsets[box])
            inner = self.masks[box]._lower(rows).shift(offset, window.kv_len)
            lines.append(inner.line + (rows.q_start + offset - window.q_start) * (window.kv_len + 1))
        return clipped(IntervalTable(np.concatenate(lines), window.q_len, window.kv_len), bounds)

    def _code(self) -> str:
        return f"cm.repeat({self.sizes.tolist()}, [{', '.join(repr(mask) for mask in self.masks)}])"


def repeat(sizes: ArrayLike, masks: Mask | Iterable[Mask]) -> Repeat | RepeatEach:
    """Square boxes of these sizes one after another on the diagonal, a mask in each, cropped to its box.

    Args:
        sizes: one a box; 0 is allowed.
        masks: one mask for all the boxes, or a list with one for each.

    >>> import cmask_lab as cm
    >>> cm.repeat([2, 1], [cm.full(), cm.causal()]).to_dense(3).astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    array = integers(sizes, "repeat", "size")
    integer(array.sum(), "repeat: the sum of the sizes")
    if isinstance(masks, Mask):
        return Repeat(array, masks)
    if not listed(masks):
        raise TypeError(f"repeat: masks is {masks!r}; it must be a mask or a list of masks")
    each = tuple(masks)
    for n, mask in enumerate(each):
        if not isinstance(mask, Mask):
            raise TypeError(f"repeat: mask {n} is {mask!r}; it must be a mask")
    if len(each) != len(array):
        raise ValueError(
            f"repeat: {len(array)} sizes and {len(each)} masks; give one for each box, or one mask for all"
        )
    return RepeatEach(array, each)


@dataclass(frozen=True, eq=False, repr=False)
class Transposed(Mask):
    """Queries and keys exchanged."""

    mask: Mask

    type = "transposed"

    @property
    def _children(self) -> tuple[Mask, ...]:
        return (self.mask,)

    @property
    def _extent(self) -> Extent:
        queries, keys = self.mask.extent
        return keys, queries

    @property
    def _formula(self) -> str:
        return f"{bracketed(self.mask)}ᵀ"

    @property
    def _support(self) -> Support:
        inner = self.mask._support
        return Support(inner.k0, inner.k1, inner.q0, inner.q1)

    def _estimate(self, window: Window) -> int:
        return self.mask._estimate(Window(0, window.kv_len, window.q_stop))

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        inner = self.mask._lower(Window(0, window.kv_len, window.q_stop)).clip(window.q_start, window.q_stop)
        return clipped(inner.shift(-window.q_start, window.q_len).transpose(), bounds)

    def _code(self) -> str:
        return f"{self.mask._inner_code()}.transposed()"
