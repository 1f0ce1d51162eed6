"""Token grids: tokens laid out in two or three dimensions, row by row, seeing neighbours in space or time.

Along each axis the neighbours of a position are an arithmetic progression, and which ones they are further in depends
on the step taken so far only through a small state (of a disk: what is left of the squared radius). So a grid is
lowered axis by axis: the plane of the inner axes is lowered once for each state, and copies of it, moved along the
diagonal, make the rows of the outer axis. Touching intervals are joined inside the small template, the large result is
written once, in order, without a sort.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmask_lab.compiler.intervals import Int64s, IntervalTable, ragged_range
from cmask_lab.masks.arguments import integer, listed
from cmask_lab.masks.mask import Bounds, Extent, Mask, Support, Window, clipped

AXES = {2: ("y", "x"), 3: ("t", "y", "x")}

Progression = tuple[Int64s, Int64s, int]
"""For every position of an axis: first neighbour, number of neighbours; and the step between them. May stick out."""


class _Template(NamedTuple):
    """The intervals ``[low, high)`` in the rows of one outer position; keys counted from that position's own plane."""

    row: Int64s
    low: Int64s
    high: Int64s

    def line(self, stride: int) -> Int64s:
        """The boundaries, rows ``stride`` apart."""
        row_base = self.row * stride
        return np.stack([row_base + self.low, row_base + self.high], axis=1).reshape(-1)

    def cut(self, position: int, first: int, inner: int, size: int, stride: int) -> tuple[Int64s, Int64s]:
        """The boundaries of ``position`` on an axis of ``size`` planes of ``inner`` tokens; ``first`` has row 0."""
        low = np.maximum(self.low + position * inner, 0)
        high = np.minimum(self.high + position * inner, size * inner)
        kept = low < high
        inside = _Template(self.row[kept], low[kept], high[kept])
        return inside.line(stride), np.array([(position - first) * inner * stride])


@dataclass(frozen=True, eq=False, repr=False)
class GridMask(Mask):
    """A mask over the tokens of a grid; subclasses say which neighbours a token sees along each axis."""

    shape: tuple[int, ...]

    type = "grid"
    kind: ClassVar[str]

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return prod(self.shape)

    @property
    def _extent(self) -> Extent:
        return self.tokens, self.tokens

    @property
    def _support(self) -> Support:
        return Support(0, self.tokens, 0, self.tokens)

    def _state(self) -> Any:
        """What the outermost axis starts with."""
        return None

    def _progression(self, axis: int, state: Any) -> Progression:
        """The neighbours of every position along ``axis``."""
        raise NotImplementedError

    def _next_state(self, axis: int, step: int, state: Any) -> Any:
        """The state of the axis inside ``axis`` after a step of ``step`` along it."""
        return state

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        if window.kv_len < self.tokens:  # as a part of a larger mask only, which has cut the plane
            return self._lower(window._replace(kv_len=self.tokens), bounds).shift(0, window.kv_len)
        inner = prod(self.shape[1:])
        part = window.rows(0, self.tokens)
        first, last = part.q_start // inner, -(-part.q_stop // inner)
        if not part.q_len:
            return IntervalTable.empty(window.q_len, window.kv_len)
        line = self._line(0, self._state(), first, last, window.kv_len + 1)
        # Whole rows of the outermost axis were made; cut the line to the queries asked for.
        edges = (np.array([part.q_start, part.q_stop]) - first * inner) * (window.kv_len + 1)
        begin, end = np.searchsorted(line, edges)
        offset = edges[0] - (part.q_start - window.q_start) * (window.kv_len + 1)
        line = line[begin:end] - offset if offset or end - begin < len(line) else line
        return clipped(IntervalTable(line, window.q_len, window.kv_len), bounds)

    def _line(self, axis: int, state: Any, first: int, last: int, stride: int) -> Int64s:
        """Boundaries for the positions ``[first, last)`` of ``axis`` with all inner axes, rows ``stride`` apart."""
        size, inner = self.shape[axis], prod(self.shape[axis + 1 :])
        start, count, step = self._progression(axis, state)
        if axis == len(self.shape) - 1:
            return _flat_line(start[first:last], count[first:last], step, size, stride)
        reach = start - np.arange(size)
        turns = np.flatnonzero((np.diff(reach) != 0) | (np.diff(count) != 0)) + 1
        borders = [first, *turns[(turns > first) & (turns < last)].tolist(), last]
        planes: dict[Any, IntervalTable] = {}
        copies: list[tuple[Int64s, Int64s]] = []
        for begin, end in pairwise(borders):
            steps = int(reach[begin]) + step * np.arange(int(count[begin]))
            template = self._template(axis, state, steps, planes)
            # Positions whose neighbours all lie inside the axis share the template; at the axis' ends it is cut.
            whole_begin = min(max(begin, -int(steps[0])), end)
            whole_end = max(min(end, size - int(steps[-1])), whole_begin)
            whole = np.arange(whole_begin, whole_end)
            copies += [template.cut(at, first, inner, size, stride) for at in range(begin, whole_begin)]
            copies.append((template.line(stride), whole * inner + (whole - first) * (inner * stride)))
            copies += [template.cut(at, first, inner, size, stride) for at in range(whole_end, end)]
        return _laid_out(copies)

    def _template(self, axis: int, state: Any, steps: Int64s, planes: dict[Any, IntervalTable]) -> _Template:
        """What the rows of one position of ``axis`` see after the given steps along it.

        ``planes`` keeps what the inner axes give for each state.
        """
        inner = prod(self.shape[axis + 1 :])
        rows, starts, stops = [], [], []
        for step in steps.tolist():
            state_inside = self._next_state(axis, step, state)
            if state_inside not in planes:
                line = self._line(axis + 1, state_inside, 0, self.shape[axis + 1], inner + 1)
                planes[state_inside] = IntervalTable(line, inner, inner)
            plane = planes[state_inside]
            offset = (step - int(steps[0])) * inner
            rows.append(plane.rows_per_interval())
            starts.append(plane.start + offset)
            stops.append(plane.stop + offset)
        row, start, stop = (np.concatenate(part) for part in (rows, starts, stops))
        joined = IntervalTable.from_intervals(row, start, stop, inner, int(steps[-1] - steps[0] + 1) * inner)
        base = int(steps[0]) * inner
        start, stop = (edge.astype(np.int64) + base for edge in (joined.start, joined.stop))
        return _Template(joined.rows_per_interval(), start, stop)

    def _code(self) -> str:
        return f"cm.grid({', '.join(map(str, self.shape))}).{self.kind}({self._arguments()})"

    def _arguments(self) -> str:
        return ""

    def _fields(self) -> dict[str, Any]:
        fields = super()._fields()
        return {"shape": fields.pop("shape"), "kind": self.kind, **fields}

    @property
    def _formula(self) -> str:
        return f"{self._rule()} on a {' × '.join(map(str, self.shape))} grid"

    def _rule(self) -> str:
        raise NotImplementedError

    def _estimate(self, window: Window) -> int:
        lines = prod(int(self._progression(axis, self._state())[1].max()) for axis in range(len(self.shape) - 1))
        _, count, step = self._progression(len(self.shape) - 1, self._state())
        return window.q_len * lines * (1 if step == 1 else int(count.max()))


def _flat_line(start: Int64s, count: Int64s, step: int, size: int, stride: int) -> Int64s:
    """Boundaries of the innermost axis: one row for each position, rows ``stride`` apart."""
    row_base = np.arange(len(start)) * stride
    if step == 1:
        low, high = np.maximum(start, 0), np.minimum(start + count, size)
        line = np.stack([row_base + low, row_base + high], axis=1)
        return line[low < high].reshape(-1)
    key = np.repeat(start, count) + step * ragged_range(np.zeros_like(count), count)
    position = np.repeat(row_base, count) + key
    position = position[(key >= 0) & (key < size)]
    return np.stack([position, position + 1], axis=1).reshape(-1)


def _laid_out(copies: list[tuple[Int64s, Int64s]]) -> Int64s:
    """The lines one after another, each once for every one of its shifts."""
    line = np.empty(sum(len(piece) * len(shifts) for piece, shifts in copies), np.int64)
    end = 0
    for piece, shifts in copies:
        begin, end = end, end + len(piece) * len(shifts)
        np.add(piece, shifts[:, None], out=line[begin:end].reshape(len(shifts), len(piece)))
    return line


@dataclass(frozen=True, eq=False, repr=False)
class Disk(GridMask):
    """What is nearer than a radius."""

    radius: int

    kind = "disk"

    def _state(self) -> int:
        return self.radius**2

    def _progression(self, axis: int, state: int) -> Progression:
        size = self.shape[axis]
        half = min(isqrt(state - 1), size - 1)  # the longest step whose square is below the state
        return np.arange(size) - half, np.full(size, 2 * half + 1), 1

    def _next_state(self, axis: int, step: int, state: int) -> int:
        return state - step**2

    def _rule(self) -> str:
        return f"{' + '.join(f'd{axis}²' for axis in AXES[len(self.shape)])} < {self.radius}²"

    def _arguments(self) -> str:
        return str(self.radius)


@dataclass(frozen=True, eq=False, repr=False)
class Box(GridMask):
    """What is at most so many steps away along each axis."""

    radii: tuple[int, ...]

    kind = "box"

    def _progression(self, axis: int, state: None) -> Progression:
        size = self.shape[axis]
        half = min(self.radii[axis], size - 1)
        return np.arange(size) - half, np.full(size, 2 * half + 1), 1

    def _rule(self) -> str:
        return ", ".join(f"|d{axis}| ≤ {r}" for axis, r in zip(AXES[len(self.shape)], self.radii, strict=True))

    def _arguments(self) -> str:
        return ", ".join(map(str, self.radii))


@dataclass(frozen=True, eq=False, repr=False)
class Neighborhood(GridMask):
    """NATTEN's windows, shifted at the border."""

    size: tuple[int, ...]
    dilation: tuple[int, ...]
    causal: tuple[bool, ...]

    kind = "neighborhood"

    def _progression(self, axis: int, state: None) -> Progression:
        length, size, step = self.shape[axis], self.size[axis], self.dilation[axis]
        # Positions of equal remainder modulo the dilation form a group; the window lives inside it.
        member, group = np.divmod(np.arange(length), step)
        if self.causal[axis]:
            first = member - size + 1
        else:
            members = -(-(length - group) // step)
            first = np.clip(member - size // 2, 0, members - size)
        return first * step + group, np.full(length, size), step

    def _rule(self) -> str:
        rule = f"{' × '.join(map(str, self.size))} neighbours"
        if max(self.dilation) > 1:
            rule += f", dilation {' × '.join(map(str, self.dilation))}"
        causal = [axis for axis, on in zip(AXES[len(self.shape)], self.causal, strict=True) if on]
        return f"{rule}, causal in {', '.join(causal)}" if causal else rule

    def _arguments(self) -> str:
        parts = [str(self.size)]
        if max(self.dilation) > 1:
            parts.append(f"dilation={self.dilation}")
        if any(self.causal):
            parts.append(f"causal={self.causal}")
        return ", ".join(parts)


@dataclass(frozen=True, eq=False, repr=False)
class Axial(GridMask):
    """What differs along one axis alone."""

    axes: tuple[int, ...]

    kind = "axial"

    def _state(self) -> bool:
        return True

    def _progression(self, axis: int, state: bool) -> Progression:
        # The state says whether the token is still unmoved: a step along one axis is the only one.
        size = self.shape[axis]
        reach = size - 1 if state and axis in self.axes else 0
        return np.arange(size) - reach, np.full(size, 2 * reach + 1), 1

    def _next_state(self, axis: int, step: int, state: bool) -> bool:
        return state and step == 0

    def _rule(self) -> str:
        return f"the same but for {' or '.join(AXES[len(self.shape)][axis] for axis in self.axes)}"

    def _arguments(self) -> str:
        return "" if len(self.axes) == len(self.shape) else str(self.axes)


@dataclass(frozen=True, eq=False, repr=False)
class CausalTime(GridMask):
    """The own frame and those before."""

    kind = "causal_time"

    @property
    def _single(self) -> bool:
        return True

    def _row_bounds(self, window: Window) -> Bounds:
        frame = self.shape[1] * self.shape[2]
        stop = (window.queries // frame + 1) * frame
        return np.zeros(window.q_len, np.int64), np.where(window.queries < self.tokens, stop, 0)

    def _lower(self, window: Window, bounds: Bounds | None = None) -> IntervalTable:
        return Mask._lower(self, window, bounds)

    def _estimate(self, window: Window) -> int:
        return window.q_len

    def _rule(self) -> str:
        return "t(j) ≤ t(i)"


@dataclass(frozen=True)
class Grid:
    """The layout of ``h × w`` or ``t × h × w`` tokens in row-major order, from which masks are made.

    Token ``(y, x)`` stands at position ``y * w + x``, token ``(t, y, x)`` at ``(t * h + y) * w + x``. Behind the last
    token nothing is visible. Text and image together: ``cm.rect(...) | cm.grid(h, w).disk(r).at(q=..., k=...)``.
    """

    shape: tuple[int, ...]

    def __repr__(self) -> str:
        return f"cm.grid({', '.join(map(str, self.shape))})"

    def disk(self, radius: int) -> Disk:
        """A token sees what is nearer than ``radius``: ``dy² + dx² < radius²``, strictly (CLEAR); ``dt²`` too in 3-D.

        >>> grid(1, 4).disk(2).to_dense(4).astype(int)
        array([[1, 1, 0, 0],
               [1, 1, 1, 0],
               [0, 1, 1, 1],
               [0, 0, 1, 1]])
        """
        return Disk(self.shape, integer(radius, "disk: radius", least=1))

    def box(self, *radii: int) -> Box:
        """A token sees what is at most these steps away along each axis: ``|dy| <= ry and |dx| <= rx``.

        Args:
            radii: one for each axis, or one for all; cut off at the border.

        >>> grid(2, 2).box(0, 1).to_dense(4).astype(int)
        array([[1, 1, 0, 0],
               [1, 1, 0, 0],
               [0, 0, 1, 1],
               [0, 0, 1, 1]])
        """
        return Box(self.shape, self._each(radii, "box", "radius", least=0))

    def neighborhood(
        self, size: int | Iterable[int], *, dilation: int | Iterable[int] = 1, causal: bool | Iterable[bool] = False
    ) -> Neighborhood:
        """Neighbourhood attention as NATTEN defines it: every token sees exactly ``size`` keys along each axis.

        The window is centred (an even size reaches one further back than ahead) and shifted at the border so that it
        keeps its size. With dilation ``d`` the neighbours are ``d`` apart and the border is that of the positions of
        equal remainder modulo ``d``. A causal axis looks back only: the token and ``size - 1`` before it, as far as
        they exist.

        Args:
            size, dilation, causal: one for each axis, or one for all; ``size * dilation`` at most the axis.

        >>> grid(1, 5).neighborhood((1, 3)).to_dense(5).astype(int)
        array([[1, 1, 1, 0, 0],
               [1, 1, 1, 0, 0],
               [0, 1, 1, 1, 0],
               [0, 0, 1, 1, 1],
               [0, 0, 1, 1, 1]])
        """
        sizes = self._each(size, "neighborhood", "size", least=1)
        dilations = self._each(dilation, "neighborhood", "dilation", least=1)
        flags = tuple(causal) if listed(causal) else (causal,) * len(self.shape)
        for n, flag in enumerate(flags):
            if not isinstance(flag, bool | np.bool_):
                raise TypeError(f"neighborhood: causal {n} is {flag!r}; it must be True or False")
        self._check_count(flags, "neighborhood", "causal")
        for name, length, keys, step in zip(AXES[len(self.shape)], self.shape, sizes, dilations, strict=True):
            if keys * step > length:
                raise ValueError(
                    f"neighborhood: size {keys} with dilation {step} spans {keys * step} positions of axis {name}, "
                    f"which has {length}; size * dilation must not be more"
                )
        return Neighborhood(self.shape, sizes, dilations, tuple(bool(flag) for flag in flags))

    def axial(self, axes: int | Iterable[int] | None = None) -> Axial:
        """A token sees those that differ from it along one of ``axes`` alone, and itself.

        Args:
            axes: numbers of axes, in the order of the shape; all of them if not given (2-D: same row or same column).

        >>> grid(2, 2).axial(0).to_dense(4).astype(int)
        array([[1, 0, 1, 0],
               [0, 1, 0, 1],
               [1, 0, 1, 0],
               [0, 1, 0, 1]])
        """
        every = range(len(self.shape))
        chosen = every if axes is None else axes if listed(axes) else [axes]
        numbers = sorted({integer(axis, "axial: axis", most=every[-1]) for axis in chosen})
        if not numbers:
            raise ValueError("axial: the list of axes is empty; give at least one")
        return Axial(self.shape, tuple(numbers))

    def causal_time(self) -> CausalTime:
        """A token sees its own frame and the frames before: block-causal video. For grids ``(t, h, w)``.

        >>> grid(2, 1, 2).causal_time().to_dense(4).astype(int)
        array([[1, 1, 0, 0],
               [1, 1, 0, 0],
               [1, 1, 1, 1],
               [1, 1, 1, 1]])
        """
        if len(self.shape) != 3:
            raise ValueError(f"causal_time: {self!r} has no time axis; make it with cm.grid(t, h, w)")
        return CausalTime(self.shape)

    def _each(self, values: Any, where: str, item: str, least: int) -> tuple[int, ...]:
        """One integer for each axis, from one for all or one each."""
        given = list(values) if listed(values) else [values]
        numbers = tuple(integer(value, f"{where}: {item} {n}", least=least) for n, value in enumerate(given))
        if len(numbers) == 1:
            numbers *= len(self.shape)
        self._check_count(numbers, where, item)
        return numbers

    def _check_count(self, values: tuple[Any, ...], where: str, item: str) -> None:
        if len(values) != len(self.shape):
            raise ValueError(
                f"{where}: {len(values)} values of {item} for {self!r}; give one for each of its "
                f"{len(self.shape)} axes, or one for all"
            )


def grid(*shape: int) -> Grid:
    """Tokens laid out as ``grid(h, w)`` or ``grid(t, h, w)``, row by row; its methods make the masks.

    >>> grid(2, 3).disk(2).extent
    (6, 6)
    """
    if len(shape) not in AXES:
        raise ValueError(f"grid: {len(shape)} sizes given; a grid is grid(h, w) or grid(t, h, w)")
    sizes = tuple(integer(size, f"grid: size {n}", least=1) for n, size in enumerate(shape))
    integer(prod(sizes), "grid: the number of tokens")
    return Grid(sizes)
