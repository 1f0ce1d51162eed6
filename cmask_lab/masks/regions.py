"""Regions given by a few numbers: most are one interval a row, ``[lo(i), hi(i))``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cmask_lab.compiler.intervals import Int64s, IntervalTable, ragged_range
from cmask_lab.masks.arguments import integer, listed, optional_integer, pair
from cmask_lab.masks.mask import OPEN, Bounds, Extent, Mask, Support, Window, abbreviated, clipped

Range = tuple[int, int]


class _OneInterval(Mask):
    """A region with at most one interval in every row; subclasses write ``_row_bounds``."""

    @property
    def _single(self) -> bool:
        return True


def _constant(value: int, window: Window) -> Int64s:
    return np.full(window.q_len, value, np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Full(_OneInterval):
    """Everything."""

    type = "full"

    @property
    def _formula(self) -> str:
        return "all"

    def _row_bounds(self, window: Window) -> Bounds:
        return _constant(0, window), _constant(window.kv_len, window)

    def _code(self) -> str:
        return "cm.full()"


def full() -> Full:
    """Every query sees every key.

    >>> full().to_dense(1, 3)
    array([[ True,  True,  True]])
    """
    return Full()


@dataclass(frozen=True, eq=False, repr=False)
class Empty(_OneInterval):
    """Nothing."""

    type = "empty"

    @property
    def _formula(self) -> str:
        return "nothing"

    @property
    def _support(self) -> Support:
        return Support(0, 0, 0, 0)

    def _row_bounds(self, window: Window) -> Bounds:
        return _constant(0, window), _constant(0, window)

    def _estimate(self, window: Window) -> int:
        return 0

    def _code(self) -> str:
        return "cm.empty()"


def empty() -> Empty:
    """No query sees anything: attention gives 0.

    >>> empty().to_dense(1, 3)
    array([[False, False, False]])
    """
    return Empty()


@dataclass(frozen=True, eq=False, repr=False)
class Causal(_OneInterval):
    """What a query has reached."""

    type = "causal"

    @property
    def _formula(self) -> str:
        return "j ≤ i"

    def _row_bounds(self, window: Window) -> Bounds:
        return _constant(0, window), window.queries + 1

    def _code(self) -> str:
        return "cm.causal()"


def causal() -> Causal:
    """A query sees itself and what comes before it: ``j <= i``, by absolute position.

    >>> causal().to_dense(3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    return Causal()


@dataclass(frozen=True, eq=False, repr=False)
class AntiCausal(_OneInterval):
    """What a query has still to reach."""

    type = "anticausal"

    @property
    def _formula(self) -> str:
        return "j ≥ i"

    def _row_bounds(self, window: Window) -> Bounds:
        return window.queries, _constant(window.kv_len, window)

    def _code(self) -> str:
        return "cm.anticausal()"


def anticausal() -> AntiCausal:
    """A query sees itself and what comes after it: ``j >= i``.

    >>> anticausal().to_dense(2).astype(int)
    array([[1, 1],
           [0, 1]])
    """
    return AntiCausal()


@dataclass(frozen=True, eq=False, repr=False)
class SlidingWindow(_OneInterval):
    """A number of keys to the left and to the right."""

    left: int | None
    right: int | None

    type = "window"

    @property
    def _formula(self) -> str:
        low = "" if self.left is None else f"i − {self.left} ≤ " if self.left else "i ≤ "
        high = "" if self.right is None else f" ≤ i + {self.right}" if self.right else " ≤ i"
        return f"{low}j{high}" if low or high else "all"

    def _row_bounds(self, window: Window) -> Bounds:
        i = window.queries
        low = _constant(0, window) if self.left is None else i - self.left
        high = _constant(window.kv_len, window) if self.right is None else i + (self.right + 1)
        return low, high

    def _code(self) -> str:
        return f"cm.window({self.left}, {self.right})"


def window(left: int | None, right: int | None = 0) -> SlidingWindow:
    """A query sees ``left`` keys before itself, itself, and ``right`` keys after: ``i - left <= j <= i + right``.

    That is ``left + 1 + right`` keys: a causal window of W keys is ``window(W - 1)``.

    Args:
        left, right: at least 0; None for no limit on that side.

    >>> window(1).to_dense(3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """
    return SlidingWindow(optional_integer(left, "window: left"), optional_integer(right, "window: right"))


@dataclass(frozen=True, eq=False, repr=False)
class Band(_OneInterval):
    """A range of diagonals."""

    lo: int | None
    hi: int | None

    type = "band"

    @property
    def _formula(self) -> str:
        low = "" if self.lo is None else f"{self.lo} ≤ ".replace("-", "−")
        high = "" if self.hi is None else f" < {self.hi}".replace("-", "−")
        return f"{low}j − i{high}" if low or high else "all"

    def _row_bounds(self, window: Window) -> Bounds:
        i = window.queries
        low = _constant(0, window) if self.lo is None else i + self.lo
        high = _constant(window.kv_len, window) if self.hi is None else i + self.hi
        return low, high

    def _code(self) -> str:
        return f"cm.band({self.lo}, {self.hi})"


def band(lo: int | None, hi: int | None) -> Band:
    """The diagonals ``lo <= j - i < hi``; negative ones lie before the query.

    Args:
        lo, hi: integers with ``lo <= hi``; None for no limit on that side.

    >>> band(-1, 1).to_dense(3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """
    low = None if lo is None else integer(lo, "band: lo", least=-(2**31))
    high = None if hi is None else integer(hi, "band: hi", least=-(2**31))
    if low is not None and high is not None and low > high:
        raise ValueError(f"band: lo is {low} and hi is {high}; a range [lo, hi) needs lo <= hi")
    return Band(low, high)


@dataclass(frozen=True, eq=False, repr=False)
class Rect(_OneInterval):
    """A rectangle, open on the axes not given."""

    q: Range | None
    k: Range | None

    type = "rect"

    @property
    def _extent(self) -> Extent:
        return self.q and self.q[1], self.k and self.k[1]

    @property
    def _formula(self) -> str:
        sides = [f"{s[0]} ≤ {axis} < {s[1]}" for axis, s in (("i", self.q), ("j", self.k)) if s is not None]
        return ", ".join(sides) or "all"

    @property
    def _support(self) -> Support:
        return Support(*(self.q or (0, OPEN)), *(self.k or (0, OPEN)))

    def _row_bounds(self, window: Window) -> Bounds:
        start, stop = self.k or (0, window.kv_len)
        if self.q is None:
            return _constant(start, window), _constant(stop, window)
        i = window.queries
        return _constant(start, window), np.where((i >= self.q[0]) & (i < self.q[1]), stop, start)

    def _code(self) -> str:
        sides = [f"{axis}={side}" for axis, side in (("q", self.q), ("k", self.k)) if side is not None]
        return f"cm.rect({', '.join(sides)})"


def rect(*, q: Range | None = None, k: Range | None = None) -> Rect:
    """The queries ``[q[0], q[1])`` see the keys ``[k[0], k[1])``; None means all of that axis.

    >>> rect(q=(1, 3), k=(0, 2)).to_dense(3).astype(int)
    array([[0, 0, 0],
           [1, 1, 0],
           [1, 1, 0]])
    """
    return Rect(None if q is None else pair(q, "rect: q"), None if k is None else pair(k, "rect: k"))


@dataclass(frozen=True, eq=False, repr=False)
class Prefix(_OneInterval):
    """The first keys."""

    n: int

    type = "prefix"

    @property
    def _extent(self) -> Extent:
        return None, self.n

    @property
    def _formula(self) -> str:
        return f"j < {self.n}"

    @property
    def _support(self) -> Support:
        return Support(k1=self.n)

    def _row_bounds(self, window: Window) -> Bounds:
        return _constant(0, window), _constant(self.n, window)

    def _code(self) -> str:
        return f"cm.prefix({self.n})"


def prefix(n: int) -> Prefix:
    """Every query sees the first ``n`` keys: ``j < n``.

    >>> prefix(2).to_dense(1, 3)
    array([[ True,  True, False]])
    """
    return Prefix(integer(n, "prefix: n"))


@dataclass(frozen=True, eq=False, repr=False)
class Sink(_OneInterval):
    """The first keys, as far as reached."""

    n: int

    type = "sink"

    @property
    def _formula(self) -> str:
        return f"j < {self.n}, j ≤ i"

    @property
    def _support(self) -> Support:
        return Support(k1=self.n)

    def _row_bounds(self, window: Window) -> Bounds:
        return _constant(0, window), np.minimum(window.queries + 1, self.n)

    def _code(self) -> str:
        return f"cm.sink({self.n})"


def sink(n: int) -> Sink:
    """Every query sees those of the first ``n`` keys that it has reached: ``j < n`` and ``j <= i``.

    Fits any length: of a sequence shorter than ``n`` it shows what there is.

    >>> sink(2).to_dense(3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 0]])
    """
    return Sink(integer(n, "sink: n"))


@dataclass(frozen=True, eq=False, repr=False)
class Suffix(_OneInterval):
    """The keys from a position on."""

    start: int

    type = "suffix"

    @property
    def _formula(self) -> str:
        return f"j ≥ {self.start}"

    @property
    def _support(self) -> Support:
        return Support(k0=self.start)

    def _row_bounds(self, window: Window) -> Bounds:
        return _constant(self.start, window), _constant(window.kv_len, window)

    def _code(self) -> str:
        return f"cm.suffix({self.start})"


def suffix(start: int) -> Suffix:
    """Every query sees the keys from ``start`` on: ``j >= start``.

    >>> suffix(1).to_dense(1, 3)
    array([[False,  True,  True]])
    """
    return Suffix(integer(start, "suffix: start"))


@dataclass(frozen=True, eq=False, repr=False)
class GlobalTokens(Mask):
    """Tokens that see everything and are seen by all."""

    ranges: tuple[Range, ...]

    type = "global_tokens"

    @property
    def _extent(self) -> Extent:
        last = max(stop for _, stop in self.ranges)
        return last, last

    @property
    def _formula(self) -> str:
        return f"i ∈ G or j ∈ G, G = {abbreviated(self.ranges)}"

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        starts, stops = np.array(self.ranges, np.int64).T
        everybody = IntervalTable.from_intervals(np.zeros_like(starts), starts, stops, 1, window.kv_len)
        both = IntervalTable.concatenate([everybody, IntervalTable.full(1, window.kv_len)])
        # Inside as many starts as stops have been passed; ranges may overlap.
        i = window.queries
        open_ranges = np.searchsorted(np.sort(starts), i, "right") - np.searchsorted(np.sort(stops), i, "right")
        return clipped(both.take_rows((open_ranges > 0).astype(np.int64)), bounds)

    def _estimate(self, window: Window) -> int:
        return window.q_len * len(self.ranges)

    def _code(self) -> str:
        return f"cm.global_tokens({list(self.ranges)})"


def global_tokens(ranges: Iterable[Range]) -> GlobalTokens:
    """The tokens in ``ranges`` see everything and are seen by everybody (Longformer, BigBird).

    Args:
        ranges: pairs ``(start, stop)``, in any order; they may overlap.

    >>> global_tokens([(1, 2)]).to_dense(3).astype(int)
    array([[0, 1, 0],
           [1, 1, 1],
           [0, 1, 0]])
    """
    if not listed(ranges):
        raise TypeError(f"global_tokens: ranges is {ranges!r}; it must be a list of pairs (start, stop)")
    items = list(ranges)
    if not items:
        raise ValueError("global_tokens: the list of ranges is empty; give at least one pair (start, stop)")
    return GlobalTokens(tuple(pair(item, f"global_tokens: range {n}") for n, item in enumerate(items)))


@dataclass(frozen=True, eq=False, repr=False)
class Strided(Mask):
    """Every so many diagonals one."""

    step: int
    phase: int

    type = "strided"

    @property
    def _formula(self) -> str:
        return f"(i − j) mod {self.step} = {self.phase}"

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        low, high = (0, window.kv_len) if bounds is None else bounds
        low = np.broadcast_to(np.maximum(low, 0), window.q_len)
        high = np.broadcast_to(np.minimum(high, window.kv_len), window.q_len)
        if self.step == 1:
            return IntervalTable.from_row_bounds(low, high, window.kv_len)
        first = low + (window.queries - self.phase - low) % self.step
        count = np.maximum((high - first + self.step - 1) // self.step, 0)
        row_start = np.arange(window.q_len) * (window.kv_len + 1) + first
        start = ragged_range(np.zeros_like(count), count) * self.step + np.repeat(row_start, count)
        return IntervalTable(np.stack([start, start + 1], axis=1).reshape(-1), window.q_len, window.kv_len)

    def _estimate(self, window: Window) -> int:
        return window.q_len * (1 + window.kv_len // self.step)

    def _code(self) -> str:
        return f"cm.strided({self.step}, {self.phase})"


def strided(step: int, phase: int = 0) -> Strided:
    """Every ``step``-th diagonal: ``(i - j) mod step == phase``.

    Dilated windows are ``window(...) & strided(step)``; only what lies inside the window is ever built.

    Args:
        step: at least 1.
        phase: in ``[0, step)``.

    >>> strided(2).to_dense(3).astype(int)
    array([[1, 0, 1],
           [0, 1, 0],
           [1, 0, 1]])
    """
    step = integer(step, "strided: step", least=1)
    return Strided(step, integer(phase, "strided: phase", most=step - 1))
