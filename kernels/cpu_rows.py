"""What each query tile of a compiled mask sees, as the CPU backend reads it from the descriptor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from cmask_lab.compiler.compile import CompiledMask


@dataclass(frozen=True)
class TileRow:
    """What one query tile sees.

    Attributes:
        first, last: its query positions ``[first, last)``.
        spans: key ranges ``[start, stop)`` that cover the non-empty tiles; the visible keys of the tile row are those
            of all spans, one after another.
        keys: their number.
        partial: ``(column, pattern numbers)`` of neighbouring partial tiles; the column counts visible keys.
    """

    first: int
    last: int
    spans: tuple[tuple[int, int], ...]
    keys: int
    partial: tuple[tuple[int, tuple[int, ...]], ...]


def tile_rows(compiled: CompiledMask) -> list[list[TileRow]]:
    """For each mask its tile rows that see anything."""
    descriptor = compiled.descriptor
    arrays = {name: np.asarray(array) for name, array in descriptor.arrays().items() if name != "patterns"}
    q_tile, kv_tile = descriptor.q_tile, descriptor.kv_tile
    masks: list[list[TileRow]] = []
    for mask in range(descriptor.masks):
        rows = []
        for tile in range(descriptor.q_tiles):
            number = mask * descriptor.q_tiles + tile
            runs = slice(*arrays["run_ptr"][number : number + 2])
            parts = slice(*arrays["partial_ptr"][number : number + 2])
            tiles = arrays["partial_tile"][parts]
            starts = np.concatenate([arrays["run_start"][runs], tiles])
            stops = np.concatenate([arrays["run_stop"][runs], tiles + 1])
            if not len(starts):
                continue
            in_order = np.argsort(starts)
            starts, stops = starts[in_order], stops[in_order]
            opens = np.append(True, starts[1:] > stops[:-1])
            starts, stops = starts[opens], stops[np.append(opens[1:], True)]
            # Column of a partial tile among the visible keys: what the spans before it hold, and its place in its own.
            held = np.cumsum(stops - starts) - (stops - starts)
            span = np.searchsorted(starts, tiles, side="right") - 1
            columns = held[span] + tiles - starts[span]
            groups = np.split(np.arange(len(tiles)), np.flatnonzero(np.diff(columns) > 1) + 1) if len(tiles) else []
            patterns = arrays["partial_pattern"][parts]
            limits = np.minimum(stops * kv_tile, descriptor.kv_len)
            rows.append(
                TileRow(
                    first=tile * q_tile,
                    last=min((tile + 1) * q_tile, descriptor.q_len),
                    spans=tuple(zip((starts * kv_tile).tolist(), limits.tolist(), strict=True)),
                    keys=int((limits - starts * kv_tile).sum()),
                    partial=tuple((int(columns[g[0]]) * kv_tile, tuple(patterns[g].tolist())) for g in groups),
                )
            )
        masks.append(rows)
    return masks


def hide(cells: torch.Tensor, row: TileRow, queries: slice, patterns: np.ndarray, value: float) -> None:
    """Write ``value`` where the patterns hide a cell.

    Args:
        cells: ``(…, queries, keys)``, the visible keys of the tile row.
        row: the tile row.
        queries: query positions of the cells, within the tile row.
        patterns: see :func:`pattern_words`.
        value: to be written.
    """
    rows = slice(queries.start - row.first, queries.stop - row.first)
    for column, numbers in row.partial:
        hidden = ~np.unpackbits(patterns[list(numbers), rows].view(np.uint8), axis=2, bitorder="little").view(np.bool_)
        beside = torch.from_numpy(hidden.transpose(1, 0, 2).reshape(hidden.shape[1], -1))
        across = cells[..., column : column + beside.shape[1]]
        # The last tile of the plane may be cut off.
        across.masked_fill_(beside[:, : across.shape[-1]], value)


def joined(tensor: torch.Tensor, row: TileRow) -> torch.Tensor:
    """The visible keys of ``(units, Skv, …)`` one after another; a view if they are neighbours."""
    parts = [tensor[:, start:stop] for start, stop in row.spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def add_to_keys(target: torch.Tensor, row: TileRow, value: torch.Tensor) -> None:
    """Add what belongs to the visible keys, ``(units, keys, …)``, to ``(units, Skv, …)``."""
    first = 0
    for start, stop in row.spans:
        target[:, start:stop] += value[:, first : first + stop - start]
        first += stop - start


def pattern_words(compiled: CompiledMask) -> np.ndarray:
    """int32 ``(patterns, q_tile, kv_tile // 32)``."""
    return np.ascontiguousarray(compiled.descriptor.patterns)
