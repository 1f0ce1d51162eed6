"""How full the tiles of a mask are, small enough to stand in a report."""

from __future__ import annotations

import numpy as np

from cmask_lab.compiler.compile import CompiledMask

SIDE = 128
"""Rows and columns of the map, at most."""


def density_map(compiled: CompiledMask, side: int = SIDE) -> tuple[tuple[int, ...], ...]:
    """Visible share of every tile in percent, rounded up; of groups of tiles where there are more than ``side``.

    >>> import cmask_lab as cm
    >>> density_map(cm.compile(cm.causal(), 256, tile=128))
    ((51, 0), (100, 51))
    """
    density = compiled.tile_density()
    if not density.size:
        return ()
    step = -(-max(density.shape) // side)
    pad = [(0, -length % step) for length in density.shape]
    # Groups at the edge count only the tiles that are there.
    sums, counts = (
        np.pad(a, pad).reshape(-(-density.shape[0] // step), step, -1, step).sum((1, 3))
        for a in (density.astype(np.float64), np.ones_like(density))
    )
    return tuple(tuple(int(x) for x in row) for row in np.ceil(np.round(100 * sums / counts, 6)))
