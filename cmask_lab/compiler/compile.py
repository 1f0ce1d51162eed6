"""The driver: a mask, at given lengths, to everything that a kernel or a picture needs.

``mask → intervals → tiles → descriptor``; every step is a function of the step before and is kept, so that it can be
shown.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from cmask_lab.compiler.cost import cheapest_tiles
from cmask_lab.compiler.descriptor import Descriptor, encode
from cmask_lab.compiler.intervals import Int32s, IntervalTable
from cmask_lab.compiler.order import choose_order, permuted
from cmask_lab.compiler.tiles import TileMap, tile_table
from cmask_lab.masks.combinators import PerBatch, PerHead
from cmask_lab.masks.mask import Mask, checked_mask
from cmask_lab.masks.numbered import Numbered
from cmask_lab.short_text import shortened

if TYPE_CHECKING:
    import torch

TILE_SIZES = (32, 64, 128, 256)
"""Sides that a tile may have: powers of two, and at least one 32-bit word of a pattern."""


@dataclass(frozen=True)
class Stats:
    """What a compiled mask costs, summed over the distinct masks (one, unless masks differ by batch or head).

    Attributes:
        visible_pairs: (query, key) pairs that are visible.
        visited_pairs: pairs in tiles that are not empty: what a kernel computes.
        density: visible pairs over all pairs.
        waste: visited pairs over visible pairs (1 is perfect; infinite if nothing is visible but something is visited).
        full_tiles, partial_tiles, empty_tiles: tiles by class.
        runs: runs of consecutive full tiles.
        patterns: distinct bit patterns of partial tiles.
        intervals, max_intervals_per_row: size of the interval tables.
        descriptor_bytes: bytes of the descriptor on the device.
        compile_ms: wall time of the compilation in milliseconds.
    """

    visible_pairs: int
    visited_pairs: int
    density: float
    waste: float
    full_tiles: int
    partial_tiles: int
    empty_tiles: int
    runs: int
    patterns: int
    intervals: int
    max_intervals_per_row: int
    descriptor_bytes: int
    compile_ms: float


@dataclass(frozen=True, eq=False)
class _HostDescriptor:
    """A descriptor as NumPy arrays, and its transpose once it was asked for."""

    descriptor: Descriptor

    @cached_property
    def transposed(self) -> Descriptor:
        return self.descriptor.transposed()

    def __getstate__(self) -> dict[str, Any]:
        return {"descriptor": self.descriptor}


@dataclass(frozen=True, eq=False, repr=False)
class CompiledMask(Numbered):
    """A mask made ready for kernels: what :func:`compile` returns.

    >>> import cmask_lab as cm
    >>> cm.compile(cm.causal(), 256, tile=128)
    <CompiledMask of cm.causal(): q_len=256, kv_len=256, 1 full and 2 partial tiles of 128×128>

    Attributes:
        mask: the mask as given.
        q_len, kv_len, q_start: the window onto the plane: query rows ``q_start … q_start + q_len - 1`` and keys
            ``0 … kv_len - 1``.
        tile: ``(q_tile, kv_tile)`` in positions.
        mask_index: int32 ``(batch or 1, heads or 1)``: number of the distinct mask that a batch entry and head uses.
        interval_tables, tile_maps: one a distinct mask; of the permuted plane if there is a token order.
        descriptor: NumPy arrays, or torch tensors after :meth:`to`.
        token_order: None, or int32 ``(q_len,)``: position ``p`` of the permuted sequence holds ``token_order[p]``.
        order: "natural", or the name of the token order that the compiler chose.
        compile_ms: wall time in milliseconds.
        device: None for NumPy arrays, else the torch device of the descriptor.
    """

    mask: Mask
    q_len: int
    kv_len: int
    q_start: int
    tile: tuple[int, int]
    mask_index: Int32s
    interval_tables: tuple[IntervalTable, ...]
    tile_maps: tuple[TileMap, ...]
    descriptor: Descriptor
    token_order: Int32s | None
    order: str
    compile_ms: float
    device: str | None = None
    _host: _HostDescriptor | None = None
    _on_device: dict[str, CompiledMask] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The mask, the lengths and what they cost, in a line: the arrays are for kernels."""
        place = f", q_start={self.q_start}" if self.q_start else ""
        order = f", order {self.order!r}" if self.token_order is not None else ""
        where = f", on {self.device}" if self.device else ""
        full, partial = (
            sum(getattr(each, name) for each in self.tile_maps) for name in ("full_tiles", "partial_tiles")
        )
        return (
            f"<CompiledMask of {shortened(repr(self.mask), 80)}: q_len={self.q_len}, kv_len={self.kv_len}{place}, "
            f"{full} full and {partial} partial tiles of {self.tile[0]}×{self.tile[1]}{order}{where}>"
        )

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or another process gets: the fields, nothing remembered; its devices may not exist there."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"_on_device": {}}

    @property
    def batch(self) -> int | None:
        """Batch entries that the mask tells apart; None if it is the same for all."""
        return self.mask_index.shape[0] if isinstance(self.mask, PerBatch) else None

    @property
    def heads(self) -> int | None:
        """Heads that the mask tells apart; None if it is the same for all."""
        return self.mask_index.shape[1] if self.mask_index.shape[1] > 1 or _has_heads(self.mask) else None

    @property
    def masks_count(self) -> int:
        """Number of distinct masks."""
        return len(self.interval_tables)

    @property
    def intervals(self) -> IntervalTable:
        """The interval table of the first distinct mask."""
        return self.interval_tables[0]

    @property
    def tiles(self) -> TileMap:
        """The tiles of the first distinct mask."""
        return self.tile_maps[0]

    def tile_map(self, mask_number: int = 0) -> np.ndarray:
        """uint8 ``(q_tiles, kv_tiles)``: 0 empty, 1 partial, 2 full.

        >>> import cmask_lab as cm
        >>> cm.compile(cm.causal(), 256, tile=(128, 128)).tile_map().tolist()
        [[1, 0], [2, 1]]
        """
        return self.tile_maps[mask_number].classes()

    def tile_density(self, mask_number: int = 0) -> np.ndarray:
        """float32 ``(q_tiles, kv_tiles)``: visible share of every tile's cells, in [0, 1]."""
        return self.tile_maps[mask_number].density()

    @cached_property
    def stats(self) -> Stats:
        """Pairs, tiles, bytes and time; see :class:`Stats`."""
        tables, maps = self.interval_tables, self.tile_maps
        visible = sum(table.visible_pairs for table in tables)
        full, partial = sum(t.full_tiles for t in maps), sum(t.partial_tiles for t in maps)
        visited = (full + partial) * self.tile[0] * self.tile[1]
        return Stats(
            visible_pairs=visible,
            visited_pairs=visited,
            density=visible / max(len(tables) * self.q_len * self.kv_len, 1),
            waste=visited / visible if visible else float("inf") if visited else 1.0,
            full_tiles=full,
            partial_tiles=partial,
            empty_tiles=sum(t.q_tiles * t.kv_tiles for t in maps) - full - partial,
            runs=len(self.descriptor.run_start),
            patterns=len(self.descriptor.patterns),
            intervals=sum(table.count for table in tables),
            max_intervals_per_row=max(int(np.diff(table.row_ptr).max(initial=0)) for table in tables),
            descriptor_bytes=self.descriptor.nbytes,
            compile_ms=self.compile_ms,
        )

    @cached_property
    def longest_row(self) -> int:
        """Tiles that are not empty in the query tile that has most of them.

        >>> import cmask_lab as cm
        >>> cm.compile(cm.causal(), 256, tile=(128, 64)).longest_row
        4
        """
        return max(int((each.full_per_row + each.partial_per_row).max(initial=0)) for each in self.tile_maps)

    @cached_property
    def transposed(self) -> Descriptor:
        """The kv-tile-major descriptor of the backward pass, on the same device; built on first use."""
        if self._host is None:
            return self.descriptor.transposed()
        return self._host.transposed.to(self.descriptor.buffer.device)

    def to(self, device: str | torch.device) -> CompiledMask:
        """This compiled mask with its descriptor as torch tensors on ``device``; made once for each device.

        What is made knows the arrays on the host and not this object: with references both ways neither would be let
        go before Python's collector looks for such rings.
        """
        name = str(device)
        if name == self.device:
            return self
        if name not in self._on_device:
            host = self._host or _HostDescriptor(self.descriptor)
            self._on_device[name] = replace(
                self, descriptor=host.descriptor.to(device), device=name, _host=host, _on_device={}
            )
        return self._on_device[name]


def compile(
    mask: Mask,
    q_len: int,
    kv_len: int | None = None,
    *,
    q_start: int = 0,
    tile: tuple[int, int] | int | None = None,
    order: str | np.ndarray = "natural",
) -> CompiledMask:
    """Compile a mask for given lengths.

    Args:
        mask: any mask, also one that differs by batch entry or head.
        q_len: number of query rows; 0 is allowed.
        kv_len: number of keys; ``q_start + q_len`` if not given.
        q_start: position of the first query row (decoding, chunked prefill).
        tile: ``(q_tile, kv_tile)``, or one number for both, from 32, 64, 128, 256; chosen by the cost model
            (:mod:`cmask_lab.compiler.cost`) if not given.
        order: "natural"; "auto" lets the compiler permute the tokens where that makes less work; or a permutation,
            int ``(q_len,)``. Only for square problems (``q_start`` 0, ``kv_len`` equal to ``q_len``).

    Raises:
        TypeError: ``mask`` is no mask, a length no integer.
        ValueError: lengths that do not fit the mask or one another, an unknown tile or order.

    >>> import cmask_lab as cm
    >>> compiled = cm.compile(cm.causal(), 32768, tile=(128, 128))
    >>> compiled.stats.visible_pairs, compiled.stats.full_tiles, compiled.stats.partial_tiles
    (536887296, 32640, 256)
    """
    began = time.perf_counter()
    checked_mask(mask, "compile: mask")
    q_len, q_start = _length("q_len", q_len), _length("q_start", q_start)
    keys = None if kv_len is None else _length("kv_len", kv_len)
    checked_tile = _tile(tile)
    masks, mask_index = distinct_masks(mask)
    token_order, order_name = None, "natural"
    if not (isinstance(order, str) and order == "natural"):
        if q_start or keys not in (None, q_len):
            raise ValueError(
                f"compile: a token order needs a square problem, got q_len={q_len}, kv_len={kv_len}, "
                f"q_start={q_start}; use order='natural'"
            )
        token_order, order_name = choose_order(masks, q_len, order, checked_tile or (128, 128))
    if not q_len:
        token_order, order_name = None, "natural"
    if token_order is not None:
        for each in masks:
            each._window(q_len, keys, q_start)  # a permuted mask has the extent of its permutation: check this one
        masks = [permuted(each, token_order) for each in masks]
    tables = tuple(each.intervals(q_len, keys, q_start) for each in masks)
    maps = tuple([tile_table(table, checked_tile) for table in tables] if checked_tile else cheapest_tiles(tables))
    descriptor = encode(tables, maps)
    return CompiledMask(
        mask=mask,
        q_len=q_len,
        kv_len=q_start + q_len if keys is None else keys,
        q_start=q_start,
        tile=(descriptor.q_tile, descriptor.kv_tile),
        mask_index=mask_index,
        interval_tables=tables,
        tile_maps=maps,
        descriptor=descriptor,
        token_order=token_order,
        order=order_name,
        compile_ms=(time.perf_counter() - began) * 1e3,
    )


def distinct_masks(mask: Mask) -> tuple[list[Mask], Int32s]:
    """The different masks of a per-batch or per-head mask, and which one each batch entry and head uses.

    >>> import cmask_lab as cm
    >>> masks, index = distinct_masks(cm.per_head([cm.causal(), cm.full(), cm.causal()]))
    >>> len(masks), index.tolist()
    (2, [[0, 1, 0]])
    """
    by_entry = mask.masks if isinstance(mask, PerBatch) else (mask,)
    by_head = [entry.masks if isinstance(entry, PerHead) else (entry,) for entry in by_entry]
    heads = max(len(entry) for entry in by_head)
    number: dict[Mask, int] = {}
    index = np.empty((len(by_head), heads), np.int32)
    for b, entry in enumerate(by_head):
        if len(entry) not in (1, heads):
            raise ValueError(
                f"compile: batch entry {b} has masks for {len(entry)} heads, another entry for {heads}; "
                f"give every entry the same number of heads, or one mask"
            )
        for h in range(heads):
            index[b, h] = number.setdefault(entry[h % len(entry)], len(number))
    return list(number), index


def _has_heads(mask: Mask) -> bool:
    entries = mask.masks if isinstance(mask, PerBatch) else (mask,)
    return any(isinstance(entry, PerHead) for entry in entries)


def _length(name: str, value: int) -> int:
    if isinstance(value, bool):
        raise TypeError(f"compile: {name} is {value}; give an integer number of tokens")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"compile: {name} is {value!r}; give an integer number of tokens") from None
    if number < 0:
        raise ValueError(f"compile: {name} is {number}; a length is at least 0")
    return number


def _tile(tile: tuple[int, int] | int | None) -> tuple[int, int] | None:
    if tile is None:
        return None
    sides: tuple[Any, ...] = ()
    if isinstance(tile, Sequence):
        sides = tuple(tile)
    elif isinstance(tile, SupportsIndex) and getattr(tile, "ndim", 0) == 0:
        sides = (tile, tile)
    if len(sides) != 2 or any(side not in TILE_SIZES for side in sides):
        raise ValueError(f"compile: tile is {tile!r}; give (q_tile, kv_tile) with sides from {TILE_SIZES}, or one side")
    return int(sides[0]), int(sides[1])
