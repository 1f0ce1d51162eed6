"""Drawings of masks, intervals and tiles as SVG: small, crisp, readable on light and dark pages, without any library.

Every function returns a :class:`Drawing`, which shows itself in a notebook and in the documentation.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cmask_lab.compiler.compile import CompiledMask
from cmask_lab.compiler.intervals import Bools, IntervalTable
from cmask_lab.masks.mask import Mask

# Blue and orange stay apart for every kind of colour-blindness. The colours of layers are after Okabe and Ito (2008).
VISIBLE, FULL, PARTIAL, WRONG = "#3f76d6", "#3f76d6", "#e8932f", "#e0128a"
LAYERS = ("#3f8fd0", "#e06a1f", "#1fa37a", "#cc79a7", "#8a6fd6", "#c29a10", "#7a7a7a")
FIGURE = "display: inline-block; margin: 0 1.5em 1em 0; vertical-align: top"
FONT = "font: 11px system-ui, sans-serif; fill: currentColor"
MARGIN = 46
"""Room in pixels for the ticks at the top and on the left."""


@dataclass(frozen=True)
class Drawing:
    """A finished picture: ``svg`` is its text, ``caption`` a line of plain text under it."""

    svg: str = field(repr=False)
    caption: str = ""

    def _repr_html_(self) -> str:
        caption = (
            f"<figcaption style='max-width: 24em'>{html.escape(self.caption)}</figcaption>" if self.caption else ""
        )
        return f"<figure style='{FIGURE}'>{self.svg}{caption}</figure>"


@dataclass(frozen=True)
class Row:
    """Drawings side by side."""

    drawings: tuple[Drawing, ...]

    def _repr_html_(self) -> str:
        return "".join(each._repr_html_() for each in self.drawings)


def side_by_side(*drawings: Drawing) -> Row:
    """Drawings next to one another, wrapped where the page is narrow."""
    return Row(drawings)


def cells(
    mask: Mask | Bools,
    q_len: int | None = None,
    kv_len: int | None = None,
    *,
    tile: int | None = None,
    wrong: Iterable[tuple[int, int]] = (),
    caption: str = "",
    size: int = 240,
) -> Drawing:
    """The plane cell by cell: queries downwards, keys to the right, visible cells in blue.

    Args:
        mask: a mask with the lengths to draw it at, or a bool array ``(q_len, kv_len)``.
        tile: side of the tiles whose borders are drawn over it, in positions.
        wrong: cells ``(query, key)`` that get a loud frame.
        size: length of the picture's longer side in pixels.

    >>> import cmask_lab as cm
    >>> cells(cm.causal(), 4).svg.count("<path")
    1
    """
    table = _table(mask, q_len, kv_len)
    plane = _Plane(table.q_len, table.kv_len, size)
    parts = [plane.area(table, VISIBLE)]
    if tile:
        parts.append(plane.lines(range(0, table.q_len + 1, tile), range(0, table.kv_len + 1, tile), 0.9))
    parts += [plane.frame_of(query, key) for query, key in wrong]
    return Drawing(plane.finish(parts), caption)


def layers(
    named: Mapping[str, Mask], q_len: int, kv_len: int | None = None, *, caption: str = "", size: int = 240
) -> Drawing:
    """Several masks in one plane, each in its colour with its name; a later one is painted over an earlier one.

    >>> import cmask_lab as cm
    >>> "causal" in layers({"causal": cm.causal(), "prefix": cm.prefix(2)}, 6).svg
    True
    """
    tables = {name: _table(mask, q_len, kv_len) for name, mask in named.items()}
    first = next(iter(tables.values()))
    plane = _Plane(first.q_len, first.kv_len, size)
    colours = dict(zip(tables, LAYERS, strict=False))
    parts = [plane.area(table, colours[name]) for name, table in tables.items()]
    return Drawing(plane.finish(parts, legend=colours), caption)


def intervals(mask: Mask | Bools, q_len: int | None = None, kv_len: int | None = None, *, caption: str = "") -> Drawing:
    """Each row as bars ``[start, stop)``, with the numbers written on the right: what the compiler keeps of a mask.

    >>> import cmask_lab as cm
    >>> "[0, 2)" in intervals(cm.causal(), 4).svg
    True
    """
    table = _table(mask, q_len, kv_len)
    step = 16
    plane = _Plane(table.q_len, table.kv_len, step * max(table.q_len, table.kv_len))
    parts = []
    for query in range(table.q_len):
        y = MARGIN + query * step
        pieces = table.row(query).tolist()
        for start, stop in pieces:
            x, width = MARGIN + start * step, (stop - start) * step
            parts.append(
                f'<rect x="{x + 1}" y="{y + 3}" width="{width - 2}" height="{step - 6}" rx="4" fill="{VISIBLE}"/>'
            )
        text = " ".join(f"[{start}, {stop})" for start, stop in pieces) or "nothing"
        parts.append(f'<text x="{MARGIN + table.kv_len * step + 10}" y="{y + 12}" style="{FONT}">{text}</text>')
    widest = max((len(table.row(query)) for query in range(table.q_len)), default=1)
    return Drawing(plane.finish(parts, extra_width=20 + 62 * max(widest, 1)), caption)


def tiles(compiled: CompiledMask, *, caption: str = "", size: int = 240) -> Drawing:
    """The tile map: full tiles blue, partial ones orange (the more visible, the stronger) and hatched, empty ones bare.

    >>> import cmask_lab as cm
    >>> tiles(cm.compile(cm.causal(), 256, tile=64)).svg.count('class="partial"')
    4
    """
    classes, density = compiled.tile_map(), compiled.tile_density()
    q_tiles, kv_tiles = classes.shape
    plane = _Plane(q_tiles, kv_tiles, size, unit="tile")
    parts = [HATCH]
    full = IntervalTable.from_dense(classes == 2)
    parts.append(plane.area(full, FULL))
    for query, key in np.argwhere(classes == 1):
        x, y = MARGIN + key * plane.scale, MARGIN + query * plane.scale
        box = f'x="{x:.2f}" y="{y:.2f}" width="{plane.scale:.2f}" height="{plane.scale:.2f}"'
        opacity = 0.35 + 0.65 * float(density[query, key])
        parts.append(f'<rect class="partial" {box} fill="{PARTIAL}" fill-opacity="{opacity:.2f}"/>')
        if plane.scale >= 6:
            parts.append(f'<rect {box} fill="url(#hatch)"/>')
    if plane.scale >= 4:
        parts.append(plane.lines(range(q_tiles + 1), range(kv_tiles + 1), 0.25))
    return Drawing(plane.finish(parts), caption)


HATCH = (
    '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="1.2" height="5" fill="#7a4300" fill-opacity=".55"/></pattern></defs>'
)


class _Plane:
    """A drawn (query, key) plane: its scale, its ticks, its frame."""

    def __init__(self, q_len: int, kv_len: int, size: int, unit: str = ""):
        self.q_len, self.kv_len, self.unit = q_len, kv_len, unit
        self.scale = size / max(q_len, kv_len, 1)

    def area(self, table: IntervalTable, colour: str) -> str:
        """The visible cells of a table; with room for it, each cell is set apart by a hair of background."""
        row = table.rows_per_interval()
        gap = 0.06 if self.scale >= 8 else 0.0
        if gap:
            keys = np.concatenate([np.arange(a, b) for a, b in zip(table.start, table.stop, strict=True)] or [[]])
            rows = np.repeat(row, table.stop - table.start)
            boxes = [
                f"M{k + gap:g} {q + gap:g}h{1 - 2 * gap:g}v{1 - 2 * gap:g}h-{1 - 2 * gap:g}z"
                for q, k in zip(rows, keys, strict=True)
            ]
        else:
            spans = zip(row, table.start, table.stop, strict=True)
            boxes = [f"M{start} {q}h{stop - start}v1h-{stop - start}z" for q, start, stop in spans]
        move = f"translate({MARGIN} {MARGIN}) scale({self.scale:.4f})"
        return f'<path transform="{move}" fill="{colour}" d="{"".join(boxes)}"/>'

    def lines(self, queries: Sequence[int], keys: Sequence[int], opacity: float) -> str:
        """Lines at the given positions across the whole plane."""
        width, height = self.kv_len * self.scale, self.q_len * self.scale
        across = [f"M{MARGIN} {MARGIN + q * self.scale:.2f}h{width:.2f}" for q in queries]
        down = [f"M{MARGIN + k * self.scale:.2f} {MARGIN}v{height:.2f}" for k in keys]
        return f'<path d="{"".join(across + down)}" stroke="currentColor" stroke-opacity="{opacity}" fill="none"/>'

    def frame_of(self, query: int, key: int) -> str:
        """A loud frame around one cell, large enough to be seen at any scale."""
        x, y, side = MARGIN + key * self.scale, MARGIN + query * self.scale, self.scale
        grow = max(0.0, (9 - side) / 2)
        box = f'x="{x - grow:.2f}" y="{y - grow:.2f}" width="{side + 2 * grow:.2f}" height="{side + 2 * grow:.2f}"'
        return f'<rect class="wrong" {box} fill="none" stroke="{WRONG}" stroke-width="2.5"/>'

    def finish(self, parts: Sequence[str], *, legend: Mapping[str, str] | None = None, extra_width: float = 0) -> str:
        """The whole SVG: parts, frame, ticks, names of the axes, legend."""
        width, height = self.kv_len * self.scale, self.q_len * self.scale
        box = f'x="{MARGIN}" y="{MARGIN}" width="{width:.2f}" height="{height:.2f}"'
        out = [*parts, f'<rect {box} fill="none" stroke="currentColor" stroke-opacity=".45"/>']
        for key in _ticks(self.kv_len):
            at = MARGIN + (key + (0.5 if self.scale >= 8 else 0)) * self.scale
            out.append(f'<text x="{at:.1f}" y="{MARGIN - 5}" text-anchor="middle" style="{FONT}">{key}</text>')
        for query in _ticks(self.q_len):
            at = MARGIN + (query + (0.5 if self.scale >= 8 else 0)) * self.scale + 4
            out.append(f'<text x="{MARGIN - 5}" y="{at:.1f}" text-anchor="end" style="{FONT}">{query}</text>')
        unit = f"{self.unit} " if self.unit else ""
        out.append(f'<text x="{MARGIN}" y="{MARGIN - 24}" style="{FONT}" opacity=".7">key {unit}→</text>')
        out.append(
            f'<text transform="translate(9 {MARGIN}) rotate(90)" style="{FONT}" opacity=".7">query {unit}→</text>'
        )
        below = MARGIN + height + 16
        for name, colour in (legend or {}).items():
            out.append(f'<rect x="{MARGIN}" y="{below - 9:.1f}" width="10" height="10" fill="{colour}"/>')
            out.append(f'<text x="{MARGIN + 15}" y="{below:.1f}" style="{FONT}">{html.escape(name)}</text>')
            below += 15
        total_width, total_height = MARGIN + width + 12 + extra_width, below - 8
        box = (
            f'width="{total_width:.0f}" height="{total_height:.0f}" viewBox="0 0 {total_width:.0f} {total_height:.0f}"'
        )
        return f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img">{"".join(out)}</svg>'


def _table(mask: Mask | Bools, q_len: int | None, kv_len: int | None) -> IntervalTable:
    if isinstance(mask, Mask):
        if q_len is None:
            raise ValueError("drawing: a mask has no size of its own; give q_len, such as cells(mask, 16)")
        return mask.intervals(q_len, kv_len)
    return IntervalTable.from_dense(mask)


def _ticks(length: int) -> list[int]:
    """Three to six round positions of ``[0, length)``."""
    step = 1
    while length / step > 6:
        step *= 2
    return list(range(0, length, step))
