"""The linter: what is wrong with a mask, or likely to be, before a model is trained with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cmask_lab.compiler.compile import distinct_masks
from cmask_lab.compiler.cost import row_cost
from cmask_lab.compiler.findings import Finding, Findings
from cmask_lab.compiler.intervals import Int64s, IntervalTable, ragged_range
from cmask_lab.compiler.order import candidate_orders
from cmask_lab.compiler.tiles import TileMap, tile_table
from cmask_lab.masks.arguments import integer
from cmask_lab.masks.combinators import Or
from cmask_lab.masks.grids import GridMask, Neighborhood
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.placement import At, Repeat, RepeatEach
from cmask_lab.masks.regions import Causal, SlidingWindow
from cmask_lab.masks.tables import DocumentIds, Documents
from cmask_lab.masks.tables import documents as documents_region

KEYS_OF_A_WINDOW = {
    "huggingface": ("sliding_window=W shows W keys", -1),
    "flashmask": ("its generator's window of W shows W keys", -1),
    "flexattention": ("its examples' q − kv <= W shows W + 1 keys", 0),
    "flashattention": ("window_size=(W, 0) shows W + 1 keys", 0),
    "jax": ("local_window_size=(W, 0) shows W + 1 keys", 0),
    "hstu": ("Meta's max_attn_len=W shows W + 1 keys", 0),
    "natten": ("kernel_size=K shows exactly K keys, shifted at the border", None),
}
"""How libraries count a causal window, and what is to be added to their number to get ``cm.window``'s left."""

HALVED = 0.55
"""A token order is worth telling of if it leaves at most this share of the tiles."""

UNEVEN = 1.25
"""Work is badly balanced if it takes this many times as long as the same work spread evenly."""

SAMPLED_TILES = 4
"""Query tiles on which token orders are compared."""

PROCESSORS = 132
"""Multiprocessors of an H100 or H200."""


@dataclass(frozen=True)
class _Problem:
    """What the rules look at."""

    mask: Mask
    table: IntervalTable
    tiles: TileMap
    q_start: int

    @property
    def queries(self) -> Int64s:
        """Positions of the rows."""
        return np.arange(self.q_start, self.q_start + self.table.q_len)


def check(
    mask: Mask,
    q_len: int,
    kv_len: int | None = None,
    *,
    q_start: int = 0,
    causal: bool = False,
    documents: ArrayLike | None = None,
    library: str | None = None,
    window: int | None = None,
    grid: Sequence[int] | None = None,
    heads: int = 16,
    tile: tuple[int, int] = (128, 128),
) -> Findings:
    """Look for what bites people: empty rows, leaks, windows off by one, wrong lengths, uneven work.

    Args:
        q_len, kv_len, q_start: as for ``cm.compile``.
        causal: the model must not see the future.
        documents: lengths of packed documents that must not see one another.
        library, window: the window's size as another library counts it; ``library`` is one of "huggingface",
            "flashmask", "flexattention", "flashattention", "jax", "hstu", "natten".
        grid: the shape of the image or video, ``(h, w)`` or ``(t, h, w)``.
        heads: batch times heads, for the balance of work.
        tile: ``(q_tile, kv_tile)`` to count in.

    Returns:
        A list of findings, the most severe first.

    Raises:
        TypeError, ValueError: arguments that make no sense. A mask that doesn't fit the lengths is a finding.

    >>> import cmask_lab as cm
    >>> check(cm.documents([2, 2, 3]) & cm.causal(), 8)
    warning documents: the documents have 7 tokens in all, the sequence has 8 (row 7). Remedy: add a document of 1, ...
    warning empty-rows: 1 query sees nothing: its output is 0, its log-sum-exp -inf (row 7). Remedy: cut it off, ...
    >>> check(cm.window(1024), 4096, library="huggingface", window=1024).by("window")
    error window: cm.window(1024, 0) shows 1025 keys; huggingface with 1024 shows 1024 (...). Remedy: use
    cm.window(1023, 0).
    """
    if not isinstance(mask, Mask):
        raise TypeError(f"check: mask is {type(mask).__name__}; give a cmask_lab mask, such as cm.causal()")
    if library is not None and library not in KEYS_OF_A_WINDOW:
        raise ValueError(f"check: library is {library!r}; it must be one of {', '.join(map(repr, KEYS_OF_A_WINDOW))}")
    if window is not None and library is None:
        raise ValueError("check: a window is given without the library that counts it; pass library too")
    q_len, q_start = integer(q_len, "check: q_len"), integer(q_start, "check: q_start")
    masks, index = distinct_masks(mask)
    found: list[Finding] = []
    for number, each in enumerate(masks):
        where = _where(index, number) if len(masks) > 1 else ""
        misfit = _misfit(each, q_len, kv_len, q_start)
        if misfit:
            found.append(_placed(misfit, where))
            continue
        table = each.intervals(q_len, kv_len, q_start)
        problem = _Problem(each, table, tile_table(table, tile), q_start)
        rules = [
            _lengths(problem),
            _empty_rows(problem),
            _first_tiles(problem),
            _future(problem) if causal else iter(()),
            _leaks(problem, documents),
            _windows(problem, library, window),
            _grids(problem, grid),
            _balance(problem, heads),
            _order(problem, tile),
        ]
        found += [_placed(finding, where) for rule in rules for finding in rule]
    return Findings.of(found)


def parts(mask: Mask) -> Iterator[Mask]:
    """A mask and everything that it is made of.

    >>> import cmask_lab as cm
    >>> [part.type for part in parts(cm.causal() & cm.documents([3]))]
    ['and', 'causal', 'documents']
    """
    yield mask
    for child in mask.children:
        yield from parts(child)


def _where(index: np.ndarray, number: int) -> str:
    """The first batch entry and head that use a mask."""
    batch, head = (int(place[0]) for place in np.nonzero(index == number))
    names = [("batch entry", batch, index.shape[0]), ("head", head, index.shape[1])]
    return ", ".join(f"{name} {at}" for name, at, size in names if size > 1)


def _placed(finding: Finding, where: str) -> Finding:
    return Finding(finding.rule, finding.severity, finding.message, finding.remedy, finding.rows, where)


def _count(number: int, noun: str = "query", many: str = "queries") -> str:
    return f"{number:,} {noun if number == 1 else many}"


# Lengths -----------------------------------------------------------------------------------------------------------


def _misfit(mask: Mask, q_len: int, kv_len: int | None, q_start: int) -> Finding | None:
    """The mask was made for a larger plane: nothing else can be said about it."""
    try:
        mask._window(q_len, kv_len, q_start)
    except ValueError as error:
        message, _, remedy = str(error).partition("; ")
        return Finding("lengths", "error", message, remedy)
    return None


def _lengths(problem: _Problem) -> Iterator[Finding]:
    """The mask was made for a smaller plane: what lies behind it sees nothing."""
    documents = [part for part in _outermost(problem.mask) if isinstance(part, Documents | DocumentIds)]
    queries, keys = problem.mask.extent
    stop = problem.q_start + problem.table.q_len
    square = problem.table.kv_len == stop
    if queries is None or queries >= stop or not square:
        return
    rows = np.arange(max(queries, problem.q_start), stop)
    short = stop - queries
    if documents and documents[0].extent[0] == queries:
        yield Finding(
            "documents",
            "warning",
            f"the documents have {queries:,} tokens in all, the sequence has {stop:,}",
            f"add a document of {short:,}, or cut the sequence to {queries:,}",
            rows,
        )
    else:
        yield Finding(
            "lengths",
            "warning",
            f"the mask was made for {queries:,} queries and {keys or 'any'} keys, the sequence has {stop:,}",
            f"rebuild the mask for {stop:,} tokens, or cut the sequence to {queries:,}",
            rows,
        )


def _outermost(mask: Mask) -> Iterator[Mask]:
    """Parts that lie on the same plane as the mask: not those moved into boxes."""
    yield mask
    if not isinstance(mask, At | Repeat | RepeatEach) and mask.type != "take":
        for child in mask.children:
            yield from _outermost(child)


# Rows ----------------------------------------------------------------------------------------------------------------


def _empty_rows(problem: _Problem) -> Iterator[Finding]:
    rows = problem.queries[np.diff(problem.table.row_ptr) == 0]
    if len(rows):
        one = len(rows) == 1
        yield Finding(
            "empty-rows",
            "warning",
            f"{_count(len(rows))} {'sees' if one else 'see'} nothing: "
            f"{'its output is' if one else 'their outputs are'} 0, {'its' if one else 'their'} log-sum-exp -inf",
            f"cut {'it' if one else 'them'} off, or let every query see itself: mask | cm.window(0)",
            rows,
        )


def _first_tiles(problem: _Problem) -> Iterator[Finding]:
    """Rows whose first scheduled tile holds nothing for them: a running maximum of -inf meets exp(-inf − -inf)."""
    tiles, table = problem.tiles, problem.table
    first = np.full(tiles.q_tiles, tiles.kv_tiles, np.int64)
    np.minimum.at(first, tiles.run_row, tiles.run_start)
    np.minimum.at(first, tiles.partial_row, tiles.partial_tile)
    own = table.bounds()[0] // tiles.kv_tile
    seen = np.diff(table.row_ptr) > 0
    late = seen & (own > first[np.arange(table.q_len) // tiles.q_tile])
    if late.any():
        yield Finding(
            "first-tile",
            "note",
            f"{_count(int(late.sum()))} {'sees' if late.sum() == 1 else 'see'} nothing in the first tile that "
            f"{'its' if late.sum() == 1 else 'their'} query tile visits",
            "nothing with cmask_lab; in a kernel of your own guard exp(−∞ − (−∞)), which is NaN",
            problem.queries[late],
        )


def _future(problem: _Problem) -> Iterator[Finding]:
    ahead = problem.table.bounds()[1] > problem.queries + 1
    if ahead.any():
        row = int(np.flatnonzero(ahead)[0])
        yield Finding(
            "future",
            "error",
            f"{_count(int(ahead.sum()))} of a causal model {'sees' if ahead.sum() == 1 else 'see'} the future: query "
            f"{problem.q_start + row} sees key {int(problem.table.bounds()[1][row]) - 1}",
            "use mask & cm.causal(); for a query offset pass q_start",
            problem.queries[ahead],
        )


# Documents -----------------------------------------------------------------------------------------------------------


def _leaks(problem: _Problem, lengths: ArrayLike | None) -> Iterator[Finding]:
    if lengths is None:
        yield from _joined_documents(problem)
        return
    region = documents_region(lengths)
    total = region.extent[1] or 0
    length = problem.q_start + problem.table.q_len
    if total != length:
        yield Finding(
            "documents",
            "error" if total > length else "warning",
            f"the documents have {total:,} tokens in all, the sequence has {length:,}",
            "pass lengths that add up; padding at the end is a document of its own",
        )
    # Tokens behind the last document belong to none: they may see nothing and nobody may see them.
    keys = max(total, problem.table.kv_len)
    window = problem.table.shift(0, keys)
    leaks = window - region.intervals(problem.table.q_len, keys, problem.q_start)
    if leaks.count:
        rows = np.unique(leaks.rows_per_interval())
        (start, _), *_rest = leaks.row(int(rows[0])).tolist()
        yield Finding(
            "leak",
            "error",
            f"{_count(len(rows))} {'sees' if len(rows) == 1 else 'see'} keys of another document: query "
            f"{problem.q_start + int(rows[0])} sees key {start}",
            "use mask & cm.documents(lengths)",
            problem.q_start + rows,
        )


def _joined_documents(problem: _Problem) -> Iterator[Finding]:
    """``documents | causal``, where ``&`` may have been meant."""
    for part in parts(problem.mask):
        if isinstance(part, Or):
            kinds = [type(arg) for arg in part.args]
            if (Documents in kinds or DocumentIds in kinds) and (Causal in kinds or SlidingWindow in kinds):
                yield Finding(
                    "leak",
                    "note",
                    "documents are joined by | with a region that crosses their borders",
                    "if documents must not see one another use & instead",
                )
                return


# Windows and grids ---------------------------------------------------------------------------------------------------


def _windows(problem: _Problem, library: str | None, size: int | None) -> Iterator[Finding]:
    windows = list(dict.fromkeys(part for part in parts(problem.mask) if isinstance(part, SlidingWindow) and part.left))
    if library is None:
        yield from _round_windows(windows)
        return
    how, add = KEYS_OF_A_WINDOW[library]
    if add is None:
        yield from _natten_windows(problem, windows, size)
        return
    for part in windows:
        assert part.left is not None
        if size is None:
            theirs = part.left - add
            yield Finding("window", "note", f"{part!r} is {theirs} in {library} ({how})", f"pass {theirs} there")
        elif part.left != size + add:
            better = SlidingWindow(size + add, part.right)
            severity = "error" if abs(part.left - size - add) == 1 else "warning"
            yield Finding(
                "window",
                severity,
                f"{part!r} shows {part.left + 1} keys; {library} with {size} shows {size + add + 1} ({how})",
                f"use {better!r}",
            )
    if not windows and size is not None:
        yield Finding("window", "warning", f"{library} has a window of {size}, the mask has none", "add cm.window(…)")


def _round_windows(windows: list[SlidingWindow]) -> Iterator[Finding]:
    """A left of 1024 shows 1025 keys, which few people want."""
    for part in windows:
        left = part.left or 0
        if left >= 16 and left & (left - 1) == 0 and part.right == 0:
            yield Finding(
                "window",
                "note",
                f"{part!r} shows {left + 1} keys, the query's own among them: one more than {left}",
                f"for a window of {left} keys use cm.window({left - 1})",
            )


def _natten_windows(problem: _Problem, windows: list[SlidingWindow], size: int | None) -> Iterator[Finding]:
    for part in windows:
        yield Finding(
            "window",
            "warning",
            f"{part!r} is cut off at the border; NATTEN shifts it, so that every query sees equally many keys",
            "use cm.grid(…).neighborhood(size)",
        )
    for part in parts(problem.mask):
        if isinstance(part, Neighborhood) and size is not None and set(part.size) != {size}:
            yield Finding("window", "warning", f"{part!r} is not NATTEN's kernel_size={size}", f"use size {size}")


def _grids(problem: _Problem, shape: Sequence[int] | None) -> Iterator[Finding]:
    grids = list(dict.fromkeys(part.shape for part in parts(problem.mask) if isinstance(part, GridMask)))
    if shape is not None:
        wanted = tuple(integer(side, "check: grid size", least=1) for side in shape)
        for have in grids:
            if have != wanted:
                swapped = _turned(have) == wanted
                yield Finding(
                    "grid",
                    "error",
                    f"the mask's grid is {_times(have)}, the tokens stand as {_times(wanted)}"
                    + (": height and width are swapped" if swapped else ""),
                    f"use cm.grid{wanted}; height comes before width",
                )
        return
    for n, have in enumerate(grids):
        for other in grids[:n]:
            if have != other and have == _turned(other):
                yield Finding(
                    "grid",
                    "warning",
                    f"the mask has grids of {_times(other)} and {_times(have)}: in one of them height and width look "
                    f"swapped",
                    "give height before width in both",
                )


def _turned(shape: Sequence[int]) -> tuple[int, ...]:
    """Height and width exchanged."""
    return (*shape[:-2], shape[-1], shape[-2])


def _times(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


# Work ----------------------------------------------------------------------------------------------------------------


def _balance(problem: _Problem, heads: int) -> Iterator[Finding]:
    """One query tile may take longer than everything else together, spread over the multiprocessors."""
    cost = row_cost(problem.tiles.full_per_row, problem.tiles.partial_per_row)
    if len(cost) * integer(heads, "check: heads", least=1) < 2 * PROCESSORS:
        return  # too little work to fill the device, however it is spread
    even = cost.sum() * heads / PROCESSORS
    heaviest = int(np.argmax(cost))
    if cost[heaviest] > UNEVEN * max(even, float(np.median(cost))):
        first = heaviest * problem.tiles.q_tile
        rows = problem.queries[first : first + problem.tiles.q_tile]
        yield Finding(
            "balance",
            "warning",
            f"the heaviest query tile takes {cost[heaviest] / even:.1f} times as long as all work spread over "
            f"{PROCESSORS} multiprocessors ({heads} heads)",
            "put queries that see very much (global tokens) into a call of their own, or batch more heads",
            rows,
        )


def _order(problem: _Problem, tile: tuple[int, int]) -> Iterator[Finding]:
    table = problem.table
    if problem.q_start or table.q_len != table.kv_len or table.q_len <= 2 * tile[0]:
        return
    tiles = np.arange(problem.tiles.q_tiles)
    # A few query tiles tell well enough which order is the best; the numbers told are those of all.
    sample = np.unique(np.linspace(0, len(tiles) - 1, SAMPLED_TILES + 2)[1:-1].astype(np.int64))
    best, name = np.arange(table.q_len), ""
    least = HALVED * _visited(table, best, tile, sample)
    for candidate, order in candidate_orders(problem.mask, table.q_len, tile[0]):
        visited = _visited(table, order, tile, sample)
        if visited < least:
            best, name, least = order, candidate, visited
    now = problem.tiles.full_tiles + problem.tiles.partial_tiles
    then = _visited(table, best, tile, tiles) if name else now
    if then <= HALVED * now:
        yield Finding(
            "order",
            "note",
            f"with the tokens as {name} a kernel visits {then:,} tiles instead of {now:,}, {then / now:.0%} of them",
            'compile with order="auto", or keep the tokens in that order through the model',
        )


def _visited(table: IntervalTable, order: np.ndarray, tile: tuple[int, int], q_tiles: Int64s) -> int:
    """Tiles that some query tiles visit when position ``p`` of the sequence holds token ``order[p]``."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    visited = 0
    for number in q_tiles.tolist():
        rows = table.take_rows(order[number * tile[0] : (number + 1) * tile[0]])
        seen = IntervalTable.from_intervals(np.zeros(rows.count, np.int64), rows.start, rows.stop, 1, table.kv_len)
        keys = ragged_range(seen.start.astype(np.int64), (seen.stop - seen.start).astype(np.int64))
        visited += len(np.unique(place[keys] // tile[1]))
    return visited
