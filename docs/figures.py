"""The figures of the documentation's pages, drawn from real masks by the real compiler when the site is built.

A page asks for one with a line ``<!-- figure: NAME -->``.
"""

from __future__ import annotations

import cmask_lab as cm
from cmask_lab.course.drawing import Drawing, Row, cells, intervals, layers, side_by_side, tiles

SMALL = cm.causal() & (cm.documents([4, 7, 5]) | cm.prefix(2))
CLEAR = cm.global_tokens([(0, 64)]) | cm.grid(24, 40).disk(6).at(q=(64, 1024), k=(64, 1024))


def regions() -> Drawing:
    """A mask as a composition of regions."""
    named = {"documents": cm.documents([4, 7, 5]) & cm.causal(), "a prefix that all see": cm.prefix(2) & cm.causal()}
    return layers(named, 16, caption="Three documents and a shared prefix, all causal, as regions.")


def rows() -> Drawing:
    """The same mask as intervals."""
    return intervals(SMALL, 16, caption="The same mask, as the compiler keeps it: intervals of keys for each query.")


def tile_classes() -> Row:
    """Full, partial and empty tiles of an image mask."""
    compiled = cm.compile(CLEAR, 1024, tile=32)
    return side_by_side(
        cells(CLEAR, 1024, caption="CLEAR: 64 text tokens, an image of 24 × 40, each pixel sees a disk of radius 6."),
        tiles(compiled, caption="Its tiles of 32 × 32: full (blue), partial (orange, hatched), empty (bare)."),
    )


def token_order() -> Row:
    """The same mask before and after the compiler has permuted the tokens."""
    picture = cm.grid(32, 128).disk(8)
    drawn = []
    for order in ("natural", "auto"):
        compiled = cm.compile(picture, 4096, tile=64, order=order)
        visited = compiled.stats.full_tiles + compiled.stats.partial_tiles
        drawn.append(tiles(compiled, caption=f"{compiled.order} order: {visited} tiles visited."))
    return side_by_side(*drawn)


FIGURES = {"regions": regions, "rows": rows, "tile-classes": tile_classes, "token-order": token_order}
