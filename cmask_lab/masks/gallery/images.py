"""Masks of images, whose tokens stand row by row, with or without text before them."""

from __future__ import annotations

import numpy as np

from cmask_lab.masks import regions
from cmask_lab.masks.gallery.catalogue import (
    choice,
    count,
    draw,  # noqa: F401  (the drawings in the docstrings call it)
    register,
)
from cmask_lab.masks.grids import grid
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import documents

HEIGHT = count("tokens", "rows of the image", least=1, slider=256)
WIDTH = count("tokens", "columns of the image", least=1, slider=256)
TEXT = count("tokens", "text tokens", slider=1024)
RADIUS = count("tokens", "distance from which on nothing is seen", least=1, slider=64)
WINDOW = count("tokens", "side of a window", least=1, slider=32)


@register(
    title="CLEAR",
    formula="i or j is text, or dy² + dx² < r²",
    source="CLEAR, arXiv:2412.16112",
    intervals=lambda p: min(2 * p["radius"] - 1, p["height"]) + 1,
    convention="The radius is strict: a token at distance exactly r is not seen.",
    parameters={
        "text": TEXT,
        "height": HEIGHT,
        "width": WIDTH,
        "radius": RADIUS,
    },
)
def clear(text: int = 64, height: int = 32, width: int = 32, radius: int = 8) -> Mask:
    """Text comes first, sees all and is seen by all; an image token sees a disk around itself.

    >>> draw(clear(text=1, height=3, width=3, radius=2))
    # # # # # # # # # #
    # # # . # # . . . .
    # # # # # # # . . .
    # . # # . # # . . .
    # # # . # # . # # .
    # # # # # # # # # #
    # . # # . # # . # #
    # . . . # # . # # .
    # . . . # # # # # #
    # . . . . # # . # #
    """
    disk = _image(grid(height, width).disk(radius), text, height * width).named("disk")
    return regions.global_tokens([(0, text)]).named("text") | disk if text else disk


@register(
    title="CLEAR with pooled keys",
    formula="CLEAR, and image queries see (H // f)·(W // f) pooled keys behind the image",
    source="CLEAR, arXiv:2412.16112",
    intervals=lambda p: min(2 * p["radius"] - 1, p["height"]) + 2,
    convention="The radius is strict. Pooled keys are extra keys without queries: the mask is not square.",
    parameters={
        "text": TEXT,
        "height": HEIGHT,
        "width": WIDTH,
        "radius": RADIUS,
        "factor": count("tokens", "side of the square that is pooled into one key", least=1, slider=16),
    },
)
def clear_pooled(text: int = 64, height: int = 32, width: int = 32, radius: int = 8, factor: int = 4) -> Mask:
    """CLEAR, and every image token also sees a coarse copy of the whole image; text doesn't.

    >>> draw(clear_pooled(text=1, height=2, width=2, radius=1, factor=2))
    # # # # # .
    # # . . . #
    # . # . . #
    # . . # . #
    # . . . # #
    """
    stop = text + height * width
    pooled = (height // factor) * (width // factor)
    disk = _image(grid(height, width).disk(radius), text, height * width).named("disk")
    result: Mask = disk
    if text:
        result = regions.rect(q=(0, text), k=(0, stop)).named("text") | disk
        result = result | regions.rect(q=(text, stop), k=(0, text)).named("image sees text")
    if pooled:
        result = result | regions.rect(q=(text, stop), k=(stop, stop + pooled)).named("pooled keys")
    return result


@register(
    title="Swin windows",
    formula="⌊y/M⌋ and ⌊x/M⌋ of i and j are equal",
    source="Swin Transformer, arXiv:2103.14030",
    intervals=lambda p: min(p["window"], p["height"]),
    convention="Tokens stand row by row. Sides that M doesn't divide end in smaller windows; Swin pads them.",
    parameters={
        "height": HEIGHT,
        "width": WIDTH,
        "window": WINDOW,
    },
)
def swin(height: int = 28, width: int = 28, window: int = 7) -> Mask:
    """The image is cut into square windows; a token sees those of its own.

    >>> draw(swin(height=2, width=4, window=2))
    # # . . # # . .
    # # . . # # . .
    . . # # . . # #
    . . # # . . # #
    # # . . # # . .
    # # . . # # . .
    . . # # . . # #
    . . # # . . # #
    """
    return _windows(height, width, window, 0)


@register(
    title="Shifted Swin windows",
    formula="⌊(y − S)/M⌋ and ⌊(x − S)/M⌋ of i and j are equal",
    source="Swin Transformer, arXiv:2103.14030",
    intervals=lambda p: min(p["window"], p["height"]),
    convention="Tokens keep their places; after Swin's cyclic shift the mask of the windows at the seam is this one.",
    parameters={
        "height": HEIGHT,
        "width": WIDTH,
        "window": WINDOW,
        "shift": count("tokens", "shift of the windows down and to the right, below the window's side", slider=31),
    },
)
def swin_shifted(height: int = 28, width: int = 28, window: int = 7, shift: int = 3) -> Mask:
    """The windows of every second layer, shifted; those at the border are smaller and nothing wraps around.

    >>> draw(swin_shifted(height=2, width=4, window=2, shift=1))
    # . . . . . . .
    . # # . . . . .
    . # # . . . . .
    . . . # . . . .
    . . . . # . . .
    . . . . . # # .
    . . . . . # # .
    . . . . . . . #
    """
    if shift >= window:
        raise ValueError(f"swin_shifted: shift is {shift}; it must be below the window's side, {window}")
    return _windows(height, width, window, shift)


@register(
    title="Axial attention",
    formula="y(i) = y(j) or x(i) = x(j)",
    source="Axial attention, arXiv:1912.12180",
    intervals=lambda p: 1 if p["axis"] == "row" else p["height"],
    parameters={"height": HEIGHT, "width": WIDTH, "axis": choice("what is seen", "both", "row", "column")},
)
def axial(height: int = 32, width: int = 32, axis: str = "both") -> Mask:
    """A token sees its row and its column, or one of them.

    >>> draw(axial(height=2, width=3))
    # # # # . .
    # # # . # .
    # # # . . #
    # . . # # #
    . # . # # #
    . . # # # #
    """
    return grid(height, width).axial({"both": None, "column": 0, "row": 1}[axis])


def _image(mask: Mask, start: int, tokens: int) -> Mask:
    """An image's mask behind ``start`` other tokens."""
    box = (start, start + tokens)
    return mask.at(q=box, k=box) if start else mask


def _windows(height: int, width: int, window: int, shift: int) -> Mask:
    """Windows of equal side, the first ones cut off at ``shift``: documents by the number of the window."""
    row, column = ((np.arange(side) + (window - shift) % window) // window for side in (height, width))
    return documents(ids=(row[:, None] * (int(column[-1]) + 1) + column[None, :]).reshape(-1))
