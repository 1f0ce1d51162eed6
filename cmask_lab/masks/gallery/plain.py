"""Masks of a single sequence: everything, causal, windows, a prefix, random tiles."""

from __future__ import annotations

from math import ceil, comb

import numpy as np

from cmask_lab.masks import regions
from cmask_lab.masks.gallery.catalogue import (
    count,
    draw,  # noqa: F401  (the drawings in the docstrings call it)
    number,
    register,
    switch,
)
from cmask_lab.masks.gallery.parts import pieces
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import tiles


@register(title="Full", formula="all", source="Transformer, arXiv:1706.03762")
def full() -> Mask:
    """Every query sees every key: encoders, diffusion transformers, cross-attention.

    >>> draw(full(), 3, 3)
    # # #
    # # #
    # # #
    """
    return regions.full()


@register(
    title="Causal",
    formula="j ≤ i",
    source="Transformer, arXiv:1706.03762",
    convention="Positions are absolute. Fewer queries than keys are the last ones through q_start; nobody chooses "
    "between top-left and bottom-right.",
)
def causal() -> Mask:
    """A query sees itself and what comes before it.

    >>> draw(causal(), 4, 4)
    # . . .
    # # . .
    # # # .
    # # # #
    """
    return regions.causal()


@register(
    title="Sliding window",
    formula="i − W < j ≤ i",
    source="Mistral 7B, arXiv:2310.06825",
    convention="W counts keys, the query's own among them (Hugging Face, FlashMask's generator). FlexAttention's "
    "examples, FlashAttention's left and JAX's local window count what lies before the query: one key more.",
    parameters={"window": count("keys", "keys in the window, the query's own among them", least=1, slider=4096)},
)
def sliding_window(window: int = 1024) -> Mask:
    """A query sees the last ``window`` keys, its own among them.

    >>> draw(sliding_window(window=3), 6, 6)
    # . . . . .
    # # . . . .
    # # # . . .
    . # # # . .
    . . # # # .
    . . . # # #
    """
    return regions.window(window - 1, 0)


@register(
    title="Bidirectional window",
    formula="i − L ≤ j ≤ i + R",
    source="ModernBERT, arXiv:2412.13663",
    convention="left and right don't count the query's own key (FlashAttention's window_size): left + 1 + right keys.",
    parameters={
        "left": count("keys", "keys before the query", slider=1024),
        "right": count("keys", "keys after the query", slider=1024),
    },
)
def bidirectional_window(left: int = 64, right: int = 64) -> Mask:
    """A query sees its neighbours on both sides; at the ends of the sequence the window is cut off.

    >>> draw(bidirectional_window(left=1, right=2), 6, 6)
    # # # . . .
    # # # # . .
    . # # # # .
    . . # # # #
    . . . # # #
    . . . . # #
    """
    return regions.window(left, right)


@register(
    title="Sinks and window",
    formula="j ≤ i and (j < S or j > i − W)",
    source="StreamingLLM, arXiv:2309.17453",
    intervals=2,
    convention="W counts keys, the query's own among them; the sinks come on top (a cache of S + W entries).",
    parameters={
        "sinks": count("keys", "first keys that stay visible", slider=64),
        "window": count("keys", "keys in the window, the query's own among them", least=1, slider=4096),
    },
)
def sink_window(sinks: int = 4, window: int = 1024) -> Mask:
    """The first few keys stay visible when the window has moved on.

    >>> draw(sink_window(sinks=1, window=3), 6, 6)
    # . . . . .
    # # . . . .
    # # # . . .
    # # # # . .
    # . # # # .
    # . . # # #
    """
    return regions.sink(sinks).named("sinks") | regions.window(window - 1, 0).named("window")


@register(
    title="Prefix LM",
    formula="j < P or j ≤ i",
    source="T5, arXiv:1910.10683",
    parameters={"prefix": count("tokens", "length of the prefix", slider=4096)},
)
def prefix_lm(prefix: int = 256) -> Mask:
    """The prefix sees itself in both directions, the rest is causal.

    >>> draw(prefix_lm(prefix=3), 5, 5)
    # # # . .
    # # # . .
    # # # . .
    # # # # .
    # # # # #
    """
    return regions.prefix(prefix).named("prefix") | regions.causal()


@register(
    title="Chunked causal",
    formula="j ≤ i and ⌊i/C⌋ = ⌊j/C⌋",
    source="Llama 4 (attention_chunk_size), github.com/huggingface/transformers",
    parameters={
        "length": count("tokens", "length of the sequence", least=1, slider=32768),
        "chunk": count("tokens", "length of a chunk", least=1, slider=8192),
    },
)
def chunked_causal(length: int = 1024, chunk: int = 256) -> Mask:
    """Causal within chunks of equal length; nothing is seen across a border. The last chunk may be shorter.

    >>> draw(chunked_causal(length=5, chunk=2))
    # . . . .
    # # . . .
    . . # . .
    . . # # .
    . . . . #
    """
    return regions.causal().repeat(pieces(length, chunk))


@register(
    title="Random tiles at a density",
    formula="B[⌊i/T⌋, ⌊j/T⌋], B random with its diagonal set",
    source="Block-sparse attention, github.com/mit-han-lab/Block-Sparse-Attention",
    intervals=lambda p: ceil(ceil(p["length"] / p["tile"]) / 2),
    parameters={
        "length": count("tokens", "length of the sequence", least=1, slider=32768),
        "tile": count("tokens", "side of a tile", least=1, slider=256),
        "density": number("share of the tiles that are visible", least=0, most=1),
        "causal": switch("only tiles up to the diagonal, and causal inside"),
        "seed": count("", "which of the random masks", slider=100),
    },
)
def random_tiles(
    length: int = 2048, tile: int = 128, density: float = 0.25, causal: bool = True, seed: int = 0
) -> Mask:
    """A share of the tiles, drawn at random; the diagonal is always visible, so every query sees something.

    >>> draw(random_tiles(length=6, tile=2, density=0.5, seed=1))
    # . . . . .
    # # . . . .
    . . # . . .
    . . # # . .
    . . . . # .
    . . . . # #
    """
    side = ceil(length / tile)
    matrix = np.eye(side, dtype=np.bool_)
    others = np.tril(~matrix, -1) if causal else ~matrix
    total = comb(side + 1, 2) if causal else side * side
    wanted = max(round(density * total) - side, 0)
    # Of the tiles beside the diagonal those with the smallest random numbers.
    drawn = np.random.default_rng(seed).random((side, side))
    order = np.argsort(np.where(others, drawn, 2.0), axis=None, kind="stable")[: min(wanted, int(others.sum()))]
    matrix.reshape(-1)[order] = True
    chosen = tiles(matrix, tile).at(q=(0, length), k=(0, length)).named("tiles")
    return chosen & regions.causal() if causal else chosen
