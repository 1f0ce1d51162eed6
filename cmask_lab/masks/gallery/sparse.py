"""Sparse attention for long sequences: windows with global tokens, strides, random keys, dropped keys."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, gcd

import numpy as np

from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.masks import regions
from cmask_lab.masks.gallery.catalogue import (
    count,
    draw,  # noqa: F401  (the drawings in the docstrings call it)
    pairs,
    register,
)
from cmask_lab.masks.gallery.parts import pieces
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import documents, from_table, tiles

LENGTH = count("tokens", "length of the sequence", least=1, slider=16384)
SEED = count("", "which of the random masks", slider=100)


@register(
    title="Longformer",
    formula="|i − j| ≤ w or i ∈ G or j ∈ G",
    source="Longformer, arXiv:2004.05150",
    intervals=lambda p: 1 + len(p["tokens"]),
    convention="The reach is one-sided and doesn't count the query: 2·reach + 1 keys (Longformer's attention_window is "
    "2·reach).",
    parameters={
        "reach": count("keys", "keys on either side of the query", slider=1024),
        "tokens": pairs("tokens", "ranges of global tokens"),
    },
)
def longformer(reach: int = 128, tokens: Sequence[tuple[int, int]] = ((0, 1),)) -> Mask:
    """A window on both sides, and global tokens that see everything and are seen by all.

    >>> draw(longformer(reach=1, tokens=[(0, 1)]), 6, 6)
    # # # # # #
    # # # . . .
    # # # # . .
    # . # # # .
    # . . # # #
    # . . . # #
    """
    return regions.window(reach, reach).named("window") | regions.global_tokens(tokens).named("global tokens")


@register(
    title="BigBird",
    formula="tile(j) near tile(i), or drawn for tile(i), or tile(i) or tile(j) is global",
    source="BigBird, arXiv:2007.14062",
    intervals=lambda p: 1 + p["random"] + (p["globals"] > 0),
    convention="Sizes are counted in tiles, the query's own among the window's (an odd number); the first tiles are "
    "global. The random tiles come from numpy's default_rng(seed), not from BigBird's generator.",
    parameters={
        "length": LENGTH,
        "tile": count("tokens", "side of a tile", least=1, slider=128),
        "window": count("tiles", "tiles in the window, an odd number", least=1, slider=15),
        "random": count("tiles", "random tiles of every query tile", slider=15),
        "globals": count("tiles", "first tiles, which see all and are seen by all", slider=8),
        "seed": SEED,
    },
)
def bigbird(
    length: int = 1024, tile: int = 64, window: int = 3, random: int = 3, globals: int = 1, seed: int = 0
) -> Mask:
    """A window of tiles, global tiles, and a few tiles at random: a sparse graph of small diameter.

    >>> draw(bigbird(length=6, tile=1, window=1, random=1, globals=1, seed=1))
    # # # # # #
    # # . # . .
    # . # . # .
    # # . # . .
    # . . # # .
    # # . . . #
    """
    if window % 2 == 0:
        raise ValueError(f"bigbird: window is {window}; it must be odd, so that the query's tile is in the middle")
    side, reach = ceil(length / tile), window // 2
    number = np.arange(side)
    near = np.abs(number[:, None] - number[None, :]) <= reach
    # The random tiles of a row are those with the smallest random numbers among the rest.
    free = ~near & (number[None, :] >= globals)
    drawn = np.where(free, np.random.default_rng(seed).random((side, side)), 2.0)
    rank = np.argsort(np.argsort(drawn, axis=1, kind="stable"), axis=1, kind="stable")
    box = (0, length)
    result: Mask = tiles(near, tile).at(q=box, k=box).named("window")
    if random:
        result = result | tiles(free & (rank < random), tile).at(q=box, k=box).named("random")
    if globals:
        stop = min(globals * tile, length)
        result = result | regions.global_tokens([(0, stop)]).named("global tokens")
    return result


@register(
    title="Dilated window",
    formula="0 ≤ i − j < W·d and (i − j) mod d = 0",
    source="Longformer, arXiv:2004.05150",
    intervals=lambda p: 1 if p["dilation"] == 1 else p["window"],
    convention="W counts keys, the query's own among them.",
    parameters={
        "window": count("keys", "keys in the window, the query's own among them", least=1, slider=1024),
        "dilation": count("tokens", "distance of neighbours", least=1, slider=64),
    },
)
def dilated_window(window: int = 64, dilation: int = 4) -> Mask:
    """A causal window with holes, which reaches farther back with as many keys.

    >>> draw(dilated_window(window=3, dilation=2), 6, 6)
    # . . . . .
    . # . . . .
    # . # . . .
    . # . # . .
    # . # . # .
    . # . # . #
    """
    return regions.window((window - 1) * dilation) & regions.strided(dilation)


@register(
    title="Sparse Transformer, strided",
    formula="j ≤ i and (i − j ≤ l or (i − j) mod l = 0)",
    source="Sparse Transformer, arXiv:1904.10509",
    # Every l-th key up to the query; the window joins the last two of them.
    intervals=lambda p: 1 if p["stride"] == 1 else ceil(p["length"] / p["stride"]),
    convention="Both heads of the paper in one mask. The window is the paper's: l keys before the query, and itself.",
    parameters={"length": LENGTH, "stride": count("tokens", "the stride l, about √length", least=1, slider=256)},
)
def sparse_strided(length: int = 1024, stride: int = 32) -> Mask:
    """The last ``stride`` keys, and before them every ``stride``-th.

    >>> draw(sparse_strided(length=8, stride=3))
    # . . . . . . .
    # # . . . . . .
    # # # . . . . .
    # # # # . . . .
    . # # # # . . .
    . . # # # # . .
    # . . # # # # .
    . # . . # # # #
    """
    box = regions.rect(q=(0, length), k=(0, length))
    far = regions.causal() & regions.strided(stride) & box
    return (regions.window(stride) & box).named("window") | far.named("every l-th key")


@register(
    title="Sparse Transformer, fixed",
    formula="j ≤ i and (⌊i/l⌋ = ⌊j/l⌋ or j mod l ≥ l − c)",
    source="Sparse Transformer, arXiv:1904.10509",
    intervals=lambda p: ceil(p["length"] / p["stride"]),
    convention="Both heads of the paper in one mask.",
    parameters={
        "length": LENGTH,
        "stride": count("tokens", "length l of a piece", least=1, slider=256),
        "summary": count("keys", "last keys of every piece that all later queries see; at most the stride", slider=64),
    },
)
def sparse_fixed(length: int = 1024, stride: int = 128, summary: int = 8) -> Mask:
    """A query sees its own piece, and of every earlier piece the last few keys.

    >>> draw(sparse_fixed(length=8, stride=3, summary=1))
    # . . . . . . .
    # # . . . . . .
    # # # . . . . .
    . . # # . . . .
    . . # # # . . .
    . . # # # # . .
    . . # . . # # .
    . . # . . # # #
    """
    if summary > stride:
        raise ValueError(f"sparse_fixed: summary is {summary}; it must be at most the stride, {stride}")
    own = documents(pieces(length, stride)).named("own piece")
    if not summary:
        return regions.causal() & own
    # One row of tiles that holds for all queries; its columns are as wide as stride and summary allow.
    unit = gcd(stride, summary)
    kept = np.arange(ceil(length / unit)) * unit % stride >= stride - summary
    columns = tiles(kept[None, :], (length, unit)).at(q=(0, length), k=(0, length))
    return regions.causal() & (own | columns.named("summaries"))


@register(
    title="Random eviction",
    formula="j ≤ i < e(j)",
    source="H2O, arXiv:2306.14048; as a mask: FlashMask, arXiv:2410.01359",
    intervals=lambda p: ceil(p["length"] / 2),
    convention="e(j) comes from numpy's default_rng(seed); H2O evicts by attention scores, which a mask can't know.",
    parameters={
        "length": LENGTH,
        "recent": count("keys", "last keys that are never evicted, the query's own among them", least=1, slider=1024),
        "seed": SEED,
    },
)
def random_eviction(length: int = 512, recent: int = 64, seed: int = 0) -> Mask:
    """Every key is seen until it is evicted from the cache, at a row drawn for it.

    >>> draw(random_eviction(length=6, recent=1, seed=10))
    # . . . . .
    # # . . . .
    # # # . . .
    # . # # . .
    # . # . # .
    # . # . # #
    """
    key = np.arange(length)
    soonest = np.minimum(key + recent, length)
    drawn = np.random.default_rng(seed).random(length)
    evicted = soonest + np.floor(drawn * (length - soonest + 1)).astype(np.int64)
    # As rows of keys these are single intervals of queries.
    return from_table(IntervalTable.from_row_bounds(key, evicted, length)).transposed()


@register(
    title="QK-sparse",
    formula="j ≤ i, and i and j not in the same dropped span",
    source="FlashMask, arXiv:2410.01359; after arXiv:2306.01160",
    convention="FlashMask's mask: the queries of a span see what stands before it. The paper that names it drops "
    "single queries and keys.",
    parameters={"spans": pairs("tokens", "the spans inside which nothing is seen")},
)
def qk_sparse(spans: Sequence[tuple[int, int]] = ((128, 192), (300, 512))) -> Mask:
    """Causal without the triangles of a few spans.

    >>> draw(qk_sparse(spans=[(1, 4)]), 6, 6)
    # . . . . .
    # . . . . .
    # . . . . .
    # . . . . .
    # # # # # .
    # # # # # #
    """
    result: Mask = regions.causal()
    for start, stop in spans:
        result = result - regions.rect(q=(start, stop), k=(start, stop)).named("dropped")
    return result
