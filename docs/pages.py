"""Pages that are made from the package itself: the gallery from its catalogue, the kernel notes from ``kernels/``."""

from __future__ import annotations

from pathlib import Path

import cmask_lab as cm

ROOT = Path(__file__).resolve().parent.parent
TILE = 64
"""Side of the tiles that the gallery counts: small, as its masks are."""

GALLERY = f"""\
# Gallery

Every mask of `cm.gallery`, at its default parameters: picture, formula, cost in tiles of {TILE} × {TILE}, code.
Queries run downwards, keys to the right. `cm.gallery.get(name, …)` gives the mask, made of regions that one can edit.
"""


def generated() -> dict[str, str]:
    """Source path in the documentation → Markdown."""
    pages = {"gallery.md": gallery()}
    for notes in sorted((ROOT / "kernels").rglob("NOTES.md")):
        pages[f"kernels-{notes.parent.name}.md"] = notes.read_text()
    return pages


def gallery() -> str:
    """The gallery page."""
    parts, family = [GALLERY], ""
    for name in cm.gallery.names():
        entry = cm.gallery.entry(name)
        if entry.family != family:
            family = entry.family
            parts.append(f"## {family.capitalize()}\n")
        parts.append(section(entry))
    return "\n".join(parts)


def section(entry: cm.gallery.Entry) -> str:
    """One mask of the gallery."""
    mask = cm.gallery.get(entry.name)
    picture = mask.picture()
    window = picture.window
    stats = cm.compile(mask, window.q_len, window.kv_len, q_start=window.q_start, tile=TILE).stats
    size = f"{window.q_len:,} queries × {window.kv_len:,} keys"
    tiles = f"{stats.full_tiles:,} full, {stats.partial_tiles:,} partial, {stats.empty_tiles:,} empty tiles"
    cost = f"density {stats.density:.3f}; {tiles}; {stats.descriptor_bytes:,} bytes of descriptor"
    arguments = ", ".join([repr(entry.name), *(f"{p.name}={p.default!r}" for p in entry.parameters)])
    lines = [
        f"### {entry.title}",
        "",
        f"<div>{picture.svg}</div>",
        "",
        f"`{entry.formula}`",
        "",
        f"{size}, {cost}. Source: {entry.source}.",
    ]
    if entry.convention:
        lines += ["", f"*{entry.convention}*"]
    lines += ["", "```python", f"cm.gallery.get({arguments})", "```", ""]
    if entry.parameters:
        lines += ["| parameter | default | what it is |", "|---|---|---|"]
        lines += [
            f"| `{p.name}` | `{p.default!r}` | {p.about}{f' ({p.unit})' if p.unit else ''} |" for p in entry.parameters
        ]
        lines.append("")
    return "\n".join(lines)
