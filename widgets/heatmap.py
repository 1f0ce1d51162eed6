"""The tile heatmap: as a Plotly figure to explore, and as a PNG that needs no library and no browser.

Empty, partial (by density) and full tiles are told apart by blue and orange, which stay apart for colour-blind eyes;
in the figure partial tiles carry a stroke besides, and the PNG a checkered grain.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cmask_lab.compiler.compile import CompiledMask
from cmask_lab.compiler.tiles import EMPTY, FULL, PARTIAL

if TYPE_CHECKING:
    import plotly.graph_objects as go

CELLS = 512
"""Cells a side that a picture holds at most: a larger map is shown with several tiles a cell."""
STROKES = 4096
"""Partial tiles that get a stroke of their own in the figure."""

FULL_RGB = (47, 102, 201)
LOW_RGB, HIGH_RGB = (253, 234, 203), (224, 134, 31)
EMPTY_RGB, FRAME_RGB = (255, 255, 255), (138, 148, 166)


def cells(compiled: CompiledMask, limit: int = CELLS) -> tuple[NDArray[np.uint8], NDArray[np.float32], int]:
    """Class and density of every tile of the first distinct mask, or of groups of tiles where there are too many.

    Returns:
        uint8 classes and float32 densities ``(rows, columns)``, and the tiles a side of one cell (a power of two). A
        cell of several tiles is full if all of them are, empty if all are, partial otherwise.

    >>> import cmask_lab as cm
    >>> classes, density, group = cells(cm.compile(cm.causal(), 512, tile=(128, 128)), limit=2)
    >>> classes.tolist(), group
    ([[1, 0], [2, 1]], 2)
    """
    tiles = compiled.tiles
    group = 1
    while -(-max(tiles.q_tiles, tiles.kv_tiles) // group) > limit:
        group *= 2
    if group == 1:
        return tiles.classes(), tiles.density(), 1
    rows, columns = -(-tiles.q_tiles // group), -(-tiles.kv_tiles // group)
    classes, density = np.empty((rows, columns), np.uint8), np.empty((rows, columns), np.float32)
    starts = np.arange(0, tiles.kv_tiles, group)
    widths = np.minimum(group, tiles.kv_tiles - starts)
    for row in range(rows):
        span = (row * group, min((row + 1) * group, tiles.q_tiles))
        height = span[1] - span[0]
        shares = np.add.reduceat(tiles.density(q_tiles=span).sum(axis=0), starts)
        density[row] = shares / (widths * height)
        line = tiles.classes(q_tiles=span)
        whole = np.minimum.reduceat(line.min(axis=0), starts) == FULL
        classes[row] = np.where(whole, FULL, np.where(density[row] > 0, PARTIAL, EMPTY))
    return classes, density, group


def png(compiled: CompiledMask, size: int = 384) -> bytes:
    """The heatmap as a PNG about ``size`` pixels wide, drawn with NumPy alone.

    >>> import cmask_lab as cm
    >>> png(cm.compile(cm.causal(), 1024))[:4]
    b'\\x89PNG'
    """
    classes, density, _ = cells(compiled, limit=min(CELLS, size))
    scale = max(1, size // max(classes.shape))
    shown, share = (np.repeat(np.repeat(grid, scale, 0), scale, 1) for grid in (classes, density))
    low, high = np.array(LOW_RGB), np.array(HIGH_RGB)
    image = np.empty((*shown.shape, 3), np.uint8)
    image[:] = EMPTY_RGB
    partial = (low + (high - low) * (0.25 + 0.75 * share[..., None])).astype(np.uint8)
    grain = np.add.outer(np.arange(shown.shape[0]), np.arange(shown.shape[1])) % 4 == 0
    partial[grain] = (partial[grain] * 0.8).astype(np.uint8)
    image[shown == PARTIAL] = partial[shown == PARTIAL]
    image[shown == FULL] = FULL_RGB
    image = np.pad(image, ((1, 1), (1, 1), (0, 0)))
    image[[0, -1]] = FRAME_RGB
    image[:, [0, -1]] = FRAME_RGB
    return _encoded(image)


def figure(compiled: CompiledMask, title: str = "") -> go.Figure:
    """The heatmap as a Plotly figure: hover names the tile, its class and density; zoom and pan as in any figure.

    >>> import cmask_lab as cm
    >>> figure(cm.compile(cm.causal(), 1024)).data[0].type
    'heatmap'
    """
    import plotly.graph_objects as go

    classes, density, group = cells(compiled)
    q_step, k_step = group * compiled.tile[0], group * compiled.tile[1]
    queries = compiled.q_start + (np.arange(classes.shape[0]) + 0.5) * q_step
    keys = (np.arange(classes.shape[1]) + 0.5) * k_step
    # Partial tiles keep to the orange part of the scale, whatever their density: full alone is blue, empty alone white.
    z = np.where(classes == FULL, 1.0, np.where(classes == PARTIAL, np.clip(density, 0.01, 0.98), 0.0))
    words = np.array(["empty", "partial", "full"])[classes]
    rgb = [f"rgb{colour}" for colour in (EMPTY_RGB, LOW_RGB, HIGH_RGB, FULL_RGB)]
    scale = [[0, rgb[0]], [0.005, rgb[0]], [0.005, rgb[1]], [0.985, rgb[2]], [0.985, rgb[3]], [1, rgb[3]]]
    what = "tile" if group == 1 else f"{group} × {group} tiles"
    made = go.Figure(
        go.Heatmap(
            z=z,
            x=keys,
            y=queries,
            customdata=np.stack([words, density.astype(object)], axis=-1),
            zmin=0,
            zmax=1,
            colorscale=scale,
            colorbar={"title": "density", "tickvals": [0, 0.5, 1], "ticktext": ["empty", "partial", "full"]},
            hovertemplate=f"query %{{y:.0f}}, key %{{x:.0f}}<br>{what}: %{{customdata[0]}}, "
            "%{customdata[1]:.1%} visible<extra></extra>",
        )
    )
    rows, columns = np.nonzero(classes == PARTIAL)
    if 0 < len(rows) <= STROKES:
        marker = {"symbol": "line-ne", "size": 5, "line": {"width": 1, "color": "rgba(120, 60, 0, .6)"}}
        made.add_scatter(
            x=keys[columns], y=queries[rows], mode="markers", marker=marker, hoverinfo="skip", showlegend=False
        )
    stats = compiled.stats
    made.update_layout(
        title=title or f"{stats.full_tiles:,} full, {stats.partial_tiles:,} partial, {stats.empty_tiles:,} empty tiles",
        xaxis={"title": "key", "side": "top", "range": [0, compiled.kv_len], "constrain": "domain"},
        yaxis={"title": "query", "range": [compiled.q_start + compiled.q_len, compiled.q_start]},
        width=680,
        height=640,
        margin={"l": 70, "r": 20, "t": 90, "b": 20},
    )
    if compiled.q_len == compiled.kv_len:
        made.update_yaxes(scaleanchor="x", constrain="domain")
    return made


def _encoded(image: NDArray[np.uint8]) -> bytes:
    """RGB rows as a PNG file."""
    height, width, _ = image.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], axis=1)

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + part(b"IHDR", header)
        + part(b"IDAT", zlib.compress(lines.tobytes(), 9))
        + part(b"IEND", b"")
    )
