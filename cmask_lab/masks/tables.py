"""Regions given by a list or an array: documents, tiles, trees, explicit intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cmask_lab.compiler.intervals import Bools, Int64s, IntervalTable
from cmask_lab.masks.arguments import integer, integers
from cmask_lab.masks.mask import Bounds, Extent, Mask, Support, Window, abbreviated, clipped


@dataclass(frozen=True, eq=False, repr=False)
class Documents(Mask):
    """Packed sequences by their lengths."""

    lengths: Int64s

    type = "documents"

    @cached_property
    def offsets(self) -> Int64s:
        """int64 ``(documents + 1,)``: where each one starts."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def _extent(self) -> Extent:
        total = int(self.offsets[-1])
        return total, total

    @property
    def _formula(self) -> str:
        return f"doc(i) = doc(j), lengths {abbreviated(self.lengths)}"

    @property
    def _support(self) -> Support:
        total = int(self.offsets[-1])
        return Support(0, total, 0, total)

    @property
    def _single(self) -> bool:
        return True

    def _row_bounds(self, window: Window) -> Bounds:
        total = int(self.offsets[-1])
        first, last = min(window.q_start, total), min(window.q_stop, total)
        low, high = np.zeros((2, window.q_len), np.int64)
        inside = np.diff(np.clip(self.offsets, first, last))
        low[: last - first] = np.repeat(self.offsets[:-1], inside)
        high[: last - first] = np.repeat(self.offsets[1:], inside)
        return low, high

    def _code(self) -> str:
        return f"cm.documents({self.lengths.tolist()})"


@dataclass(frozen=True, eq=False, repr=False)
class DocumentIds(Mask):
    """Packed sequences by the id of every token."""

    ids: Int64s

    type = "documents"

    @cached_property
    def _runs(self) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Maximal runs of one id, grouped by id: ``ptr`` ``(groups + 1,)``, ``start`` and ``stop`` ``(runs,)``.

        And the group of every token, ``(tokens,)``; padding is in group -1.
        """
        change = np.flatnonzero(np.diff(self.ids)) + 1
        start, stop = np.append(0, change), np.append(change, len(self.ids))
        run_id = self.ids[start]
        kept = run_id >= 0
        values, run_group = np.unique(run_id[kept], return_inverse=True)
        by_group = np.argsort(run_group, kind="stable")
        ptr = np.concatenate([[0], np.cumsum(np.bincount(run_group, minlength=len(values)))])
        group_of_run = np.full(len(start), -1, np.int64)
        group_of_run[kept] = run_group
        return ptr, start[kept][by_group], stop[kept][by_group], np.repeat(group_of_run, stop - start)

    @property
    def _extent(self) -> Extent:
        return len(self.ids), len(self.ids)

    @property
    def _formula(self) -> str:
        return f"id(i) = id(j) ≥ 0, ids {abbreviated(self.ids)}"

    @property
    def _support(self) -> Support:
        return Support(0, len(self.ids), 0, len(self.ids))

    @property
    def _single(self) -> bool:
        ptr = self._runs[0]
        return len(self._runs[1]) == len(ptr) - 1

    def _groups(self, window: Window) -> Int64s:
        """The group of every row; -1 for padding and for rows behind the last token."""
        groups = np.full(window.q_len, -1, np.int64)
        here = self._runs[3][window.q_start : window.q_stop]
        groups[: len(here)] = here
        return groups

    def _row_bounds(self, window: Window) -> Bounds:
        _, start, stop, _ = self._runs
        groups = self._groups(window)
        # One more, empty, document stands at index -1 for rows that see nothing.
        return np.append(start, 0)[groups], np.append(stop, 0)[groups]

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        if self._single:
            return super()._lower(window, bounds)
        ptr, start, stop, _ = self._runs
        rows = np.append(ptr, ptr[-1])  # the last row of this little table is empty: index -1
        documents = IntervalTable.from_row_ptr(rows, start, stop, window.kv_len)
        return clipped(documents.take_rows(self._groups(window) % documents.q_len), bounds)

    def _estimate(self, window: Window) -> int:
        ptr, start, _, _ = self._runs
        return window.q_len * max(1, len(start) // max(len(ptr) - 1, 1))

    def _code(self) -> str:
        return f"cm.documents(ids={self.ids.tolist()})"


def documents(
    lengths: ArrayLike | None = None, *, offsets: ArrayLike | None = None, ids: ArrayLike | None = None
) -> Documents | DocumentIds:
    """Packed sequences: a query sees the keys of its own document, in both directions (``& causal()`` for one).

    Give exactly one of the three; each a list, a NumPy array or a CPU tensor of integers.

    Args:
        lengths: one a document; 0 is allowed.
        offsets: cumulative, as ``cu_seqlens`` is elsewhere: from 0, never falling, one more than documents.
        ids: one a token, in any order; tokens of equal id are one document wherever they stand. A negative id is
            padding: it sees nothing and nobody sees it.

    Tokens behind the last document see nothing.

    >>> documents([2, 1]).to_dense(4).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 0, 0],
           [0, 0, 1, 0],
           [0, 0, 0, 0]])
    >>> documents(offsets=[0, 2, 3]) == documents([2, 1])
    True
    >>> documents(ids=[7, -1, 7]).to_dense(3).astype(int)
    array([[1, 0, 1],
           [0, 0, 0],
           [1, 0, 1]])
    """
    given = [name for name, value in (("lengths", lengths), ("offsets", offsets), ("ids", ids)) if value is not None]
    if len(given) != 1:
        raise TypeError(f"documents: give exactly one of lengths, offsets and ids, got {' and '.join(given) or 'none'}")
    if ids is not None:
        return DocumentIds(integers(ids, "documents", "id", least=-(2**31)))
    if offsets is not None:
        array = integers(offsets, "documents", "offset")
        if array[0] != 0:
            raise ValueError(f"documents: offset 0 is {array[0]}; the first document starts at 0")
        if len(array) < 2:
            raise ValueError("documents: only one offset given; offsets name the start of each document and the end")
        falls = np.flatnonzero(np.diff(array) < 0)
        if len(falls):
            n = int(falls[0]) + 1
            raise ValueError(f"documents: offset {n} is {array[n]}, below {array[n - 1]} before it; offsets never fall")
        return Documents(_frozen(np.diff(array)))
    array = integers(lengths, "documents", "length", need="every document needs a length of at least 0")
    integer(array.sum(), "documents: the sum of the lengths")
    return Documents(array)


@dataclass(frozen=True, eq=False, repr=False)
class Tiles(Mask):
    """Whole tiles, from a bool matrix."""

    q_size: int
    k_size: int
    matrix: Bools

    type = "tiles"

    @property
    def _extent(self) -> Extent:
        # The last tile may be ragged, but it must begin.
        rows, columns = self.matrix.shape
        return (rows - 1) * self.q_size + 1, (columns - 1) * self.k_size + 1

    @property
    def _formula(self) -> str:
        rows, columns = self.matrix.shape
        return f"B[⌊i/{self.q_size}⌋, ⌊j/{self.k_size}⌋], B a {rows} × {columns} matrix with {self.matrix.sum()} ones"

    @property
    def _support(self) -> Support:
        rows, columns = self.matrix.shape
        return Support(0, rows * self.q_size, 0, columns * self.k_size)

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        runs = IntervalTable.from_dense(self.matrix)
        # One row more than the matrix has: queries below it see nothing.
        ptr = np.append(runs.row_ptr, runs.count)
        start, stop = (edge.astype(np.int64) * self.k_size for edge in (runs.start, runs.stop))
        tiles = IntervalTable.from_row_ptr(ptr, start, stop, window.kv_len)
        return clipped(tiles.take_rows(np.minimum(window.queries // self.q_size, len(self.matrix))), bounds)

    def _estimate(self, window: Window) -> int:
        return window.q_len * (1 + self.matrix.shape[1] // 4)

    def _fields(self) -> dict[str, Any]:
        return {"q_size": self.q_size, "k_size": self.k_size, "rows": self.rows}

    @property
    def rows(self) -> list[str]:
        """The matrix as strings of 0 and 1, one a row."""
        return ["".join("01"[cell] for cell in row) for row in self.matrix.astype(int).tolist()]

    def _code(self) -> str:
        size = str(self.q_size) if self.q_size == self.k_size else f"({self.q_size}, {self.k_size})"
        return f"cm.tiles({self.rows}, {size})"


def tiles(matrix: Any, size: int | tuple[int, int]) -> Tiles:
    """A mask of whole tiles: query tile ``r`` sees key tile ``c`` where ``matrix[r][c]`` is true.

    Args:
        matrix: two-dimensional, bool or 0 and 1; or one string of 0 and 1 for each row.
        size: keys and queries to a tile, or ``(queries, keys)``. The last tiles may be cut off by the sequence's end.

    >>> tiles(["10", "11"], 2).to_dense(4).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 1],
           [1, 1, 1, 1]])
    """
    if isinstance(matrix, list | tuple) and matrix and all(isinstance(row, str) for row in matrix):
        for n, row in enumerate(matrix):
            if set(row) - {"0", "1"} or len(row) != len(matrix[0]):
                raise ValueError(f"tiles: row {n} is {row!r}; rows are strings of 0 and 1, all of one length")
        cells = np.array([[cell == "1" for cell in row] for row in matrix], np.bool_)
    else:
        cells = _bool_matrix(matrix, "tiles: matrix")
    if cells.ndim != 2 or not cells.size:
        raise ValueError(f"tiles: the matrix has shape {cells.shape}; it needs at least one row and one column")
    q_size, k_size = size if isinstance(size, tuple | list) and len(size) == 2 else (size, size)
    q_size, k_size = (integer(value, "tiles: size", least=1) for value in (q_size, k_size))
    integer(max(len(cells) * q_size, cells.shape[1] * k_size), "tiles: the side of the mask")
    return Tiles(q_size, k_size, _frozen(cells))


@dataclass(frozen=True, eq=False, repr=False)
class Tree(Mask):
    """Every node of a token tree sees its ancestors."""

    parents: Int64s

    type = "tree"

    @property
    def _extent(self) -> Extent:
        return len(self.parents), len(self.parents)

    @property
    def _formula(self) -> str:
        return f"j = i or j an ancestor of i, parents {abbreviated(self.parents)}"

    @property
    def _support(self) -> Support:
        return Support(0, len(self.parents), 0, len(self.parents))

    @cached_property
    def _chain(self) -> tuple[Int64s, Int64s, Int64s]:
        """For each node the run ``[start, stop)`` of consecutive ancestors that it begins or ends, and the node above.

        A path may go up by descending or by ascending numbers; in both cases it is one interval.
        """
        nodes = np.arange(len(self.parents))
        head = np.maximum.accumulate(np.where(self.parents == nodes - 1, 0, nodes))
        # Node 0 heads its own run: its parent -1 happens to be the number before it.
        ascending = self.parents == nodes + 1
        tail = np.minimum.accumulate(np.where(ascending, len(nodes), nodes)[::-1])[::-1]
        start, stop = np.where(ascending, nodes, head), np.where(ascending, tail, nodes) + 1
        return start, stop, self.parents[np.where(ascending, tail, head)]

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        start_of, stop_of, above = self._chain
        row = np.arange(max(min(window.q_stop, len(self.parents)) - window.q_start, 0))
        node = row + window.q_start
        rows, starts, stops = [], [], []
        while len(node):
            rows.append(row)
            starts.append(start_of[node])
            stops.append(stop_of[node])
            node = above[node]
            row, node = row[node >= 0], node[node >= 0]
        if not rows:
            return IntervalTable.empty(window.q_len, window.kv_len)
        row, start, stop = (np.concatenate(part) for part in (rows, starts, stops))
        return clipped(IntervalTable.from_intervals(row, start, stop, window.q_len, window.kv_len), bounds)

    def _code(self) -> str:
        return f"cm.tree({self.parents.tolist()})"


def tree(parents: ArrayLike) -> Tree:
    """A token tree: a node sees itself and its ancestors (speculative decoding: Medusa, EAGLE).

    Args:
        parents: for each node the number of its parent, -1 for a root. Several roots make several trees; a parent may
            stand behind its child, but nothing may be its own ancestor.

    >>> tree([-1, 0, 0, 2]).to_dense(4).astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [1, 0, 1, 0],
           [1, 0, 1, 1]])
    """
    array = integers(parents, "tree", "parent", least=-1, need="a parent is a node number, or -1 for a root")
    beyond = np.flatnonzero(array >= len(array))
    if len(beyond):
        n = int(beyond[0])
        raise ValueError(f"tree: parent {n} is {array[n]}; there are only {len(array)} nodes")
    ancestor, steps = array, 1  # the steps-th ancestor of every node; doubled until longer than any path can be
    while steps <= len(array):
        ancestor = np.where(ancestor >= 0, ancestor[ancestor], -1)
        steps *= 2
    if (ancestor >= 0).any():
        n = int(np.flatnonzero(ancestor >= 0)[0])
        raise ValueError(f"tree: node {n} is or hangs below its own ancestor; the parents must lead to a root, -1")
    return Tree(array)


@dataclass(frozen=True, eq=False, repr=False)
class Explicit(Mask):
    """The intervals of every row, one by one."""

    row_ptr: Int64s
    start: Int64s
    stop: Int64s

    type = "explicit"

    @property
    def _extent(self) -> Extent:
        return len(self.row_ptr) - 1, int(self.stop.max(initial=0))

    @property
    def _formula(self) -> str:
        return f"{len(self.start)} intervals in {len(self.row_ptr) - 1} rows"

    @property
    def _support(self) -> Support:
        return Support(0, len(self.row_ptr) - 1, 0, int(self.stop.max(initial=0)))

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        first, last = np.minimum([window.q_start, window.q_stop], len(self.row_ptr) - 1)
        ptr = np.full(window.q_len + 1, self.row_ptr[last], np.int64)
        ptr[: last - first + 1] = self.row_ptr[first : last + 1]
        piece = slice(ptr[0], ptr[-1])
        table = IntervalTable.from_row_ptr(ptr - ptr[0], self.start[piece], self.stop[piece], window.kv_len)
        return clipped(table, bounds)

    def _estimate(self, window: Window) -> int:
        first, last = np.minimum([window.q_start, window.q_stop], len(self.row_ptr) - 1)
        return int(self.row_ptr[last] - self.row_ptr[first])

    def _code(self) -> str:
        return f"cm.explicit({self.row_ptr.tolist()}, {self.start.tolist()}, {self.stop.tolist()})"


def explicit(row_ptr: ArrayLike, start: ArrayLike, stop: ArrayLike) -> Explicit:
    """Any mask at all, as the intervals ``[start[n], stop[n])`` of its rows in compressed form.

    Args:
        row_ptr: row ``i`` has the intervals ``row_ptr[i]`` to ``row_ptr[i + 1]``.
        start, stop: keys; within a row in any order, pieces that overlap or touch are joined.

    >>> explicit([0, 1, 3], [0, 0, 2], [2, 1, 3]).to_dense(2, 3).astype(int)
    array([[1, 1, 0],
           [1, 0, 1]])
    """
    ptr = integers(row_ptr, "explicit", "row_ptr")
    starts = integers(start, "explicit", "start", may_be_empty=True)
    stops = integers(stop, "explicit", "stop", may_be_empty=True)
    if len(starts) != len(stops):
        raise ValueError(f"explicit: {len(starts)} starts and {len(stops)} stops; every interval has one of each")
    if ptr[0] != 0 or ptr[-1] != len(starts) or (np.diff(ptr) < 0).any():
        raise ValueError(
            f"explicit: row_ptr must rise from 0 to the number of intervals, {len(starts)}; "
            f"got {abbreviated(ptr)}, ending in {ptr[-1]}"
        )
    inverted = np.flatnonzero(starts > stops)
    if len(inverted):
        n = int(inverted[0])
        raise ValueError(f"explicit: interval {n} is [{starts[n]}, {stops[n]}); an interval needs start <= stop")
    return from_table(IntervalTable.from_row_ptr(ptr, starts, stops, int(stops.max(initial=0))))


def from_table(table: IntervalTable) -> Explicit:
    """The explicit mask with the rows of a table.

    >>> from_table(IntervalTable.full(1, 2))
    cm.explicit([0, 1], [0], [2])
    """
    return Explicit(*(_frozen(part.astype(np.int64)) for part in (table.row_ptr, table.start, table.stop)))


def from_dense(array: Any) -> Explicit:
    """The mask of a two-dimensional bool array (or of 0 and 1), one row a query.

    >>> from_dense([[1, 0, 1], [0, 1, 0]])
    cm.explicit([0, 2, 3], [0, 2, 1], [1, 3, 2])
    """
    cells = _bool_matrix(array, "from_dense: array")
    return from_table(IntervalTable.from_dense(cells))


def _bool_matrix(value: Any, what: str) -> Bools:
    """A copy of a two-dimensional array of truth values, given as bools or as 0 and 1."""
    if not hasattr(value, "__array__") and (not isinstance(value, Iterable) or isinstance(value, str | bytes)):
        raise TypeError(f"{what} is {value!r}; it must be a two-dimensional array of bools")
    try:
        cells = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{what} can't be read as a two-dimensional array: {error}") from error
    if cells.ndim != 2:
        raise ValueError(f"{what} has shape {cells.shape}; it must be two-dimensional, (queries, keys)")
    if cells.dtype.kind not in "biu" or (cells.dtype.kind != "b" and cells.size and not np.isin(cells, (0, 1)).all()):
        raise TypeError(f"{what} has values of {cells.dtype}; it must hold bools, or integers that are all 0 or 1")
    return cells.astype(np.bool_)


def _frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array
