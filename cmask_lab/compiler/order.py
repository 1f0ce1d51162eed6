"""Token orders: permutations of the sequence that put what sees each other into the same tiles.

Attention does not care in which order tokens stand, as long as queries, keys, values and the mask are permuted alike.
An image that is flattened row by row spreads a small neighbourhood over many tiles; patch by patch it fills few.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from cmask_lab.compiler.cost import row_cost
from cmask_lab.compiler.intervals import Int32s, ragged_range
from cmask_lab.masks.combinators import And, Minus, Not, Or
from cmask_lab.masks.grids import GridMask
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.placement import At, Transposed
from cmask_lab.masks.tables import DocumentIds, Tree, documents

SAMPLED_TILES = 24
"""Query tiles that are counted to estimate the cost of an order."""

GAIN_NEEDED = 0.9
"""An order is worth permuting q, k, v and the output only if it takes at most this share of the natural cost."""

SAME_PLANE = (And, Or, Minus, Not, Transposed)
"""What combines masks without moving them: a token has the same position inside."""


def choose_order(
    masks: Sequence[Mask], length: int, order: str | np.ndarray, tile: tuple[int, int]
) -> tuple[Int32s | None, str]:
    """The permutation that a request stands for, with its name; (None, "natural") if there is nothing to gain.

    Args:
        masks: the distinct masks; the same permutation serves all.
        order: "auto", or int ``(length,)`` with every number from 0 to ``length - 1`` once.
        tile: the tile size to count in.
    """
    if not isinstance(order, str):
        return _checked(order, length), "given"
    if order != "auto":
        raise ValueError(f"compile: order is {order!r}; give 'natural', 'auto' or a permutation of the tokens")
    candidates = list(candidate_orders(masks[0], length, tile[0]))
    if not candidates:
        return None, "natural"
    scores = [_Score(mask, length, tile) for mask in masks]
    best, name = None, "natural"
    lowest = GAIN_NEEDED * sum(score.of(np.arange(length)) for score in scores)
    for candidate, permutation in candidates:
        cost = sum(score.of(permutation) for score in scores)
        if cost < lowest:
            best, name, lowest = permutation, candidate, cost
    return best, name


def permuted(mask: Mask, order: np.ndarray) -> Mask:
    """The mask with queries and keys in another order: position ``p`` has what position ``order[p]`` had.

    Documents that are given by the ids of their tokens are renumbered, instead of looked up: a row of theirs has an
    interval for every few keys in the natural order and one in a good one, and nobody should have to make the first.

    >>> import cmask_lab as cm
    >>> permuted(cm.documents(ids=[0, 1, 0]), np.array([0, 2, 1]))
    cm.documents(ids=[0, 0, 1])
    """
    if isinstance(mask, DocumentIds) and len(mask.ids) == len(order):
        return documents(ids=mask.ids[order])
    if isinstance(mask, And | Or) and _has_ids(mask):
        return type(mask)(tuple(permuted(arg, order) for arg in mask.args))
    if isinstance(mask, Minus) and _has_ids(mask):
        kept, gone = mask.args
        return permuted(kept, order) - permuted(gone, order)
    if isinstance(mask, Not) and _has_ids(mask):
        return ~permuted(mask.arg, order)
    return mask.take(q=order, k=order)


def _has_ids(mask: Mask) -> bool:
    return any(isinstance(part, DocumentIds) for part in mask.walk())


def candidate_orders(mask: Mask, length: int, patch_tokens: int) -> Iterator[tuple[str, Int32s]]:
    """Orders worth trying for a mask: its token grids in patches of ``patch_tokens``, its documents gathered by id, its
    trees depth first.

    >>> import cmask_lab as cm
    >>> names = [name for name, order in candidate_orders(cm.grid(16, 32).disk(3), 512, 16)]
    >>> names
    ['16×1 patches', '8×2 patches', '4×4 patches', '2×8 patches', '1×16 patches']
    """
    parts = list(_placed(mask))
    for first, shape in sorted({(first, part.shape) for first, part in parts if isinstance(part, GridMask)}):
        if first + int(np.prod(shape)) > length:
            continue
        for patch in _patch_shapes(patch_tokens, shape):
            name = "×".join(str(side) for side in patch)
            yield f"{name} patches", _patches(first, shape, patch, length)
    for first, part in parts:
        if isinstance(part, DocumentIds) and first == 0 and len(part.ids) == length:
            yield "documents by id", np.argsort(part.ids, kind="stable").astype(np.int32)
        if isinstance(part, Tree) and first + len(part.parents) <= length:
            order = np.arange(length, dtype=np.int32)
            order[first : first + len(part.parents)] = first + _depth_first(part.parents)
            yield "a tree, depth first", order


class _Score:
    """What orders of a mask's tokens cost: some query tiles of the permuted mask, counted cell by cell."""

    def __init__(self, mask: Mask, length: int, tile: tuple[int, int]):
        self.mask, self.length, self.tile = mask, length, tile
        self.table = None if _has_ids(mask) else mask.intervals(length)

    def of(self, order: np.ndarray) -> float:
        """The cost, in full tiles."""
        q_tile, kv_tile = self.tile
        tiles, kv_tiles = -(-self.length // q_tile), -(-self.length // kv_tile)
        tile_of_key = np.arange(self.length) // kv_tile
        width = np.bincount(tile_of_key, minlength=kv_tiles)
        moved = None
        if self.table is None:
            moved = permuted(self.mask, order)
        else:  # rows are looked up in the natural table, so their keys are natural ones
            tile_of_key[order] = tile_of_key.copy()
        cost = 0.0
        for number in np.unique(np.linspace(0, max(tiles - 1, 0), min(tiles, SAMPLED_TILES)).astype(int)):
            first, stop = number * q_tile, min((number + 1) * q_tile, self.length)
            if moved is not None:
                rows = moved.intervals(int(stop - first), self.length, int(first))
            else:
                assert self.table is not None
                rows = self.table.take_rows(order[first:stop])
            start = rows.start.astype(np.int64)
            pairs = np.bincount(tile_of_key[ragged_range(start, rows.stop - start)], minlength=kv_tiles)
            full = np.count_nonzero((pairs == rows.q_len * width) & (pairs > 0))
            cost += float(row_cost(np.array(full), np.array(np.count_nonzero(pairs) - full)))
        return cost


def _placed(mask: Mask, first: int = 0) -> Iterator[tuple[int, Mask]]:
    """The regions whose queries and keys are the same tokens, each with the position of the first of them."""
    if isinstance(mask, At):
        if mask.q[0] == mask.k[0]:
            yield from _placed(mask.mask, first + mask.q[0])
    elif isinstance(mask, SAME_PLANE):
        for child in mask.children:
            yield from _placed(child, first)
    else:
        yield first, mask


def _depth_first(parents: np.ndarray) -> np.ndarray:
    """The nodes of a tree, each one followed by all that hangs on it: what is on one path stands close together."""
    by_parent = np.argsort(parents, kind="stable")
    first_child = np.searchsorted(parents[by_parent], np.arange(-1, len(parents) + 1)).tolist()
    last_first = by_parent[::-1].tolist()

    def children(node: int) -> list[int]:
        """The last one first, as a stack takes them."""
        return last_first[len(last_first) - first_child[node + 2] : len(last_first) - first_child[node + 1]]

    waiting, order = children(-1), []
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += children(node)
    return np.array(order, np.int32)


def _patch_shapes(tokens: int, shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Boxes of ``tokens`` cells with sides that are powers of two and not longer than the grid's."""
    sides = [1 << n for n in range(tokens.bit_length())]
    for leading in itertools.product(reversed(sides), repeat=len(shape) - 1):
        last, rest = divmod(tokens, int(np.prod(leading)))
        if not rest and last and all(side <= axis for side, axis in zip((*leading, last), shape, strict=True)):
            yield (*leading, last)


def _patches(first: int, shape: tuple[int, ...], patch: tuple[int, ...], length: int) -> Int32s:
    """The order that walks a grid patch by patch and leaves all other tokens where they are."""
    coordinates = np.unravel_index(np.arange(int(np.prod(shape))), shape)
    inside = [axis % side for axis, side in zip(coordinates, patch, strict=True)]
    number = [axis // side for axis, side in zip(coordinates, patch, strict=True)]
    order = np.arange(length, dtype=np.int32)
    # lexsort's last key is the first one to sort by: patch coordinates, then those inside the patch.
    order[first : first + len(coordinates[0])] = first + np.lexsort((*reversed(inside), *reversed(number)))
    return order


def _checked(order: np.ndarray, length: int) -> Int32s:
    array = np.asarray(order)
    if array.shape != (length,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"compile: an order is an integer array of shape ({length},), got {array.dtype} of shape {array.shape}"
        )
    if not np.array_equal(np.sort(array), np.arange(length)):
        raise ValueError(f"compile: an order holds every number from 0 to {length - 1} once; this one does not")
    return array.astype(np.int32)
