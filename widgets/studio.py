"""``cm.Studio``: design a mask by hand, see its cost, take the code with you."""

from __future__ import annotations

import base64
import html
import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import traitlets
from cmask_lab.widgets import heatmap, share, throughput
from cmask_lab.widgets.design import Design, DesignError
from cmask_lab.widgets.editor import Editor
from IPython import get_ipython
from IPython.display import display
from ipywidgets import VBox, Widget

from cmask_lab import json_text
from cmask_lab.compiler.compile import CompiledMask, compile
from cmask_lab.masks import Mask, causal, from_spec
from cmask_lab.masks.mask import checked_mask

if TYPE_CHECKING:
    import plotly.graph_objects as go

SEQ_LEN = 8192
AUTOSAVE = Path(".cmask_studio.json")

PANELS: list[Callable[[Studio], Widget]] = [throughput.panel]
"""Makers of panels below every new Studio: each takes the Studio (``studio.observe(f, "mask")``), returns a widget."""

_open: dict[str, Studio] = {}  # notebook cell → the Studio shown there


class Studio(traitlets.HasTraits):
    """The design environment: put it last in a cell, or call ``display(studio)``.

    Args:
        mask: what to start with; ``cm.causal()``, or what this cell showed before, if not given.
        seq_len: number of queries; what the mask was made for, else 8192, if not given.
        kv_len: number of keys; ``q_start + seq_len`` if not given.
        q_start: position of the first query.
        tile: ``(q_tile, kv_tile)``.
        panels: makers of further panels below the editor, see :data:`PANELS`.
        autosave: file that every edit is written to, for :meth:`restore`; None for none.

    ``studio.mask`` is a trait: read it at any time, set it to show another mask, observe it to follow the edits.

    >>> import cmask_lab as cm
    >>> studio = cm.Studio(cm.documents([512, 512]) & cm.causal(), autosave=None)
    >>> studio.mask
    cm.documents([512, 512]) & cm.causal()
    >>> studio.mask = cm.window(128)
    >>> studio.compiled.stats.visible_pairs
    123840
    """

    mask = traitlets.Instance(Mask)

    def __init__(
        self,
        mask: Mask | None = None,
        seq_len: int | None = None,
        *,
        kv_len: int | None = None,
        q_start: int = 0,
        tile: tuple[int, int] = (128, 128),
        panels: tuple[Callable[[Studio], Widget], ...] | None = None,
        autosave: Path | str | None = AUTOSAVE,
    ) -> None:
        self._cell = _cell_id()
        before = _open.get(self._cell)
        if mask is None and seq_len is None and before is not None:
            design = before.design
        else:
            design = _first_design(mask, seq_len, kv_len, q_start, tile)
        if before is not None:
            before.close()
        self._start(design, PANELS if panels is None else list(panels), autosave)

    def _start(self, design: Design, panels: list[Callable[[Studio], Widget]], autosave: Path | str | None) -> None:
        self.editor = Editor(design)
        super().__init__(mask=self.editor.mask)
        traitlets.link((self.editor, "mask"), (self, "mask"))
        self._autosave = None if autosave is None else Path(autosave)
        self._fallback: Any = None
        self.editor.observe(self._settled, "settled")
        self._parts: list[Widget] = [self.editor, *(make(self) for make in panels)]
        self._widget: Widget = VBox(self._parts) if len(self._parts) > 1 else self.editor
        if self._cell:
            _open[self._cell] = self

    @property
    def design(self) -> Design:
        """Layers, plane and tile size as they are now."""
        return self.editor.current

    @property
    def compiled(self) -> CompiledMask | None:
        """The compiled mask; None while the design does not compile."""
        return self.editor.compiled

    def figure(self, *, tile: tuple[int, int] | None = None, order: str = "natural") -> go.Figure:
        """The tile heatmap as a Plotly figure, to explore and to keep.

        Args:
            tile: another tile size than the Studio's.
            order: "auto" shows the tiles in the token order that the compiler chooses.
        """
        now = self.design
        compiled = self.compiled
        if compiled is None or order != "natural" or tile not in (None, now.tile):
            compiled = compile(now.mask, now.q_len, now.kv_len, q_start=now.q_start, tile=tile or now.tile, order=order)
        return heatmap.figure(compiled)

    def save(self, path: Path | str) -> Path:
        """Write the design to a file, hidden layers included; ``"spec"`` in it is what ``cm.from_spec`` reads."""
        target = Path(path)
        design = self.design
        message = design.message()
        message.pop("rev")
        kept = {"cmask_studio": share.FILE_VERSION, "spec": {"cmask": 1, "mask": design.node}, "design": message}
        scratch = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        scratch.write_text(json.dumps(kept, indent=1), encoding="utf-8")
        scratch.replace(target)  # a kernel that dies meanwhile leaves the old file whole
        return target

    @classmethod
    def open(cls, path: Path | str, **options: Any) -> Studio:
        """A Studio with the design in a file: one that :meth:`save` wrote, or a spec.

        Raises:
            FileNotFoundError: no such file.
            DesignError: the file holds something else; the message says what.
        """
        source = Path(path)
        try:
            kept = json_text.read(source)
        except ValueError as error:
            raise DesignError(f"open: {error}") from error
        if isinstance(kept, dict) and kept.get("cmask") == 1:
            return cls(from_spec(kept), **options)
        if not isinstance(kept, dict) or kept.get("cmask_studio") != share.FILE_VERSION:
            raise DesignError(f"open: {source} holds neither a design of the Studio nor a mask's spec of version 1")
        return cls._of(Design.read(kept.get("design")).edited(), options)

    @classmethod
    def from_link(cls, link: str, **options: Any) -> Studio:
        """A Studio with the design in a link that "Link" in the code panel copied; only its spec is read.

        Raises:
            DesignError: the link holds no design, or a damaged one.

        >>> import cmask_lab as cm
        >>> cm.Studio.from_link("https://example.org/lab#nothing")
        Traceback (most recent call last):
        cmask_lab.widgets.design.DesignError: share: this link holds no design; a Studio's ends with #cmask=…
        """
        return cls._of(share.design_in(link), options)

    @classmethod
    def _of(cls, design: Design, options: dict[str, Any]) -> Studio:
        studio = cls(design.mask, design.q_len, kv_len=design.kv_len, q_start=design.q_start, **options)
        studio.editor.show(design)
        return studio

    @classmethod
    def restore(cls, path: Path | str = AUTOSAVE, **options: Any) -> Studio:
        """The design that was edited last in this folder, after a kernel restart or another day."""
        if not Path(path).exists():
            raise FileNotFoundError(f"restore: there is no {path} here; a Studio writes it at the first edit")
        return cls.open(path, **options)

    def close(self) -> None:
        """End the widget; the design can still be read."""
        self._widget.close()
        self.editor.close()

    def _settled(self, change: dict[str, Any]) -> None:
        if self._autosave is not None:
            self.save(self._autosave)
        if self._fallback is not None:
            self._fallback.update(self._still(), raw=True)

    def _still(self) -> dict[str, str]:
        """What a notebook shows that is opened without a kernel: the last picture, its numbers and the mask."""
        code = html.escape(repr(self.mask))
        if self.compiled is None:
            body = f"<p>{html.escape(self.editor.report['error'])}</p>"
        else:
            stats = self.compiled.stats
            picture = base64.b64encode(heatmap.png(self.compiled)).decode()
            tile = " × ".join(map(str, self.compiled.tile))
            size = f"{self.design.q_len:,} queries × {self.design.kv_len:,} keys, {tile} tiles"
            rows = (
                ("visible pairs", f"{stats.visible_pairs:,} ({stats.density:.2%})"),
                ("full, partial, empty tiles", f"{stats.full_tiles:,}, {stats.partial_tiles:,}, {stats.empty_tiles:,}"),
                ("wasted work", f"{stats.waste:.2f} ×"),
                ("descriptor", f"{stats.descriptor_bytes:,} bytes"),
            )
            cells = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows)
            body = (
                f'<img alt="Tile heatmap of the mask, {size}" src="data:image/png;base64,{picture}">'
                f"<p>{size}</p><table>{cells}</table>"
            )
        note = "The last state of this Studio. Run the cell to edit it, or <code>cm.Studio.restore()</code>."
        return {
            "text/html": f'<div class="cms-fallback">{body}<p><code>{code}</code></p><p><em>{note}</em></p></div>',
            "text/plain": repr(self),
        }

    def _ipython_display_(self) -> None:
        display(self._widget)
        self._fallback = display(self._still(), raw=True, display_id=True)

    def _display_(self) -> Any:
        """What marimo shows, which knows single widgets and no boxes of them."""
        return importlib.import_module("marimo").vstack(self._parts)

    def __repr__(self) -> str:
        return f"cm.Studio({self.mask!r}, {self.design.q_len})"


def _first_design(
    mask: Mask | None, seq_len: int | None, kv_len: int | None, q_start: int, tile: tuple[int, int]
) -> Design:
    mask = causal() if mask is None else mask
    checked_mask(mask, "Studio: mask")
    queries, keys = mask.extent
    q_len = seq_len or (max(queries or 0, keys or 0) - q_start if queries or keys else SEQ_LEN)
    return Design.of(mask, q_len, kv_len, q_start=q_start, tile=tuple(tile))


def _cell_id() -> str:
    """The notebook cell that is being run; "" outside of notebooks."""
    shell = get_ipython()
    if shell is None or not hasattr(shell, "get_parent"):
        return ""
    return str(shell.get_parent().get("metadata", {}).get("cellId", ""))
