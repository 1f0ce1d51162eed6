"""A problem cut up for the CPU: parts with one mask and some heads each, and pieces of a size that caches hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from cmask_lab.kernels.cpu_rows import TileRow, hide, joined

SCORES_AT_ONCE = 1 << 20
"""Scores held at a time outside the fused kernel (4 MiB of float32): fewer calls against what the caches hold."""


@dataclass(frozen=True)
class Piece:
    """Some query rows of a tile, for some of the kv heads, with all the keys they see.

    Attributes:
        row: the tile row.
        units: the kv heads (of all batch entries, one after another).
        queries: the query positions.
        k, v: ``(units, keys, D)`` and ``(units, keys, Dv)``.
    """

    row: TileRow
    units: slice
    queries: slice
    k: torch.Tensor
    v: torch.Tensor


class Part:
    """The query heads that use one mask: ``lanes`` of the group of each kv head in ``units``.

    Attributes:
        rows: the tile rows of the mask that see anything.
        blind: bool ``(Sq,)``: queries that see nothing.
    """

    def __init__(
        self, units: list[int], lanes: list[int], shape: tuple[int, int], rows: list[TileRow], blind: torch.Tensor
    ):
        self.rows, self.blind = rows, blind
        everything = (len(units), len(lanes)) == shape
        self._units = None if everything else torch.tensor(units)[:, None]
        self._lanes = torch.tensor(lanes)
        self._shape = shape

    def of_queries(self, tensor: torch.Tensor) -> torch.Tensor:
        """``(B, H, Sq, …)`` to ``(units, lanes, Sq, …)``."""
        grouped = tensor.reshape(*self._shape, *tensor.shape[2:])
        return grouped if self._units is None else grouped[self._units, self._lanes]

    def of_keys(self, tensor: torch.Tensor) -> torch.Tensor:
        """``(B, Hkv, Skv, …)`` to ``(units, Skv, …)``."""
        flat = tensor.flatten(0, 1)
        return flat if self._units is None else flat[self._units[:, 0]]

    def put_queries(self, target: torch.Tensor, value: torch.Tensor) -> None:
        """The way back of :meth:`of_queries`, into a contiguous target."""
        grouped = target.view(*self._shape, *target.shape[2:])
        grouped[... if self._units is None else (self._units, self._lanes)] = value.to(target.dtype)

    def add_keys(self, target: torch.Tensor, value: torch.Tensor) -> None:
        """Added to what :meth:`of_keys` took, in a contiguous target; parts may share kv heads."""
        target.view(self._shape[0], *target.shape[2:])[... if self._units is None else self._units[:, 0]] += value

    def pieces(self, k: torch.Tensor, v: torch.Tensor) -> Iterator[Piece]:
        """All pieces that see anything; their scores are at most ``SCORES_AT_ONCE``, or one row of one unit."""
        units, lanes = len(k), len(self._lanes)
        for row in self.rows:
            rows = min(row.last - row.first, max(SCORES_AT_ONCE // (row.keys * lanes), 1))
            step = max(SCORES_AT_ONCE // (row.keys * lanes * rows), 1)
            for first_unit in range(0, units, step):
                some = slice(first_unit, min(first_unit + step, units))
                own_k, own_v = joined(k[some], row), joined(v[some], row)
                for first in range(row.first, row.last, rows):
                    yield Piece(row, some, slice(first, min(first + rows, row.last)), own_k, own_v)


def of_piece(tensor: torch.Tensor, piece: Piece) -> torch.Tensor:
    """A piece of ``(units, lanes, Sq, …)``, lanes and queries as the rows of one matrix: ``(units, rows, …)``."""
    return tensor[piece.units, :, piece.queries].flatten(1, 2)


def into_piece(target: torch.Tensor, piece: Piece, value: torch.Tensor) -> None:
    """The way back of :func:`of_piece`, into a part of ``target``."""
    part = target[piece.units, :, piece.queries]
    part.copy_(value.view(part.shape))


def hide_in_piece(scores: torch.Tensor, piece: Piece, patterns: np.ndarray, value: float) -> None:
    """:func:`hide` for the scores ``(units, rows, keys)`` of a piece."""
    queries = piece.queries.stop - piece.queries.start
    hide(scores.view(len(scores), -1, queries, piece.row.keys), piece.row, piece.queries, patterns, value)
