"""Masks of every node type with small numbers, and compositions drawn at random: from hypothesis or from a seed."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import cmask_lab.masks as cm
from cmask_lab.masks import Mask

SIDE = 24
"""Every sample fits a plane of this many queries and keys."""

WINDOWS = [(SIDE, SIDE, 0), (31, 37, 0), (1, SIDE, 17), (9, 29, 11), (0, SIDE, 3), (13, 27, 40)]
"""Views ``(q_len, kv_len, q_start)``: square, odd, one decoding row, the middle, nothing, and past the end."""


class Draw:
    """A source of choices: hypothesis' ``draw`` or a seeded generator; everything below is made from integers."""

    def __init__(self, integer):
        self.integer = integer

    @classmethod
    def seeded(cls, seed: int) -> Draw:
        random = np.random.default_rng(seed)
        return cls(lambda least, most: int(random.integers(least, most + 1)))

    def span(self, end: int = SIDE) -> tuple[int, int]:
        start = self.integer(0, end)
        return start, self.integer(start, end)

    def many(self, least: int, most: int, low: int, high: int) -> list[int]:
        return [self.integer(low, high) for _ in range(self.integer(least, most))]

    def sizes(self, end: int = SIDE) -> list[int]:
        cuts = sorted(self.many(1, 4, 0, end))
        return np.diff([0, *cuts]).tolist()


def region(draw: Draw) -> Mask:
    """A region of any kind."""
    kinds = [
        lambda: [cm.full(), cm.empty(), cm.causal(), cm.anticausal()][draw.integer(0, 3)],
        lambda: cm.window(*([None, *range(9)][draw.integer(0, 9)] for _ in range(2))),
        lambda: band(draw),
        lambda: cm.rect(
            q=draw.span() if draw.integer(0, 2) else None,
            k=draw.span() if draw.integer(0, 2) else None,
        ),
        lambda: cm.prefix(draw.integer(0, SIDE)),
        lambda: cm.sink(draw.integer(0, 9)),
        lambda: cm.suffix(draw.integer(0, SIDE)),
        lambda: cm.global_tokens([draw.span() for _ in range(draw.integer(1, 3))]),
        lambda: cm.documents(draw.sizes()),
        lambda: cm.documents(ids=draw.many(1, SIDE, -1, 3)),
        lambda: strided(draw),
        lambda: tiles(draw),
        lambda: cm.tree([draw.integer(-1, n - 1) for n in range(draw.integer(1, SIDE))]),
        lambda: explicit(draw),
        lambda: on_grid(draw),
    ]
    return kinds[draw.integer(0, len(kinds) - 1)]()


def band(draw: Draw) -> Mask:
    low = draw.integer(-9, 9)
    high = draw.integer(low, 12)
    return cm.band(None if draw.integer(0, 3) == 0 else low, None if draw.integer(0, 3) == 0 else high)


def strided(draw: Draw) -> Mask:
    step = draw.integer(1, 6)
    return cm.strided(step, draw.integer(0, step - 1))


def tiles(draw: Draw) -> Mask:
    rows, columns = draw.integer(1, 4), draw.integer(1, 4)
    matrix = ["".join(str(draw.integer(0, 1)) for _ in range(columns)) for _ in range(rows)]
    return cm.tiles(matrix, (draw.integer(1, 6), draw.integer(1, 6)))


def explicit(draw: Draw) -> Mask:
    rows, columns = draw.integer(1, 8), draw.integer(1, 8)
    return cm.from_dense([[draw.integer(0, 1) for _ in range(columns)] for _ in range(rows)])


def on_grid(draw: Draw) -> Mask:
    shapes = [(4, 6), (6, 4), (3, 7), (1, 23), (23, 1), (2, 3, 4), (4, 2, 3), (3, 1, 8), (2, 4, 3)]
    shape = shapes[draw.integer(0, len(shapes) - 1)]
    grid = cm.grid(*shape)

    def neighborhood() -> Mask:
        dilation = [draw.integer(1, min(side, 3)) for side in shape]
        size = [draw.integer(1, side // step) for side, step in zip(shape, dilation, strict=True)]
        return grid.neighborhood(size, dilation=dilation, causal=[bool(draw.integer(0, 1)) for _ in shape])

    kinds = [
        lambda: grid.disk(draw.integer(1, 7)),
        lambda: grid.box(*(draw.integer(0, side + 1) for side in shape)),
        neighborhood,
        lambda: grid.axial([axis for axis in range(len(shape)) if draw.integer(0, 1)] or None),
        lambda: grid.causal_time() if len(shape) == 3 else grid.axial(),
    ]
    return kinds[draw.integer(0, 4)]()


def composition(draw: Draw, depth: int = 3) -> Mask:
    """A region, or an operation on compositions one level less deep."""
    if depth == 0 or draw.integer(0, 4) == 0:
        return region(draw)
    inner = [composition(draw, depth - 1) for _ in range(draw.integer(2, 3))]
    kinds = [
        lambda: inner[0] & inner[1],
        lambda: inner[0] & inner[1] & inner[-1],
        lambda: inner[0] | inner[1],
        lambda: inner[0] | inner[1] | inner[-1],
        lambda: inner[0] - inner[1],
        lambda: ~inner[0],
        lambda: placed(draw, inner[0]),
        lambda: inner[0].repeat(draw.sizes()),
        lambda: repeated(draw, inner),
        lambda: taken(draw, inner[0]),
        lambda: inner[0].transposed(),
    ]
    return kinds[draw.integer(0, len(kinds) - 1)]()


def placed(draw: Draw, mask: Mask) -> Mask:
    """In a box that holds what the mask was made for; shrunk first so that the whole still fits the plane."""
    small = mask.take(q=list(range(draw.integer(1, 12))), k=list(range(draw.integer(1, 12))))
    queries, keys = small.extent
    q, k = draw.integer(0, SIDE - queries), draw.integer(0, SIDE - keys)
    return small.at(q=(q, draw.integer(q + queries, SIDE)), k=(k, draw.integer(k + keys, SIDE)))


def repeated(draw: Draw, masks: list[Mask]) -> Mask:
    sizes = [draw.integer(0, SIDE // 3) for _ in masks]
    return cm.repeat(sizes, masks)


def taken(draw: Draw, mask: Mask) -> Mask:
    """Any positions, a permutation by runs, or a rotation."""

    def index() -> list[int]:
        kind = draw.integer(0, 2)
        if kind == 0:
            return draw.many(1, SIDE, 0, SIDE + 3)
        if kind == 1:
            runs = np.split(np.arange(SIDE), sorted(draw.many(0, 4, 1, SIDE - 1)))
            return np.concatenate([run[::-1] if draw.integer(0, 1) else run for run in runs[::-1]]).tolist()
        return np.roll(np.arange(SIDE), draw.integer(0, SIDE)).tolist()

    axes = draw.integer(0, 2)
    return mask.take(q=index() if axes != 1 else None, k=index() if axes != 0 else None)


@st.composite
def masks(draw: st.DrawFn, depth: int = 3) -> Mask:
    """Compositions for hypothesis."""
    return composition(Draw(lambda least, most: draw(st.integers(least, most))), depth)


@st.composite
def views(draw: st.DrawFn) -> tuple[int, int, int]:
    """Windows ``(q_len, kv_len, q_start)`` that every sample fits."""
    return draw(st.integers(0, 33)), draw(st.integers(SIDE, 40)), draw(st.integers(0, 30))
