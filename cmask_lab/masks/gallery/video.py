"""Masks of videos, whose tokens stand frame by frame, and of images in tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from cmask_lab.masks import regions
from cmask_lab.masks.gallery.catalogue import (
    choice,
    count,
    draw,  # noqa: F401  (the drawings in the docstrings call it)
    ints,
    register,
)
from cmask_lab.masks.gallery.parts import check_axes, pieces
from cmask_lab.masks.grids import grid
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import documents, tiles

FRAMES = count("frames", "frames of the video", least=1, slider=64)
FRAME = count("tokens", "tokens of a frame", least=1, slider=4096)
TEXT = count("tokens", "text tokens", slider=1024)

STA = {
    "tile": ints("tokens", "sides of a tile", least=1),
    "window": ints("tiles", "tiles that a query sees along each axis", least=1),
    "text": TEXT,
    "order": choice("how tokens stand: tile by tile, or row by row", "tiles", "rows"),
}
STA_CONVENTION = (
    "The window is counted in tiles, exactly as many as asked for, and shifted at the border. Text stands behind the "
    "image, sees all and is seen by all."
)


def _sta_intervals(p: Mapping[str, Any]) -> int:
    lines = prod(
        min(w, max(s // t, 1)) for w, s, t in zip(p["window"][:-1], p["shape"][:-1], p["tile"][:-1], strict=True)
    )
    rows = prod(p["tile"][:-1]) if p["order"] == "rows" else 1
    return lines * rows + (p["text"] > 0)


@register(
    title="Sliding tile attention, 2-D",
    formula="tile(j) in the window of tiles around tile(i), or i or j is text",
    source="Sliding Tile Attention, arXiv:2502.04507",
    intervals=_sta_intervals,
    convention=STA_CONVENTION,
    parameters={"shape": ints("tokens", "height and width", least=1), **STA},
)
def sta_2d(
    shape: Sequence[int] = (32, 32),
    tile: Sequence[int] = (8, 8),
    window: Sequence[int] = (3, 3),
    text: int = 0,
    order: str = "tiles",
) -> Mask:
    """A window that moves tile by tile: every tile of the score matrix is full or empty.

    >>> draw(sta_2d(shape=[2, 8], tile=[2, 2], window=[1, 3]))
    # # # # # # # # # # # # . . . .
    # # # # # # # # # # # # . . . .
    # # # # # # # # # # # # . . . .
    # # # # # # # # # # # # . . . .
    # # # # # # # # # # # # . . . .
    # # # # # # # # # # # # . . . .
    # # # # # # # # # # # # . . . .
    # # # # # # # # # # # # . . . .
    . . . . # # # # # # # # # # # #
    . . . . # # # # # # # # # # # #
    . . . . # # # # # # # # # # # #
    . . . . # # # # # # # # # # # #
    . . . . # # # # # # # # # # # #
    . . . . # # # # # # # # # # # #
    . . . . # # # # # # # # # # # #
    . . . . # # # # # # # # # # # #
    """
    return _sliding_tiles("sta_2d", 2, shape, tile, window, text, order)


@register(
    title="Sliding tile attention, 3-D",
    formula="tile(j) in the window of tiles around tile(i), or i or j is text",
    source="Sliding Tile Attention, arXiv:2502.04507",
    intervals=_sta_intervals,
    convention=STA_CONVENTION,
    parameters={"shape": ints("tokens", "frames, height and width", least=1), **STA},
)
def sta_3d(
    shape: Sequence[int] = (6, 16, 16),
    tile: Sequence[int] = (2, 8, 8),
    window: Sequence[int] = (3, 1, 1),
    text: int = 0,
    order: str = "tiles",
) -> Mask:
    """Sliding tiles in video diffusion: windows of whole tiles in time and space.

    >>> draw(sta_3d(shape=[3, 1, 2], tile=[1, 1, 2], window=[1, 1, 1], text=1))
    # # . . . . #
    # # . . . . #
    . . # # . . #
    . . # # . . #
    . . . . # # #
    . . . . # # #
    # # # # # # #
    """
    return _sliding_tiles("sta_3d", 3, shape, tile, window, text, order)


SVG = {
    "frames": FRAMES,
    "frame": FRAME,
    "reach": count(
        "frames", "frames (spatial) or tokens of a frame (temporal) that are seen on either side", slider=16
    ),
    "text": TEXT,
}
SVG_NOTE = (
    "Text stands behind the video, sees all and is seen by all. Nothing is rounded to tiles of 128, as in the code of "
    "the paper."
)


@register(
    title="Sparse VideoGen, spatial head",
    formula="|frame(i) − frame(j)| ≤ R, or frame(j) = 0, or i or j is text",
    source="Sparse VideoGen, arXiv:2502.01776",
    intervals=3,
    convention=SVG_NOTE,
    parameters=SVG,
)
def svg_spatial(frames: int = 8, frame: int = 128, reach: int = 1, text: int = 32) -> Mask:
    """A head that looks at its own frame, its neighbours and the first one.

    >>> draw(svg_spatial(frames=4, frame=1, reach=1, text=1))
    # # . . #
    # # # . #
    # # # # #
    # . # # #
    # # # # #
    """
    video = frames * frame
    near = grid(frames, 1, frame).box(reach, 0, frame - 1)
    return _with_text(near.named("near frames") | _first_frame(video, frame), video, text)


@register(
    title="Sparse VideoGen, temporal head",
    formula="|place(i) − place(j)| ≤ R in their frames, or frame(j) = 0, or i or j is text",
    source="Sparse VideoGen, arXiv:2502.01776",
    intervals=lambda p: p["frames"] + 1,
    convention=SVG_NOTE,
    parameters=SVG,
)
def svg_temporal(frames: int = 8, frame: int = 128, reach: int = 4, text: int = 32) -> Mask:
    """A head that follows one place through time: the same place, and its neighbours, in every frame.

    >>> draw(svg_temporal(frames=3, frame=3, reach=0, text=0))
    # # # # . . # . .
    # # # . # . . # .
    # # # . . # . . #
    # # # # . . # . .
    # # # . # . . # .
    # # # . . # . . #
    # # # # . . # . .
    # # # . # . . # .
    # # # . . # . . #
    """
    video = frames * frame
    places = grid(frames, 1, frame).box(frames - 1, 0, reach)
    return _with_text(places.named("same place") | _first_frame(video, frame), video, text)


@register(
    title="Block-causal video",
    formula="chunk(j) ≤ chunk(i)",
    source="MAGI-1, arXiv:2505.13211",
    parameters={
        "frames": FRAMES,
        "frame": FRAME,
        "chunk": count("frames", "frames of a chunk", least=1, slider=32),
    },
)
def block_causal_video(frames: int = 8, frame: int = 128, chunk: int = 2) -> Mask:
    """Chunks of frames see themselves in both directions and all chunks before. The last one may be shorter.

    >>> draw(block_causal_video(frames=3, frame=2, chunk=2))
    # # # # . .
    # # # # . .
    # # # # . .
    # # # # . .
    # # # # # #
    # # # # # #
    """
    sizes = [number * frame for number in pieces(frames, chunk)]
    return regions.causal() | documents(sizes).named("chunks")


def _with_text(mask: Mask, video: int, text: int) -> Mask:
    """Text behind the video that sees all and is seen by all."""
    return mask | regions.global_tokens([(video, video + text)]).named("text") if text else mask


def _first_frame(video: int, frame: int) -> Mask:
    return regions.rect(q=(0, video), k=(0, frame)).named("first frame")


def _sliding_tiles(
    name: str, axes: int, shape: Sequence[int], tile: Sequence[int], window: Sequence[int], text: int, order: str
) -> Mask:
    check_axes(name, axes, shape=shape, tile=tile, window=window)
    for n, (side, size) in enumerate(zip(shape, tile, strict=True)):
        if side % size:
            raise ValueError(f"{name}: side {n} of the shape is {side}; tiles of {size} must divide it")
    counts = [side // size for side, size in zip(shape, tile, strict=True)]
    sizes = [min(size, number) for size, number in zip(window, counts, strict=True)]
    tokens, area = prod(shape), prod(tile)
    matrix = grid(*counts).neighborhood(sizes).to_dense(prod(counts))
    mask: Mask = tiles(matrix, area).at(q=(0, tokens), k=(0, tokens))
    if order == "rows":
        place = _tile_order(shape, tile)
        mask = mask.take(q=place, k=place)
    return _with_text(mask.named("image"), tokens, text)


def _tile_order(shape: Sequence[int], tile: Sequence[int]) -> np.ndarray:
    """For every token in row-major order its place when tokens stand tile by tile."""
    coordinates = np.indices(shape).reshape(len(shape), -1)
    number = [axis // size for axis, size in zip(coordinates, tile, strict=True)]
    inside = [axis % size for axis, size in zip(coordinates, tile, strict=True)]
    counts = [side // size for side, size in zip(shape, tile, strict=True)]
    return np.ravel_multi_index(number, counts) * prod(tile) + np.ravel_multi_index(inside, tile)
