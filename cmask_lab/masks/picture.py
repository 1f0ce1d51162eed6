"""A mask as a small picture for the notebook: vector cells, readable on light and on dark, with formula and density.

The drawing takes its ink from the notebook's theme and its frame from the text colour. Beyond ``CELLS`` rows a cell
stands for many positions, and its opacity for the share of them that is visible.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.masks.combinators import PerBatch, PerHead
from cmask_lab.masks.mask import Mask, Window

CELLS = 64
SHADES = 8
SIDE_PX = 192
INTERVALS_LIMIT = 20_000_000
"""A mask of more intervals isn't drawn unasked: showing a variable should not take seconds and gigabytes."""
SHOWN_MASKS = 4

INK = "var(--jp-brand-color1, var(--vscode-charts-blue, #2f7ed8))"


@dataclass(frozen=True)
class Picture:
    """A mask at chosen lengths; made by ``mask.picture(q_len, kv_len, q_start)``.

    >>> import cmask_lab as cm
    >>> picture = cm.causal().picture(4)
    >>> picture.visible_pairs, picture.density
    (10, 0.625)
    """

    mask: Mask
    window: Window
    coverage: NDArray[np.float64] | None
    """``(rows, columns)``: share of visible pairs in each cell; None if the mask is too large to draw unasked."""
    visible_pairs: int | None

    @classmethod
    def of(cls, mask: Mask, q_len: int | None, kv_len: int | None, q_start: int) -> Picture:
        """The picture at these lengths, or at the mask's own size where they are None."""
        unasked = q_len is None
        if q_len is None:
            q_len, own_kv_len = own_lengths(mask)
            kv_len = own_kv_len if kv_len is None else kv_len
        window = mask._window(q_len, kv_len, q_start)
        if unasked and mask._estimate(window) > INTERVALS_LIMIT:
            return cls(mask, window, None, None)
        table = mask._lower(window)
        return cls(mask, window, coverage(table), table.visible_pairs)

    @property
    def density(self) -> float | None:
        """Visible pairs over all pairs."""
        if self.visible_pairs is None:
            return None
        return self.visible_pairs / max(self.window.q_len * self.window.kv_len, 1)

    @property
    def svg(self) -> str:
        """The drawing alone: queries downwards, keys to the right."""
        cells = np.zeros((1, 1)) if self.coverage is None else self.coverage
        rows, columns = cells.shape
        cell_px = max(SIDE_PX // max(rows, columns, 1), 1)
        width, height = max(columns * cell_px, 12), max(rows * cell_px, 12)
        label = escape(f"{self.mask.formula}; {self._numbers()}", quote=True)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" '
            f'width="{width}" height="{height}" viewBox="0 0 {max(columns, 1)} {max(rows, 1)}" '
            f'preserveAspectRatio="none" shape-rendering="crispEdges" '
            f'style="flex:none;color:inherit;outline:1px solid color-mix(in srgb, currentColor 40%, transparent)">'
            f'<rect width="100%" height="100%" fill="currentColor" fill-opacity="0.05"/>'
            f'<g style="fill:{INK}">{_cells(cells)}</g></svg>'
        )

    def _repr_html_(self) -> str:
        name = "" if self.mask.name is None else f"<strong>{escape(self.mask.name)}</strong><br>"
        return (
            '<div style="display:flex;gap:16px;align-items:flex-start;font-size:13px;line-height:1.5">'
            f"{self.svg}<div>{name}<code>{escape(self.mask.formula)}</code><br>{escape(self._numbers())}</div></div>"
        )

    def _numbers(self) -> str:
        q_start, q_len, kv_len = self.window
        rows = f"{q_len:,} queries" if not q_start else f"{q_len:,} queries from {q_start:,} on"
        if self.visible_pairs is None:
            return f"{rows} × {kv_len:,} keys · too large to draw unasked; choose a length with .picture(q_len)"
        return f"{rows} × {kv_len:,} keys · density {self.density:.3%} · {self.visible_pairs:,} visible pairs"


def pictures_html(mask: Mask) -> str:
    """HTML of a mask at its own size; of a mask for each head or batch entry, the first few below one another."""
    if not isinstance(mask, PerHead | PerBatch):
        return mask.picture()._repr_html_()
    parts = [f"<p><code>{escape(mask.formula)}</code></p>"]
    for n, each in enumerate(mask.masks[:SHOWN_MASKS]):
        parts.append(f"<p>{mask.noun} {n}</p>{pictures_html(each)}")
    if len(mask.masks) > SHOWN_MASKS:
        parts.append(f"<p>… {len(mask.masks) - SHOWN_MASKS} more</p>")
    return "".join(parts)


def own_lengths(mask: Mask) -> tuple[int, int]:
    """The lengths at which a mask shows what it is: its extent, or four times the largest number in it.

    >>> import cmask_lab as cm
    >>> own_lengths(cm.documents([5, 4])), own_lengths(cm.window(1023)), own_lengths(cm.causal())
    ((9, 9), (4092, 4092), (64, 64))
    """
    queries, keys = mask.extent
    if queries is not None and keys is not None:
        return queries, keys
    length = max(64, 4 * _largest_number(mask))
    return length if queries is None else queries, length if keys is None else max(keys, length)


def _largest_number(mask: Mask) -> int:
    numbers = [end for end in mask.extent if end is not None]
    for field in dataclasses.fields(mask):
        value = getattr(mask, field.name)
        if isinstance(value, int):
            numbers.append(abs(value))
    return max([*numbers, *map(_largest_number, mask.children)], default=0)


def coverage(table: IntervalTable) -> NDArray[np.float64]:
    """float64 ``(rows, columns)``, at most ``CELLS`` each way: the share of every cell that is visible.

    >>> coverage(IntervalTable.full(2, 3))
    array([[1., 1., 1.],
           [1., 1., 1.]])
    """
    tall, wide = (max(-(-length // CELLS), 1) for length in (table.q_len, table.kv_len))
    rows, columns = -(-table.q_len // tall), -(-table.kv_len // wide)
    # A start makes the rest of its own cell visible and all of the cells behind it; a stop takes the same away again.
    own, behind = np.zeros((2, rows * (columns + 1)))
    first_cell = table.rows_per_interval() // tall * (columns + 1)
    for edges, sign in ((table.start, 1), (table.stop, -1)):
        column = edges // wide
        cell = first_cell + column
        own += sign * np.bincount(cell, weights=(column + 1) * wide - edges, minlength=len(own))
        behind += sign * np.bincount(cell, minlength=len(own)) * wide
    own, behind = (part.reshape(rows, columns + 1) for part in (own, behind))
    visible = (own + np.cumsum(behind, axis=1) - behind)[:, :columns]
    heights = np.minimum(tall, table.q_len - tall * np.arange(rows))
    widths = np.minimum(wide, table.kv_len - wide * np.arange(columns))
    return visible / np.outer(heights, widths)


def _cells(cells: NDArray[np.float64]) -> str:
    """One path for each shade; a run of equal cells in a row is one rectangle of it."""
    shade = np.ceil(cells * SHADES).astype(np.int64)
    paths = []
    for level in range(1, SHADES + 1):
        runs = IntervalTable.from_dense(shade == level)
        if runs.count:
            pieces = zip(runs.rows_per_interval().tolist(), runs.start.tolist(), runs.stop.tolist(), strict=True)
            shape = "".join(f"M{start} {row}h{stop - start}v1h{start - stop}z" for row, start, stop in pieces)
            paths.append(f'<path fill-opacity="{level / SHADES:g}" d="{shape}"/>')
    return "".join(paths)
