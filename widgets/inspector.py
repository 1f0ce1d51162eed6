"""What the kernel reads for one query tile: its place in the schedule, runs, partial tiles and patterns."""

from __future__ import annotations

from typing import Any

import numpy as np

from cmask_lab.compiler.compile import CompiledMask

SHOWN = 48
"""Runs and partial tiles that are listed; the totals count all."""
PATTERNS = 12
"""Patterns whose bits are sent along."""
ARRAYS = ("run_ptr", "run_start", "run_stop", "partial_ptr", "partial_tile", "partial_pattern", "patterns", "order")


def describe(compiled: CompiledMask, tile_row: int) -> dict[str, Any]:
    """One tile row of the descriptor as JSON types.

    Args:
        tile_row: number of the query tile; of the first distinct mask unless masks differ by batch or head.

    Returns:
        ``place`` in the schedule (0 is first), ``runs`` and ``partial`` (kv tile, pattern) in the order in which the
        kernel reads them, ``patterns`` by number (hexadecimal, a row of bits after another, least significant bit of
        each byte first), and ``arrays`` with shape, dtype and bytes.

    >>> import cmask_lab as cm
    >>> row = describe(cm.compile(cm.causal(), 512, tile=(128, 128)), 2)
    >>> row["runs"], row["partial"], row["place"]
    ([[0, 2]], [[2, 0]], 1)
    """
    descriptor = compiled.descriptor
    if not 0 <= tile_row < len(descriptor.order):
        raise ValueError(f"inspector: tile row is {tile_row}; there are {len(descriptor.order)}, counted from 0")
    first, last = int(descriptor.run_ptr[tile_row]), int(descriptor.run_ptr[tile_row + 1])
    runs = np.stack([descriptor.run_start[first:last], descriptor.run_stop[first:last]], axis=1)
    begin, end = int(descriptor.partial_ptr[tile_row]), int(descriptor.partial_ptr[tile_row + 1])
    partial = np.stack([descriptor.partial_tile[begin:end], descriptor.partial_pattern[begin:end]], axis=1)
    wanted = dict.fromkeys(partial[:SHOWN, 1].tolist())
    return {
        "tile_row": tile_row,
        "place": int(np.flatnonzero(descriptor.order == tile_row)[0]),
        "runs": runs[:SHOWN].tolist(),
        "runs_total": last - first,
        "full_tiles": int((runs[:, 1] - runs[:, 0]).sum()),
        "partial": partial[:SHOWN].tolist(),
        "partial_total": end - begin,
        "patterns": {str(n): bits(compiled, n) for n in list(wanted)[:PATTERNS]},
        "arrays": arrays(compiled),
    }


def bits(compiled: CompiledMask, pattern: int) -> str:
    """The cells of a pattern as hexadecimal text, ``q_tile × kv_tile / 4`` characters."""
    return compiled.descriptor.patterns[pattern].astype("<i4").tobytes().hex()


def arrays(compiled: CompiledMask) -> list[dict[str, Any]]:
    """Name, shape, dtype and bytes of every array of the descriptor.

    >>> import cmask_lab as cm
    >>> [each["name"] for each in arrays(cm.compile(cm.full(), 256))][:2]
    ['run_ptr', 'run_start']
    """
    listed = []
    for name in ARRAYS:
        array = getattr(compiled.descriptor, name)
        listed.append(
            {"name": name, "shape": list(array.shape), "dtype": str(array.dtype), "nbytes": int(array.nbytes)}
        )
    return listed
