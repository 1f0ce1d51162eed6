"""One query tile, step by step: what a kernel does with the descriptor, in NumPy, and a picture with a slider."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cmask_lab.compiler.descriptor import Descriptor
from cmask_lab.compiler.intervals import Bools
from cmask_lab.course.drawing import FONT, FULL, PARTIAL

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Visit:
    """A kv tile that a query tile has to look at.

    Attributes:
        kv_tile: its number.
        pattern: number of its pattern; None for a full tile.
        visible: bool ``(q_tile, kv_tile)``: the cells that are visible.
    """

    kv_tile: int
    pattern: int | None
    visible: Bools


@dataclass(frozen=True)
class Step:
    """The state of the online softmax after a visit; one entry a query, ``(q_tile,)``, unless said.

    Attributes:
        visit: the kv tile that was visited.
        scores: ``(q_tile, kv_tile)``: scaled products of queries and keys, -inf where hidden.
        maximum: the largest score so far; -inf while nothing was visible.
        correction: what sums and outputs from before this visit were multiplied with.
        total: the sum of ``exp(score - maximum)`` so far.
        out: ``(q_tile, value_dim)``: the weighted sum of values so far, not yet divided by ``total``.
    """

    visit: Visit
    scores: Floats
    maximum: Floats
    correction: Floats
    total: Floats
    out: Floats


def visits(descriptor: Descriptor, tile_row: int) -> list[Visit]:
    """The kv tiles of a tile row, read from the descriptor's arrays as a kernel reads them: runs, then partial tiles.

    >>> import cmask_lab as cm
    >>> descriptor = cm.compile(cm.causal(), 128, tile=32).descriptor
    >>> [(visit.kv_tile, visit.pattern) for visit in visits(descriptor, 2)]
    [(0, None), (1, None), (2, 0)]
    """
    found: list[Visit] = []
    everything = np.ones((descriptor.q_tile, descriptor.kv_tile), np.bool_)
    for run in range(descriptor.run_ptr[tile_row], descriptor.run_ptr[tile_row + 1]):
        full = range(descriptor.run_start[run], descriptor.run_stop[run])
        found.extend(Visit(kv_tile, None, everything) for kv_tile in full)
    for entry in range(descriptor.partial_ptr[tile_row], descriptor.partial_ptr[tile_row + 1]):
        pattern = int(descriptor.partial_pattern[entry])
        words = descriptor.patterns[pattern]
        bits = (words[:, :, None] >> np.arange(32)) & 1
        visible = bits.reshape(descriptor.q_tile, descriptor.kv_tile).astype(np.bool_)
        found.append(Visit(int(descriptor.partial_tile[entry]), pattern, visible))
    return found


def steps(q: Floats, k: Floats, v: Floats, descriptor: Descriptor, query_tile: int, scale: float) -> list[Step]:
    """The online softmax of one query tile of one head.

    Args:
        q: ``(q_len, head_dim)``; k: ``(kv_len, head_dim)``; v: ``(kv_len, value_dim)``. Lengths must be multiples of
            the tile, to keep the walk short.

    >>> import cmask_lab as cm
    >>> ones = np.ones((64, 4))
    >>> last = steps(ones, ones, ones, cm.compile(cm.causal(), 64, tile=32).descriptor, 1, scale=1.0)[-1]
    >>> last.total[[0, 31]]          # query 32 sees 33 keys, query 63 all 64, all with the same score
    array([33., 64.])
    """
    rows = slice(query_tile * descriptor.q_tile, (query_tile + 1) * descriptor.q_tile)
    maximum = np.full(descriptor.q_tile, -np.inf)
    total = np.zeros(descriptor.q_tile)
    out = np.zeros((descriptor.q_tile, v.shape[1]))
    walked = []
    for visit in visits(descriptor, query_tile):
        keys = slice(visit.kv_tile * descriptor.kv_tile, (visit.kv_tile + 1) * descriptor.kv_tile)
        scores = np.where(visit.visible, q[rows] @ k[keys].T * scale, -np.inf)
        higher = np.maximum(maximum, scores.max(axis=1))
        # A query that has seen nothing yet has the maximum -inf; subtracting 0 instead keeps NaN out.
        base = np.where(np.isfinite(higher), higher, 0.0)
        correction = np.exp(maximum - base)
        weights = np.exp(scores - base[:, None])
        total = total * correction + weights.sum(axis=1)
        out = out * correction[:, None] + weights @ v[keys]
        maximum = higher
        walked.append(Step(visit, scores, maximum, correction, total, out))
    return walked


@dataclass(frozen=True)
class Walk:
    """The steps as a picture with a slider; works in a notebook and on a page, without a kernel."""

    steps: list[Step] = field(repr=False)

    def _repr_html_(self) -> str:
        name = f"walk-{next(_NUMBERS)}"
        frames = "".join(
            f"<div class='frame' style='display: {'block' if number == 0 else 'none'}'>{self._frame(number)}</div>"
            for number in range(len(self.steps))
        )
        show = "var f = this.parentNode.querySelectorAll('.frame'); for (var i = 0; i < f.length; i++) "
        show += "f[i].style.display = i == this.value ? 'block' : 'none';"
        label = f"<label for='{name}'>Step</label>"
        slider = f"<input id='{name}' type='range' min='0' max='{len(self.steps) - 1}' value='0' step='1'"
        return f'<div>{label} {slider} style="width: 20em" oninput="{show}">{frames}</div>'

    def _frame(self, number: int) -> str:
        step = self.steps[number]
        kind = "full: no mask is read" if step.visit.pattern is None else f"partial, pattern {step.visit.pattern}"
        text = f"Step {number + 1} of {len(self.steps)}: key tile {step.visit.kv_tile}, {kind}"
        return f"<p>{text}</p>{self._picture(step)}"

    def _picture(self, step: Step) -> str:
        side, top, left = 7, 22, 6
        q_tile, kv_tile = step.scores.shape
        finite = np.concatenate([each.scores[np.isfinite(each.scores)] for each in self.steps])
        lowest, highest = float(finite.min()), float(finite.max())
        colour = FULL if step.visit.pattern is None else PARTIAL
        # Nine shades, one path each: a picture of 1024 cells stays small.
        shade = np.where(np.isfinite(step.scores), (step.scores - lowest) / max(highest - lowest, 1e-9) * 8, -1.0)
        parts = [_text(left, 12, "scores; hidden cells are bare")]
        for level in range(9):
            inside = np.argwhere(np.round(shade) == level)
            path = "".join(f"M{left + c * side} {top + r * side}h{side - 1}v{side - 1}h-{side - 1}z" for r, c in inside)
            parts.append(f'<path d="{path}" fill="{colour}" fill-opacity="{0.12 + 0.11 * level:.2f}"/>')
        at = left + kv_tile * side + 24
        for title, values, most in self._columns(step):
            parts.append(_text(at, 12, title))
            for row, value in enumerate(values):
                if np.isfinite(value):
                    width = max(70 * float(value) / max(most, 1e-9), 0.0)
                    parts.append(_bar(at, top + row * side, width, side - 2))
            at += 120
        size = f'width="{at}" height="{top + q_tile * side + 8}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>'

    def _columns(self, step: Step) -> list[tuple[str, Floats, float]]:
        finite = [each.maximum[np.isfinite(each.maximum)] for each in self.steps]
        lowest = min(float(each.min(initial=0.0)) for each in finite)
        highest = max(float(each.max(initial=0.0)) for each in finite)
        largest_sum = max(float(each.total.max()) for each in self.steps)
        return [
            ("running maximum", step.maximum - lowest, highest - lowest),
            ("correction", step.correction, 1.0),
            ("running sum", step.total, largest_sum),
        ]


_NUMBERS = itertools.count()


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y}" style="{FONT}">{text}</text>'


def _bar(x: float, y: float, width: float, height: float) -> str:
    return f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{height}" fill="currentColor" fill-opacity=".6"/>'
