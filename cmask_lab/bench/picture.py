"""Pictures of a report without any plotting library: throughput as SVG, tile maps as PNG.

Both stand in the page that ``report.html`` is and in the README; they need no script and no network, and follow the
reader's light or dark setting.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from html import escape

from cmask_lab.bench import tables
from cmask_lab.bench.flops import attention_flops
from cmask_lab.bench.report import Case, Entry, Report

WIDTH, LABEL, VALUE = 860, 150, 190
"""Of a chart in pixels: all of it, the column of names, the column of numbers."""

BAR, GAP, GROUP = 15, 4, 30
"""Height of a bar, space between bars, space for a mask's title."""

COLORS = {
    "cmask": ("#1d5fd0", "#6ea8ff"),
    "flex-fa4": ("#c2570c", "#f59f57"),
    "flex-triton": ("#a58a10", "#e3c64a"),
    "flex-cpu": ("#a58a10", "#e3c64a"),
    "fa4": ("#7a3fc4", "#b794f4"),
    "sdpa-cudnn": ("#3f7f56", "#7cc79a"),
    "sdpa-flash": ("#5b7f8c", "#8fb8c6"),
    "sdpa-dense": ("#70757d", "#a4abb5"),
}
"""Light and dark colour of every contender; variants share the colour of what they vary."""

LIGHT, DARK = (
    ".chart{--ink:#16191d;--dim:#5d646e;--rule:#d9dde3;--paper:#ffffff}",
    ".chart{--ink:#e8eaed;--dim:#9aa3af;--rule:#3a4048;--paper:#15181c}",
)
"""Colours of a picture that stands alone; one in a page takes the page's."""

STYLE = """
.chart text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--ink)}
.chart .dim{fill:var(--dim)} .chart .title{font-weight:600}
.chart .num{font-variant-numeric:tabular-nums;paint-order:stroke;stroke:var(--card,var(--paper));stroke-width:3px}
.chart .rule{stroke:var(--rule)} .chart .floor{stroke:var(--dim);stroke-dasharray:3 3}
.chart .spread{stroke:var(--ink);stroke-opacity:.75} .chart .paper{fill:var(--paper)}
"""


def color_class(contender: str) -> str:
    """The CSS class of a contender's bars.

    >>> color_class("cmask-portable+silu"), color_class("flex-fa4+kept")
    ('c-cmask', 'c-flex-fa4')
    """
    base = contender.partition("+")[0]
    return f"c-{'cmask' if base.startswith('cmask') else base}"


def style(dark: bool) -> str:
    """Rules for the bars' colours, for a page that is light or dark."""
    return "".join(f".chart .c-{name}{{fill:{pair[dark]}}}" for name, pair in COLORS.items())


def throughput_svg(report: Report, direction: str, *, standalone: bool = True) -> str:
    """Bars of TFLOP/s on visible pairs, a group for every mask; whiskers are quartiles, the dashed line is the floor.

    Args:
        standalone: with colours and a background of its own; without, those of the page that it stands in.
    """
    cases = [case for case in report.cases if any(e.timed for e in case.entries if e.direction == direction)]
    if not cases:
        return ""
    unit = tables.unit(report)
    limit = 1.02 * max(max(_best(case, direction), _at_floor(case, direction) or 0.0) for case in cases)
    body, y = [], 34
    for case in cases:
        group, y = _group(case, direction, limit, y, unit)
        body.append(group)
    height = y + 8
    heading = f"{direction.capitalize()}: {unit} on visible pairs, {escape(str(report.device.get('name', '')))}"
    css = LIGHT + STYLE + style(False) + f"@media(prefers-color-scheme:dark){{{DARK}{style(True)}}}"
    head = f"<style>{css}</style><rect class='paper' width='100%' height='100%'/>" if standalone else ""
    return (
        f"<svg class='chart' xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' "
        f"height='{height}' role='img' aria-label='{heading}'>{head}"
        f"<text class='title' x='8' y='20'>{heading}</text>{''.join(body)}</svg>"
    )


def _group(case: Case, direction: str, limit: float, y: int, unit: str) -> tuple[str, int]:
    """One mask's bars from height ``y`` on, and the height below them."""
    entries = [e for e in case.entries if e.direction == direction and e.timed]
    ratios = {c.baseline: c for c in case.comparisons(direction)}
    scale = (WIDTH - LABEL - VALUE) / limit
    parts = [
        f"<line class='rule' x1='8' x2='{WIDTH - 8}' y1='{y + 3}' y2='{y + 3}'/>",
        f"<text x='8' y='{y + 20}'><tspan class='title'>{escape(case.title)}</tspan>"
        f"<tspan class='dim' dx='12'>{_size(case)}</tspan></text>",
    ]
    top = y + GROUP
    bottom = top + len(entries) * (BAR + GAP)
    if floor := _at_floor(case, direction):
        x = LABEL + floor * scale
        parts.append(f"<line class='floor' x1='{x:.1f}' x2='{x:.1f}' y1='{top - 4}' y2='{bottom}'/>")
    for number, entry in enumerate(entries):
        assert entry.summary is not None
        at = top + number * (BAR + GAP)
        value = case.tflops(entry) or 0.0
        length, middle = value * scale, at + BAR / 2
        # A quartile of the time is the other quartile of the rate.
        low, high = (LABEL + scale * value * entry.summary.median / q for q in _quartiles(entry))
        says = tables.rate(value, unit)
        if entry.contender in ratios:
            compared = ratios[entry.contender]
            says += f" · {compared.ours} {compared.ratio.median:.2f}×{' (spoiled)' if compared.spoiled else ''}"
        parts.append(
            f"<text x='{LABEL - 8}' y='{at + 12}' text-anchor='end'>{escape(entry.contender)}</text>"
            f"<rect class='{color_class(entry.contender)}' x='{LABEL}' y='{at}' width='{length:.1f}' height='{BAR}'>"
            f"<title>{escape(entry.contender)}: {entry.summary.median:.4g} ms, n={entry.summary.n}</title></rect>"
            f"<line class='spread' x1='{low:.1f}' x2='{high:.1f}' y1='{middle}' y2='{middle}'/>"
            f"<text class='num' x='{max(LABEL + length, high) + 7:.1f}' y='{at + 12}'>{escape(says)}</text>"
        )
    return "".join(parts), bottom + 8


def tile_map_png(density_map: Sequence[Sequence[int]], scale: int = 1) -> bytes:
    """A tile map as PNG with a transparent background: full tiles blue, partial ones amber, stronger where denser."""
    rows = []
    for row in density_map:
        line = b"".join(_pixel(percent) * scale for percent in row)
        rows += [b"\0" + line] * scale
    height, width = len(density_map) * scale, (len(density_map[0]) if density_map else 0) * scale
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0))
        + _chunk(b"IDAT", zlib.compress(b"".join(rows), 9))
        + _chunk(b"IEND", b"")
    )


def data_uri(png: bytes) -> str:
    """A PNG as the address of an image."""
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _pixel(percent: int) -> bytes:
    if percent <= 0:
        return bytes((0, 0, 0, 0))
    if percent >= 100:
        return bytes((45, 111, 219, 255))
    return bytes((226, 146, 46, 90 + 165 * percent // 100))


def _chunk(kind: bytes, data: bytes) -> bytes:
    """Length, kind, data, checksum: how a PNG file is put together."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _quartiles(entry: Entry) -> tuple[float, float]:
    assert entry.summary is not None
    return entry.summary.high_quartile, entry.summary.low_quartile


def _best(case: Case, direction: str) -> float:
    rates = [case.tflops(e) for e in case.entries if e.direction == direction]
    return max((rate for rate in rates if rate), default=0.0)


def _at_floor(case: Case, direction: str) -> float | None:
    """The rate that nobody exceeds."""
    floor = case.floor_ms(direction)
    return attention_flops(case.visible_pairs, case.head_dim, direction) / floor / 1e9 if floor else None


def _size(case: Case) -> str:
    heads = f"{case.heads}" if case.heads == case.kv_heads else f"{case.heads}:{case.kv_heads}"
    return f"{case.q_len:,} tokens, {heads} heads, D={case.head_dim}, {case.dtype}, density {case.stats['density']:.3f}"
