"""Neighbourhood attention as NATTEN defines it, in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from cmask_lab.masks.gallery.catalogue import (
    count,
    draw,  # noqa: F401  (the drawings in the docstrings call it)
    ints,
    register,
    switch,
)
from cmask_lab.masks.gallery.parts import check_axes, spread
from cmask_lab.masks.grids import Grid, grid
from cmask_lab.masks.mask import Mask

KERNEL = (
    "A window has exactly K keys along every axis: at the border it is shifted, not cut. An even K reaches one further "
    "back than ahead. "
)
NATTEN = "Neighborhood Attention, arXiv:2204.07143; stride: arXiv:2504.16922"


def _intervals(p: Mapping[str, Any]) -> int:
    """Rows of keys in a window, times the keys of one row where these stand apart."""
    sizes, steps = spread(p["kernel"], len(p["shape"])), spread(p["dilation"], len(p["shape"]))
    return prod(sizes[:-1]) * (1 if steps[-1] == 1 else sizes[-1])


SETTINGS = {
    "kernel": ints("keys", "keys along each axis, or one number for all", least=1),
    "dilation": ints("tokens", "distance of neighbours along each axis, or one number for all", least=1),
    "stride": ints("tokens", "queries along each axis that share a window, or one number for all", least=1),
    "causal": ints("", "1 for an axis that looks back only, 0 for one that doesn't; or one number for all"),
}


@register(
    title="Neighborhood attention, 1-D",
    formula="j in the K neighbours of i",
    source=NATTEN,
    intervals=lambda p: 1 if p["dilation"] == 1 else p["kernel"],
    convention=KERNEL,
    parameters={
        "length": count("tokens", "length of the sequence", least=1, slider=32768),
        "kernel": count("keys", "keys in a window", least=1, slider=1024),
        "dilation": count("tokens", "distance of neighbours", least=1, slider=64),
        "stride": count("tokens", "queries that share a window", least=1, slider=128),
        "causal": switch("look back only"),
    },
)
def natten_1d(length: int = 512, kernel: int = 63, dilation: int = 1, stride: int = 1, causal: bool = False) -> Mask:
    """A window that keeps its size at both ends of the sequence.

    >>> draw(natten_1d(length=7, kernel=3))
    # # # . . . .
    # # # . . . .
    . # # # . . .
    . . # # # . .
    . . . # # # .
    . . . . # # #
    . . . . # # #
    """
    return _neighborhood(grid(1, length), [1, kernel], [1, dilation], [1, stride], [False, causal])


@register(
    title="Neighborhood attention, 2-D",
    formula="j in the K_y × K_x neighbours of i",
    source=NATTEN,
    intervals=_intervals,
    convention=KERNEL + "The shape is height first.",
    parameters={"shape": ints("tokens", "height and width", least=1), **SETTINGS},
)
def natten_2d(
    shape: Sequence[int] = (32, 32),
    kernel: Sequence[int] = (7,),
    dilation: Sequence[int] = (1,),
    stride: Sequence[int] = (1,),
    causal: Sequence[int] = (0,),
) -> Mask:
    """Every image token sees exactly ``kernel`` rows by ``kernel`` columns around it.

    >>> draw(natten_2d(shape=[3, 4], kernel=[3, 2]))
    # # . . # # . . # # . .
    # # . . # # . . # # . .
    . # # . . # # . . # # .
    . . # # . . # # . . # #
    # # . . # # . . # # . .
    # # . . # # . . # # . .
    . # # . . # # . . # # .
    . . # # . . # # . . # #
    # # . . # # . . # # . .
    # # . . # # . . # # . .
    . # # . . # # . . # # .
    . . # # . . # # . . # #
    """
    return _natten(2, shape, kernel, dilation, stride, causal)


@register(
    title="Neighborhood attention, 3-D",
    formula="j in the K_t × K_y × K_x neighbours of i",
    source=NATTEN,
    intervals=_intervals,
    convention=KERNEL + "The shape is frames, height, width.",
    parameters={"shape": ints("tokens", "frames, height and width", least=1), **SETTINGS},
)
def natten_3d(
    shape: Sequence[int] = (8, 16, 16),
    kernel: Sequence[int] = (3, 5, 5),
    dilation: Sequence[int] = (1,),
    stride: Sequence[int] = (1,),
    causal: Sequence[int] = (0,),
) -> Mask:
    """Every video token sees a box around it that keeps its size at the borders; time is often causal.

    >>> draw(natten_3d(shape=[3, 1, 3], kernel=[2, 1, 2], causal=[1, 0, 0]))
    # # . . . . . . .
    # # . . . . . . .
    . # # . . . . . .
    # # . # # . . . .
    # # . # # . . . .
    . # # . # # . . .
    . . . # # . # # .
    . . . # # . # # .
    . . . . # # . # #
    """
    return _natten(3, shape, kernel, dilation, stride, causal)


def _natten(axes: int, shape: Sequence[int], *settings: Sequence[int]) -> Mask:
    """A neighbourhood on a grid; every setting is one number an axis or one for all."""
    name = f"natten_{axes}d"
    check_axes(name, axes, shape=shape)
    kernel, dilation, stride, causal = (spread(values, axes) for values in settings)
    check_axes(name, axes, kernel=kernel, dilation=dilation, stride=stride, causal=causal)
    return _neighborhood(grid(*shape), kernel, dilation, stride, [bool(flag) for flag in causal])


def _neighborhood(
    layout: Grid, kernel: Sequence[int], dilation: Sequence[int], stride: Sequence[int], causal: Sequence[bool]
) -> Mask:
    """NATTEN's mask; with a stride, groups of queries have the window of their leader.

    The leader is the middle of its group (the right one of two), on a causal axis the last of the group; there a query
    still sees nothing behind itself. Groups are counted inside a dilation group.
    """
    mask = layout.neighborhood(kernel, dilation=dilation, causal=causal)
    if max(stride) == 1:
        return mask
    leaders = [_leaders(*axis) for axis in zip(layout.shape, dilation, stride, causal, strict=True)]
    order = np.ravel_multi_index(np.meshgrid(*leaders, indexing="ij"), layout.shape).reshape(-1)
    shared = mask.take(q=order)
    if not any(causal):
        return shared
    # On a causal axis the leader may stand behind the query: cut off what the query has not reached.
    reached = layout.neighborhood(layout.shape, causal=causal)
    return shared & reached.named("reached")


def _leaders(length: int, dilation: int, stride: int, causal: bool) -> np.ndarray:
    """The position along an axis whose window each position has."""
    member, group = np.divmod(np.arange(length), dilation)
    last = (length - group - 1) // dilation
    leader = member // stride * stride + (stride - 1 if causal else stride // 2)
    return np.minimum(leader, last) * dilation + group
