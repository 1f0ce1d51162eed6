"""The mask: a set of (query, key) positions on one unbounded plane, built from regions by set algebra.

``mask[i, j]`` is True where query ``i`` sees key ``j``. Positions are absolute, so a mask never depends on the lengths
it is used with: those only say which window of the plane is looked at.

A region is a frozen dataclass whose fields are exactly the fields of its spec node. To add one: the class
(``_row_bounds`` or ``_lower``, ``_extent``, ``_support``, ``_code``, ``_formula``), a lower-case function that checks
the arguments, and one line in ``spec.py``.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from cmask_lab.compiler.intervals import Bools, Int64s, IntervalTable
from cmask_lab.masks.arguments import integer
from cmask_lab.masks.numbered import Numbered
from cmask_lab.short_text import shortened

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from cmask_lab.masks.picture import Picture

SPEC_VERSION = 1
DEPTH_LIMIT = 100
"""Masks may be nested this deep, in Python and in a spec: lowering recurses, and a spec must not exhaust the stack."""

OPEN = 2**62
"""The end of an axis without an end."""

Extent = tuple[int | None, int | None]
Bounds = tuple[Int64s, Int64s]


class Window(NamedTuple):
    """The part of the plane that is looked at: queries ``[q_start, q_start + q_len)`` and keys ``[0, kv_len)``."""

    q_start: int
    q_len: int
    kv_len: int

    @property
    def q_stop(self) -> int:
        """The position after the last row."""
        return self.q_start + self.q_len

    @property
    def queries(self) -> Int64s:
        """int64 ``(q_len,)``: the absolute positions of the rows."""
        return np.arange(self.q_start, self.q_stop, dtype=np.int64)

    def rows(self, start: int, stop: int) -> Window:
        """The window cut to the queries ``[start, stop)``; may be empty."""
        start = min(max(start, self.q_start), self.q_stop)
        return Window(start, max(min(stop, self.q_stop) - start, 0), self.kv_len)


class Support(NamedTuple):
    """A box outside which a mask sees nothing: queries ``[q0, q1)``, keys ``[k0, k1)``; ``OPEN`` for no end."""

    q0: int = 0
    q1: int = OPEN
    k0: int = 0
    k1: int = OPEN


@dataclass(frozen=True, eq=False, repr=False)
class Mask(Numbered):
    """A set of (query, key) positions; immutable, hashable, made by ``cm.causal()``, ``cm.rect(...)`` and the like.

    Operators are set operations. Two masks are equal when their specs mean the same: names don't count, and neither
    does the order of the operands of ``&`` and ``|``.

    >>> import cmask_lab as cm
    >>> mask = cm.causal() & cm.documents([2, 3])
    >>> mask.to_dense(5).astype(int)
    array([[1, 0, 0, 0, 0],
           [1, 1, 0, 0, 0],
           [0, 0, 1, 0, 0],
           [0, 0, 1, 1, 0],
           [0, 0, 1, 1, 1]])
    >>> mask
    cm.causal() & cm.documents([2, 3])
    >>> mask == cm.from_spec(mask.spec())
    True
    """

    type: ClassVar[str]
    # A layer's name; no field, since it is not part of the meaning.
    name: ClassVar[str | None] = None

    __array_ufunc__ = None  # `array & mask` is a TypeError instead of an array of objects

    # What a region says about itself --------------------------------------------------------------------------------

    @property
    def extent(self) -> Extent:
        """The smallest plane ``(queries, keys)`` that holds what the mask was made for; None where it has no end.

        >>> import cmask_lab as cm
        >>> cm.documents([2, 3]).extent, cm.causal().extent
        ((5, 5), (None, None))
        """
        return self._extent

    @cached_property
    def formula(self) -> str:
        """The mask as one line of mathematics, long lists abbreviated.

        >>> import cmask_lab as cm
        >>> (cm.window(3) | cm.prefix(2)).formula
        'i − 3 ≤ j ≤ i ∪ j < 2'
        """
        return self._formula

    @property
    def children(self) -> tuple[Mask, ...]:
        """The masks that this one is made of; none for a region."""
        return self._children

    def walk(self) -> Iterator[Mask]:
        """This mask, then everything that it is made of.

        >>> import cmask_lab as cm
        >>> [part.type for part in (cm.causal() & cm.documents([3])).walk()]
        ['and', 'causal', 'documents']
        """
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def _extent(self) -> Extent:
        return None, None

    @property
    def _formula(self) -> str:
        raise NotImplementedError

    @property
    def _children(self) -> tuple[Mask, ...]:
        return ()

    @property
    def _support(self) -> Support:
        return Support()

    @property
    def _single(self) -> bool:
        """Whether every row is at most one interval, so that ``_row_bounds`` answers."""
        return False

    def _row_bounds(self, window: Window) -> Bounds:
        """For a ``_single`` mask: int64 ``(q_len,)`` twice, the interval ``[lo, hi)`` of every row.

        May reach outside ``[0, kv_len)``; ``lo >= hi`` is an empty row.
        """
        raise NotImplementedError

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        """The intervals inside ``window``.

        ``bounds`` (``lo``, ``hi``, one a row): of every row only what lies in ``[lo, hi)``. An operand that is narrow
        hands its bounds to the wide ones, so that these are never built where they don't matter.
        """
        return IntervalTable.from_row_bounds(*common(self._row_bounds(window), bounds), window.kv_len)

    def _estimate(self, window: Window) -> int:
        """About how many intervals ``_lower`` makes; orders the operands of ``&``."""
        return window.q_len

    def _code(self) -> str:
        """Python that rebuilds the mask, without its name."""
        raise NotImplementedError

    def _fields(self) -> dict[str, Any]:
        """The fields of the spec node, as JSON types."""
        return {field.name: _json(getattr(self, field.name)) for field in dataclasses.fields(self)}

    # Reading ---------------------------------------------------------------------------------------------------------

    def intervals(self, q_len: int, kv_len: int | None = None, q_start: int = 0) -> IntervalTable:
        """For each query of ``[q_start, q_start + q_len)`` its visible keys in ``[0, kv_len)``, as sorted intervals.

        Args:
            kv_len: ``q_start + q_len`` if not given.

        Raises:
            ValueError: the mask was made for a larger plane (see ``extent``).

        >>> import cmask_lab as cm
        >>> table = cm.window(1).intervals(3)
        >>> table.row_ptr.tolist(), table.start.tolist(), table.stop.tolist()
        ([0, 1, 2, 3], [0, 0, 1], [1, 2, 3])
        """
        return self._lower(self._window(q_len, kv_len, q_start))

    def to_dense(self, q_len: int, kv_len: int | None = None, q_start: int = 0) -> Bools:
        """bool ``(q_len, kv_len)``: the mask cell by cell, for small sizes. Arguments and errors as for ``intervals``.

        >>> import cmask_lab as cm
        >>> cm.causal().to_dense(1, 4, q_start=2)
        array([[ True,  True,  True, False]])
        """
        return self.intervals(q_len, kv_len, q_start).to_dense()

    def picture(self, q_len: int | None = None, kv_len: int | None = None, q_start: int = 0) -> Picture:
        """The mask drawn at a chosen length; shows itself in a notebook, ``.svg`` is the drawing alone.

        >>> import cmask_lab as cm
        >>> cm.causal().picture(4).density
        0.625
        """
        from cmask_lab.masks.picture import Picture

        return Picture.of(self, q_len, kv_len, q_start)

    def _repr_html_(self) -> str:
        from cmask_lab.masks.picture import pictures_html

        return pictures_html(self)

    def _window(self, q_len: int, kv_len: int | None, q_start: int) -> Window:
        """The window that the three lengths describe, checked against the extent."""
        q_len, q_start = integer(q_len, "q_len"), integer(q_start, "q_start")
        keys = q_start + q_len if kv_len is None else integer(kv_len, "kv_len")
        made_q, made_k = self.extent
        if made_k is not None and made_k > keys:
            raise ValueError(
                f"{self._short_code}: the mask was made for {made_k} keys and does not fit kv_len {keys}; "
                f"give it {made_k} keys or more, or build it for {keys}"
            )
        if kv_len is None and q_start == 0 and made_q is not None and made_q > q_len:
            raise ValueError(
                f"{self._short_code}: the mask was made for {made_q} queries and does not fit q_len {q_len}; "
                f"give it {made_q} queries or more, or pass kv_len too if these rows are meant to be a part of it"
            )
        return Window(q_start, q_len, keys)

    @property
    def _short_code(self) -> str:
        """The mask in an error message: its name, or the beginning of its ``repr``."""
        return self.name or shortened(repr(self), 60)

    # Spec, repr, equality --------------------------------------------------------------------------------------------

    @property
    def node(self) -> dict[str, Any]:
        """The spec node, without the version: JSON types only."""
        node = {"type": self.type, **self._fields()}
        if self.name is not None:
            node["name"] = self.name
        return node

    def spec(self) -> dict[str, Any]:
        """Versioned JSON that ``cm.from_spec`` rebuilds the mask from.

        >>> import cmask_lab as cm
        >>> cm.window(2, 1).spec()
        {'cmask': 1, 'mask': {'type': 'window', 'left': 2, 'right': 1}}
        """
        return {"cmask": SPEC_VERSION, "mask": self.node}

    def named(self, name: str | None) -> Mask:
        """The same mask with a layer's name, kept in ``repr`` and spec and without meaning; None removes it.

        >>> import cmask_lab as cm
        >>> cm.causal().named("text")
        cm.causal().named('text')
        >>> cm.causal().named("text") == cm.causal()
        True
        """
        if name is not None and not isinstance(name, str):
            raise TypeError(f"named: the name is {name!r}; it must be a string or None")
        other = copy.copy(self)
        object.__setattr__(other, "name", name)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or another process gets: the meaning and the name, nothing remembered; a hash differs there."""
        state = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return state if self.name is None else {**state, "name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        self.__dict__.update(state)

    def __repr__(self) -> str:
        if self.name is None:
            return self._code()
        return f"{self._operand_code()}.named({self.name!r})"

    def _operand_code(self) -> str:
        """``_code`` as it stands inside a longer expression; the operators put themselves in parentheses."""
        return self._code()

    def _inner_code(self) -> str:
        """``repr`` as an operand."""
        return self._operand_code() if self.name is None else repr(self)

    @cached_property
    def _identity(self) -> Any:
        return tuple(_hashable(getattr(self, field.name)) for field in dataclasses.fields(self))

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), self._identity))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mask):
            return NotImplemented
        return self is other or (
            type(self) is type(other) and self._hash == other._hash and self._identity == other._identity
        )

    def __bool__(self) -> bool:
        raise TypeError("a mask is neither true nor false; combine masks with & | - ~ instead of and, or, not")

    @cached_property
    def depth(self) -> int:
        """Levels of nesting: 1 for a region."""
        return 1 + max((child.depth for child in self.children), default=0)

    def __post_init__(self) -> None:
        if self.depth > DEPTH_LIMIT:
            raise ValueError(
                f"{self.type}: masks nested {self.depth} deep; at most {DEPTH_LIMIT} levels are allowed, "
                f"so join operands of one kind first (a | b | c is one level)"
            )
        for child in self.children:
            self._check_child(child)

    def _check_child(self, child: Mask) -> None:
        if child.type in ("per_batch", "per_head"):
            raise ValueError(
                f"{self.type}: a {child.type} mask stands at the top only; apply the operation to each of its masks"
            )

    # Algebra ---------------------------------------------------------------------------------------------------------

    def __and__(self, other: Mask) -> Mask:
        from cmask_lab.masks.combinators import And

        return And.of(self, checked_mask(other, "&: an operand"))

    def __or__(self, other: Mask) -> Mask:
        from cmask_lab.masks.combinators import Or

        return Or.of(self, checked_mask(other, "|: an operand"))

    def __sub__(self, other: Mask) -> Mask:
        from cmask_lab.masks.combinators import Minus

        return Minus((self, checked_mask(other, "-: an operand")))

    # What stands on the left of these is no mask, or its own operator would have been asked.
    def __rand__(self, other: object) -> Mask:
        return checked_mask(other, "&: an operand")

    def __ror__(self, other: object) -> Mask:
        return checked_mask(other, "|: an operand")

    def __rsub__(self, other: object) -> Mask:
        return checked_mask(other, "-: an operand")

    def __invert__(self) -> Mask:
        from cmask_lab.masks.combinators import Not

        return Not(self)

    def at(self, *, q: tuple[int, int], k: tuple[int, int]) -> Mask:
        """The mask moved into the box of queries ``[q[0], q[1])`` and keys ``[k[0], k[1])``.

        Its own (0, 0) comes to the box's corner; nothing outside the box is visible.

        Raises:
            ValueError: the mask was made for a plane larger than the box.

        >>> import cmask_lab as cm
        >>> cm.causal().at(q=(1, 3), k=(2, 4)).to_dense(3, 4).astype(int)
        array([[0, 0, 0, 0],
               [0, 0, 1, 0],
               [0, 0, 1, 1]])
        """
        from cmask_lab.masks.placement import at

        return at(self, q, k)

    def repeat(self, sizes: ArrayLike) -> Mask:
        """The mask once in each of the square boxes of these sizes, one after another on the diagonal.

        A box shows the top left ``size × size`` of the mask. ``cm.repeat(sizes, masks)`` puts a different one in each.

        >>> import cmask_lab as cm
        >>> cm.causal().repeat([1, 2]).to_dense(3).astype(int)
        array([[1, 0, 0],
               [0, 1, 0],
               [0, 1, 1]])
        """
        from cmask_lab.masks.placement import repeat

        return repeat(sizes, self)

    def take(self, *, q: ArrayLike | None = None, k: ArrayLike | None = None) -> Mask:
        """Queries and keys gathered: query ``i`` and key ``j`` of the result are ``q[i]`` and ``k[j]`` of this mask.

        Args:
            q, k: positions of this mask, one for each position of the result; may repeat, need not be all. None leaves
                the axis as it is.

        >>> import cmask_lab as cm
        >>> cm.causal().take(q=[3, 0], k=[1, 3, 0]).to_dense(2, 3).astype(int)
        array([[1, 1, 1],
               [0, 0, 1]])
        """
        from cmask_lab.masks.gather import take

        return take(self, q, k)

    def transposed(self) -> Mask:
        """Queries and keys exchanged.

        >>> import cmask_lab as cm
        >>> cm.causal().transposed().to_dense(2).astype(int)
        array([[1, 1],
               [0, 1]])
        """
        from cmask_lab.masks.placement import Transposed

        return Transposed(self)


def lowered_rows(mask: Mask, window: Window, part: Window, bounds: Bounds | None = None) -> IntervalTable:
    """``mask`` lowered for the rows ``part`` of ``window`` alone; the other rows of the result are empty."""
    return moved(mask._lower(part, bounds_of(part, window, bounds)), part.q_start - window.q_start, 0, window)


def bounds_of(part: Window, window: Window, bounds: Bounds | None) -> Bounds | None:
    """The bounds for the rows ``part`` of ``window``."""
    if bounds is None:
        return None
    first = part.q_start - window.q_start
    return bounds[0][first : first + part.q_len], bounds[1][first : first + part.q_len]


def common(a: Bounds, b: Bounds | None) -> Bounds:
    """What lies within both; None bounds nothing."""
    return a if b is None else (np.maximum(a[0], b[0]), np.minimum(a[1], b[1]))


def clipped(table: IntervalTable, bounds: Bounds | None) -> IntervalTable:
    """The table within bounds, if there are any."""
    return table if bounds is None else table.clip(*bounds)


def moved(table: IntervalTable, row: int, key: int, window: Window) -> IntervalTable:
    """A table of the window's ``kv_len`` as a part of the window, its (0, 0) at (``row``, ``key``).

    Every interval must stay inside the window; then the whole move is one addition.
    """
    offset = row * (window.kv_len + 1) + key
    if offset == 0 and table.q_len == window.q_len:
        return table
    return IntervalTable(table.line + offset, window.q_len, window.kv_len)


def abbreviated(values: Sequence[Any] | Int64s, most: int = 6) -> str:
    """A list for people: its first values and its length.

    >>> abbreviated(range(100), most=3)
    '[0, 1, 2, … 100 in all]'
    """
    if len(values) <= most:
        return f"[{', '.join(str(v) for v in values)}]"
    return f"[{', '.join(str(v) for v in values[:most])}, … {len(values)} in all]"


def bracketed(mask: Mask) -> str:
    """The formula as an operand."""
    return f"({mask.formula})" if len(mask.children) > 1 or "," in mask.formula else mask.formula


def _json(value: Any) -> Any:
    if isinstance(value, Mask):
        return value.node
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [_json(item) for item in value]
    return value


def _hashable(value: Any) -> Any:
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


def checked_mask(value: object, what: str) -> Mask:
    """The value if it is a mask.

    Raises:
        TypeError: it is none; the message says how to make one of it.

    >>> checked_mask(np.eye(2, dtype=bool), "compile: mask")
    Traceback (most recent call last):
    TypeError: compile: mask is ndarray; turn it into a mask with cm.from_dense(array)
    """
    if isinstance(value, Mask):
        return value
    raise TypeError(f"{what} is {type(value).__name__}; {how_to_make_a_mask(value)}")


def how_to_make_a_mask(value: object) -> str:
    """What to do with something that is no mask.

    >>> how_to_make_a_mask(lambda b, h, q, k: q >= k)
    'turn the mask_mod into a mask with cm.from_mask_mod(function, q_len)'
    """
    if hasattr(value, "kv_num_blocks"):
        return "turn the BlockMask into a mask with cm.from_block_mask(block_mask)"
    if hasattr(value, "shape"):
        return "turn it into a mask with cm.from_dense(array)"
    if callable(value) and not isinstance(value, type):
        return "turn the mask_mod into a mask with cm.from_mask_mod(function, q_len)"
    return "give a cmask_lab mask, such as cm.causal()"
