"""A mask as a formula in Python: whether query ``q`` sees key ``k``, written node by node from the expression tree.

Most regions are a comparison. Where there is no formula (documents of any length, explicit intervals, gathered
positions) a table is looked up. No table is ever read out of bounds: each has one entry more than it has positions,
and ``inside(x, n)`` sends whatever lies outside ``[0, n)`` to that entry. (FlexAttention evaluates a mask beyond the
end of the sequence.)

The text means the same for torch tensors, for NumPy arrays and for the scalars of a CuTe kernel, as long as ``where``
is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cmask_lab.interop.layout import Expression, Inverted, Term, chain, compared, identifier, inline, statement
from cmask_lab.masks.combinators import And, Minus, Not, Or
from cmask_lab.masks.gather import Take
from cmask_lab.masks.grids import AXES, Axial, Box, CausalTime, Disk, GridMask, Neighborhood
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.placement import At, Repeat, RepeatEach, Transposed
from cmask_lab.masks.regions import (
    AntiCausal,
    Band,
    Causal,
    Empty,
    Full,
    GlobalTokens,
    Prefix,
    Rect,
    Sink,
    SlidingWindow,
    Strided,
    Suffix,
)
from cmask_lab.masks.tables import DocumentIds, Documents, Explicit, Tiles, Tree

RANGES_AS_FORMULA = 4
"""More ranges of global tokens than this become a table."""


@dataclass(frozen=True)
class Table:
    """int32 values that a formula looks up; the last one stands for every position outside.

    Attributes:
        sizes: set if the values are 0 ``sizes[0]`` times, 1 ``sizes[1]`` times and so on, ending in ``len(sizes)``.
    """

    values: np.ndarray
    sizes: np.ndarray | None = None


@dataclass(frozen=True)
class Place:
    """The names of a query and a key position, and the lengths below which they are known to lie.

    Positions below 0 occur where a mask has been moved; what is computed for them is discarded by the box around it.
    """

    q: str
    k: str
    q_stop: int
    k_stop: int


class Formula:
    """Writes masks as expressions; statements that have to come first gather in ``lines``, tables in ``tables``.

    Args:
        where: the function that selects, as the source calls it.
        taken: names that the source uses for something else.
        margin: spaces that the lines will be moved to the right.
        scalar: for kernel scalars, whose truth values know & and | but not ~.

    >>> import cmask_lab as cm
    >>> formula = Formula()
    >>> for line in formula.returned(cm.documents([2, 3]) & cm.causal(), Place("q", "k", 5, 5)):
    ...     print(line)
    document_q = document[inside(q, 5)]
    document_k = document[inside(k, 5)]
    return (document_q == document_k) & (k <= q)
    >>> formula.tables["document"].values.tolist()
    [0, 0, 1, 1, 1, 2]
    """

    def __init__(self, where: str = "torch.where", taken: Sequence[str] = (), margin: int = 0, scalar: bool = False):
        self.where = where
        self.scalar = scalar
        self.margin = margin
        self.lines: list[str] = []
        self.tables: dict[str, Table] = {}
        self._taken = {"b", "h", "q", "k", "torch", "inside", "step", "ahead", *taken}
        self._known: dict[object, str] = {}

    def returned(self, mask: Mask, place: Place) -> list[str]:
        """The lines of a function body that returns the mask."""
        result = self.expression(mask, place)
        return [*self.lines, *statement("return", result, 0, self.margin)]

    def any_of(self, masks: Sequence[Mask], index: np.ndarray, place: Place) -> list[str]:
        """The lines of a body that returns the mask of batch entry ``b`` and head ``h``: number ``index[b, h]``."""
        if len(masks) == 1:
            return self.returned(masks[0], place)
        batch, heads = index.shape
        number = self._table("mask_number", np.append(index.reshape(-1), -1))
        entry = f"b * {heads} + h" if min(batch, heads) > 1 else "b" if batch > 1 else "h"
        chosen = self._local("number", f"{number}[inside({entry}, {index.size})]")
        parts = [
            chain("&", [compared(f"{chosen} == {n}"), self.expression(mask, place)]) for n, mask in enumerate(masks)
        ]
        return [*self.lines, *statement("return", chain("|", parts), 0, self.margin)]

    def expression(self, mask: Mask, place: Place) -> Expression:
        """The mask at a place; a mask with a name becomes a variable of that name."""
        if mask.name is None:
            return self._node(mask, place)
        key = (id(mask), place)
        if key not in self._known:
            definition = self._node(mask, place)
            self._known[key] = self._assigned(mask.name, definition)
        return Term(self._known[key])

    # Composition -----------------------------------------------------------------------------------------------------

    def _node(self, mask: Mask, place: Place) -> Expression:
        match mask:
            case And() | Or():
                return chain(mask.symbol, [self.expression(each, place) for each in mask.args])
            case Minus():
                kept, gone = (self.expression(each, place) for each in mask.args)
                return chain("&", [kept, self._not(gone)])
            case Not():
                return self._not(self.expression(mask.arg, place))
            case Transposed():
                return self.expression(mask.mask, Place(place.k, place.q, place.k_stop, place.q_stop))
            case At():
                return self._at(mask, place)
            case Repeat():
                return self._repeat(mask, place)
            case RepeatEach():
                return self._repeat_each(mask, place)
            case Take():
                return self._take(mask, place)
            case GridMask():
                return self._grid(mask, place)
            case _:
                return self._region(mask, place)

    def _not(self, part: Expression) -> Expression:
        if self.scalar:
            return compared(f"{self.where}({inline(part)}, 0, 1) == 1")
        return part.part if isinstance(part, Inverted) else Inverted(part)

    def _at(self, mask: At, place: Place) -> Expression:
        inner = Place(
            self._moved("q", place.q, mask.q[0]),
            self._moved("k", place.k, mask.k[0]),
            mask.q[1] - mask.q[0],
            mask.k[1] - mask.k[0],
        )
        box = self._between(place.q, mask.q, place.q_stop) + self._between(place.k, mask.k, place.k_stop)
        return self._all([*box, self.expression(mask.mask, inner)])

    def _moved(self, axis: str, position: str, by: int) -> str:
        return self._local(f"{axis}_1", f"{position} - {by}") if by else position

    def _repeat(self, mask: Repeat, place: Place) -> Expression:
        total, size = int(mask.offsets[-1]), int(mask.sizes.max())
        inside = self._below(place.q, total, place.q_stop)
        if size and (mask.sizes == size).all():
            inner = Place(
                self._local("q_1", f"{place.q} % {size}"), self._local("k_1", f"{place.k} % {size}"), size, size
            )
            same = compared(f"{place.q} // {size} == {place.k} // {size}")
        else:
            box_q, inner = self._boxed(mask, place)
            box_k = self._lookup("box", self._numbered("box", mask.sizes), place.k, total)
            same = compared(f"{box_q} == {box_k}")
        return self._all([*inside, same, self.expression(mask.mask, inner)])

    def _boxed(self, mask: Repeat | RepeatEach, place: Place) -> tuple[str, Place]:
        """The number of the query's box, and the place inside that box."""
        total = int(mask.offsets[-1])
        box_q = self._lookup("box", self._numbered("box", mask.sizes), place.q, total)
        # Behind the last box the number is that of one more, empty, box.
        start = self._table("box_start", mask.offsets)
        first = self._local("first", f"{start}[{box_q}]")
        size = int(mask.sizes.max())
        q, k = (self._local(f"{a}_1", f"{p} - {first}") for a, p in (("q", place.q), ("k", place.k)))
        return box_q, Place(q, k, size, size)

    def _repeat_each(self, mask: RepeatEach, place: Place) -> Expression:
        total = int(mask.offsets[-1])
        box_q, inner = self._boxed(mask, place)
        box_k = self._lookup("box", self._numbered("box", mask.sizes), place.k, total)
        number: dict[Mask, int] = {}
        which = [number.setdefault(each, len(number)) for each in mask.masks]
        table = self._table("mask_of_box", np.array([*which, -1]))
        chosen = self._local("mask_number", f"{table}[{box_q}]")
        each = [chain("&", [compared(f"{chosen} == {n}"), self.expression(one, inner)]) for one, n in number.items()]
        same = compared(f"{box_q} == {box_k}")
        return self._all([*self._below(place.q, total, place.q_stop), same, chain("|", each)])

    def _take(self, mask: Take, place: Place) -> Expression:
        checks: list[Expression] = []
        names, stops = [place.q, place.k], [place.q_stop, place.k_stop]
        for axis, index in enumerate((mask.q, mask.k)):
            if index is None:
                continue
            checks += self._below(names[axis], len(index), stops[axis])
            label = "qk"[axis]
            table = self._table(f"{label}_order", np.append(index, 0))
            names[axis] = self._local(f"{label}_1", f"{table}[inside({names[axis]}, {len(index)})]")
            stops[axis] = int(index.max()) + 1
        return self._all([*checks, self.expression(mask.mask, Place(names[0], names[1], stops[0], stops[1]))])

    # Regions ---------------------------------------------------------------------------------------------------------

    def _region(self, mask: Mask, place: Place) -> Expression:
        q, k = place.q, place.k
        match mask:
            case Full():
                return self._all([])
            case Empty():
                return compared(f"{k} < 0")
            case Causal():
                return compared(f"{k} <= {q}")
            case AntiCausal():
                return compared(f"{k} >= {q}")
            case SlidingWindow():
                low = [] if mask.left is None else [compared(f"{k} >= {_sum(q, -mask.left)}")]
                high = [] if mask.right is None else [compared(f"{k} <= {_sum(q, mask.right)}")]
                return self._all(low + high)
            case Band():
                low = [] if mask.lo is None else [compared(f"{k} >= {_sum(q, mask.lo)}")]
                high = [] if mask.hi is None else [compared(f"{k} < {_sum(q, mask.hi)}")]
                return self._all(low + high)
            case Rect():
                sides = ((q, mask.q, place.q_stop), (k, mask.k, place.k_stop))
                return self._all([part for at, side, stop in sides if side for part in self._between(at, side, stop)])
            case Prefix():
                return self._all(self._below(k, mask.n, place.k_stop))
            case Sink():
                return self._all([*self._below(k, mask.n, place.k_stop), compared(f"{k} <= {q}")])
            case Suffix():
                return self._all(self._between(k, (mask.start, place.k_stop), place.k_stop))
            case Strided():
                return compared(f"({q} - {k}) % {mask.step} == {mask.phase}")
            case GlobalTokens():
                return self._global_tokens(mask, place)
            case Documents() | DocumentIds():
                return self._documents(mask, place)
            case Tiles():
                return self._tiles(mask, place)
            case Tree():
                return self._tree(mask, place)
            case Explicit():
                return self._explicit(mask, place)
        raise TypeError(
            f"formula: {type(mask).__name__} is a region that has no formula yet; add it to interop/formula.py"
        )

    def _global_tokens(self, mask: GlobalTokens, place: Place) -> Expression:
        ends = ((place.q, place.q_stop), (place.k, place.k_stop))
        if len(mask.ranges) <= RANGES_AS_FORMULA:
            return chain("|", [self._all(self._between(at, one, stop)) for at, stop in ends for one in mask.ranges])
        last = max(stop for _, stop in mask.ranges)
        flags = np.zeros(last + 1, np.int32)
        for start, stop in mask.ranges:
            flags[start:stop] = 1
        table = self._table("is_global", flags)
        return chain("|", [compared(f"{table}[inside({at}, {last})] == 1") for at, _ in ends])

    def _documents(self, mask: Documents | DocumentIds, place: Place) -> Expression:
        q, k = place.q, place.k
        if isinstance(mask, DocumentIds):
            total = len(mask.ids)
            table = self._table("document", np.append(np.maximum(mask.ids, -1), -1))
        else:
            total, size = int(mask.offsets[-1]), int(mask.lengths.max())
            if size and (mask.lengths == size).all():
                return self._all([*self._below(q, total, place.q_stop), compared(f"{q} // {size} == {k} // {size}")])
            table = self._numbered("document", mask.lengths)
        own = self._lookup("document", table, q, total)
        other = self._lookup("document", table, k, total)
        same = compared(f"{own} == {other}")
        if isinstance(mask, Documents):
            return self._all([same, *self._below(q, total, place.q_stop)])
        padded = total < place.q_stop or (mask.ids < 0).any()
        return self._all([same, compared(f"{own} >= 0")] if padded else [same])

    def _tiles(self, mask: Tiles, place: Place) -> Expression:
        rows, columns = mask.matrix.shape
        padded = np.zeros((rows + 1, columns + 1), np.int32)
        padded[:rows, :columns] = mask.matrix
        table = self._table("tile", padded.reshape(-1))
        row = self._local("tile_row", f"inside({place.q} // {mask.q_size}, {rows})")
        column = self._local("tile_column", f"inside({place.k} // {mask.k_size}, {columns})")
        return compared(f"{table}[{row} * {columns + 1} + {column}] == 1")

    def _tree(self, mask: Tree, place: Place) -> Expression:
        # Numbered depth first, the nodes below a node are one range: [enter, leave).
        enter, leave = _depth_first(mask.parents)
        nodes = len(mask.parents)
        # The entry for positions outside: as a query before every range, as a key an empty range.
        enter_table = self._table("enter", np.append(enter, -1))
        leave_table = self._table("leave", np.append(leave, -1))
        below = self._lookup("enter", enter_table, place.q, nodes)
        above = self._lookup("enter", enter_table, place.k, nodes)
        end = self._lookup("leave", leave_table, place.k, nodes)
        return self._all([compared(f"{above} <= {below}"), compared(f"{below} < {end}")])

    def _explicit(self, mask: Explicit, place: Place) -> Expression:
        rows, most = len(mask.row_ptr) - 1, int(np.diff(mask.row_ptr).max(initial=0))
        if most == 0:
            return compared(f"{place.k} < 0")
        if most == 1:
            start, stop = np.zeros((2, rows + 1), np.int64)
            seen = np.flatnonzero(np.diff(mask.row_ptr))
            start[seen], stop[seen] = mask.start, mask.stop
            low = self._lookup("start", self._table("start", start), place.q, rows)
            high = self._lookup("stop", self._table("stop", stop), place.q, rows)
            return self._all([compared(f"{place.k} >= {low}"), compared(f"{place.k} < {high}")])
        edges = np.stack([mask.start, mask.stop], axis=1).reshape(-1)
        count = len(edges)
        pointer = self._table("row_start", np.append(2 * mask.row_ptr, count))
        table = self._table("edge", np.append(edges, 0))
        row = self._local("row", f"inside({place.q}, {rows})")
        first = self._local("first", f"{pointer}[{row}]")
        last = self._local("last", f"{pointer}[{row} + 1]")
        passed = identifier("passed", self._taken)
        steps = tuple(1 << n for n in reversed(range((2 * most).bit_length())))
        edge = f"{table}[inside({passed} + step - 1, {count})]"
        ahead = chain("&", [compared(f"{passed} + step <= {last}"), compared(f"{edge} <= {place.k}")])
        self.lines += [
            "# Edges of the row's intervals at or before the key: an odd number of them is inside an interval.",
            f"{passed} = {first}",
            f"for step in {steps}:",
            *statement("ahead =", ahead, 4, self.margin),
            f"    {passed} = {self.where}(ahead, {passed} + step, {passed})",
        ]
        return compared(f"({passed} - {first}) % 2 == 1")

    # Grids -----------------------------------------------------------------------------------------------------------

    def _grid(self, mask: GridMask, place: Place) -> Expression:
        names = AXES[len(mask.shape)]
        checks = self._below(place.q, mask.tokens, place.q_stop)
        if isinstance(mask, CausalTime):
            frame = mask.shape[1] * mask.shape[2]
            return self._all([*checks, compared(f"{place.k} < ({place.q} // {frame} + 1) * {frame}")])
        checks += self._below(place.k, mask.tokens, place.k_stop)
        of_q = [self._coordinate(mask.shape, axis, place.q) for axis in range(len(names))]
        of_k = [self._coordinate(mask.shape, axis, place.k) for axis in range(len(names))]
        pairs = list(zip(names, of_q, of_k, strict=True))
        if isinstance(mask, Disk):
            steps = [self._local(f"d{name}", f"{b} - {a}") for name, a, b in pairs]
            return self._all([*checks, compared(f"{' + '.join(f'{d} * {d}' for d in steps)} < {mask.radius**2}")])
        if isinstance(mask, Axial):
            same = [compared(f"{a} == {b}") for _, a, b in pairs]
            lines = [self._all([s for n, s in enumerate(same) if n != axis]) for axis in mask.axes]
            return self._all([*checks, chain("|", lines)])
        if isinstance(mask, Box):
            near = [
                compared(side)
                for (_, a, b), radius in zip(pairs, mask.radii, strict=True)
                for side in (f"{b} >= {_sum(a, -radius)}", f"{b} <= {_sum(a, radius)}")
            ]
            return self._all([*checks, *near])
        assert isinstance(mask, Neighborhood)
        for axis, (name, a, b) in enumerate(pairs):
            checks += self._neighbours(mask, axis, name, a, b)
        return self._all(checks)

    def _coordinate(self, shape: tuple[int, ...], axis: int, position: str) -> str:
        inner = int(np.prod(shape[axis + 1 :]))
        text = f"{position} // {inner}" if inner > 1 else position
        if axis:
            text += f" % {shape[axis]}"
        return self._local(f"{AXES[len(shape)][axis]}_{position}", text)

    def _neighbours(self, mask: Neighborhood, axis: int, name: str, a: str, b: str) -> list[Expression]:
        """The window of exactly ``size`` neighbours along one axis, as conditions on the two coordinates."""
        length, size, step = mask.shape[axis], mask.size[axis], mask.dilation[axis]
        checks: list[Expression] = []
        last = f"{length - size}"
        if step > 1:
            checks.append(compared(f"{a} % {step} == {b} % {step}"))
            if not mask.causal[axis]:
                members = f"({length + step - 1} - {a} % {step}) // {step}"
                last = self._local(f"last_{name}", f"{members} - {size}")
            a, b = (self._local(f"member_{at}", f"{at} // {step}") for at in (a, b))
        if mask.causal[axis]:
            return [*checks, compared(f"{b} <= {a}"), compared(f"{b} > {a} - {size}")]
        # The window stays inside the axis: it is moved, not cut.
        first = identifier(f"first_{name}", self._taken)
        self.lines += [
            f"{first} = {a} - {size // 2}",
            f"{first} = {self.where}({first} > {last}, {last}, {first})",
            f"{first} = {self.where}({first} < 0, 0, {first})",
        ]
        return [*checks, compared(f"{b} >= {first}"), compared(f"{b} < {first} + {size}")]

    # Pieces ----------------------------------------------------------------------------------------------------------

    def _all(self, parts: Sequence[Expression]) -> Expression:
        """All conditions together; none at all is a condition that every position meets."""
        return chain("&", parts) if parts else compared("k >= 0")

    def _below(self, position: str, stop: int, known: int) -> list[Expression]:
        """``position < stop``, unless it is known already."""
        return [compared(f"{position} < {stop}")] if stop < known else []

    def _between(self, position: str, side: tuple[int, int], known: int) -> list[Expression]:
        """``start <= position < stop`` without what is known already."""
        start, stop = side
        low = [compared(f"{position} >= {start}")] if start else []
        return low + self._below(position, stop, known)

    def _assigned(self, name: str, expression: Expression) -> str:
        variable = identifier(name, self._taken)
        self.lines += statement(f"{variable} =", expression, 0, self.margin)
        return variable

    def _local(self, name: str, text: str) -> str:
        """A variable for a piece of arithmetic; one for the same text."""
        if text not in self._known:
            self._known[text] = self._assigned(name, Term(text))
        return self._known[text]

    def _lookup(self, name: str, table: str, position: str, positions: int) -> str:
        return self._local(f"{name}_{position}", f"{table}[inside({position}, {positions})]")

    def _numbered(self, name: str, sizes: np.ndarray) -> str:
        """The table that numbers consecutive pieces of these sizes."""
        return self._table(name, np.append(np.repeat(np.arange(len(sizes)), sizes), len(sizes)), sizes)

    def _table(self, name: str, values: np.ndarray, sizes: np.ndarray | None = None) -> str:
        key = ("table", np.asarray(values, np.int64).tobytes())
        if key not in self._known:
            self._known[key] = identifier(name, self._taken)
            self.tables[self._known[key]] = Table(np.asarray(values, np.int32), sizes)
        return self._known[key]


def _sum(name: str, number: int) -> str:
    """``name + number``, with the sign where it belongs."""
    return name if not number else f"{name} {'-' if number < 0 else '+'} {abs(number)}"


def _depth_first(parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every node its number in a depth-first walk, and the number after the last node below it."""
    children: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for node, parent in enumerate(parents.tolist()):
        children[parent].append(node)  # the roots' parent -1 is the last list
    enter, leave = np.zeros((2, len(parents)), np.int64)
    number, stack = 0, [(node, False) for node in reversed(children[-1])]
    while stack:
        node, done = stack.pop()
        if done:
            leave[node] = number
            continue
        enter[node] = number
        number += 1
        stack.append((node, True))
        stack += [(child, False) for child in reversed(children[node])]
    return enter, leave
