"""The widget: traits that the browser and Python share, and what Python answers.

The browser sends designs (``design``) and questions (``asks``); Python checks a design, compiles it and answers with
``report`` and ``tile_data``, or says in ``problem`` what it refused. Traits have back-pressure and the latest value
wins, so a slow compilation never leaves a queue behind.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets
from cmask_lab.widgets import code_panel, inspector, linter, reordered, share
from cmask_lab.widgets.design import Design, DesignError

from cmask_lab.compiler.compile import CompiledMask, compile
from cmask_lab.compiler.cost import predicted_ms
from cmask_lab.masks import Mask, gallery

STATIC = Path(__file__).parent / "static"
CLASSES_LIMIT = 512
"""Larger maps (tiles a side) are compared by counts a tile row: what the view can show at once is no more."""
PEAK_TFLOPS = 790.0
"""Matrix rate that no kernel exceeded on an H200 (bfloat16): it gives the floor under a predicted time."""
DEVICE = "H200 model"


class Editor(anywidget.AnyWidget):
    """The design environment as a widget; :class:`cmask_lab.widgets.studio.Studio` is what users open."""

    _esm = STATIC / "studio.js"
    _css = STATIC / "studio.css"

    design = traitlets.Any().tag(sync=True)
    report = traitlets.Dict().tag(sync=True)
    tile_data = traitlets.Bytes().tag(sync=True)
    asks = traitlets.Dict().tag(sync=True)
    answers = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)
    templates = traitlets.List().tag(sync=True)
    targets = traitlets.List().tag(sync=True)

    mask = traitlets.Instance(Mask)
    """The mask of the design; setting it shows another one."""
    compiled: Any = traitlets.Instance(CompiledMask, allow_none=True)
    """The compiled design; None while it doesn't compile."""
    settled = traitlets.Unicode()
    """Revision of the last design that is no draft, set when mask, compiled and report all speak of it."""

    def __init__(self, design: Design) -> None:
        self._lock = threading.RLock()
        self._handled: dict[str, Any] = {}
        self._current = design
        super().__init__(
            design=design.message(),
            mask=design.mask,
            templates=[gallery.entry(name).describe() for name in gallery.names()],
            targets=list(code_panel.targets()),
        )
        self.observe(self._design_arrived, "design")
        self.observe(self._asked, "asks")
        self.observe(self._mask_set, "mask")
        self._publish(design)

    @property
    def current(self) -> Design:
        """The design that was understood last."""
        return self._current

    def show(self, design: Design) -> None:
        """Replace the design, in Python and in every view."""
        with self._lock:
            mask = design.mask  # raises before anything is changed
            self._current = design
            self.design = design.message()
            self.set_trait("mask", mask)
            self._publish(design)
            self.settled = design.rev

    def _design_arrived(self, change: Mapping[str, Any]) -> None:
        with self._lock:
            message = change["new"]
            if isinstance(message, dict) and message.get("rev") == self._current.rev:
                return
            try:
                design = Design.read(message)
            except DesignError as error:
                self.problem = f"The message was refused. {error}"
                return
            self.problem = ""
            self._current = design
            self._publish(design)
            if not design.draft:
                if self.report["ok"]:
                    self.mask = design.mask
                self.settled = design.rev

    def _mask_set(self, change: Mapping[str, Any]) -> None:
        """Somebody set ``mask`` in Python: unless it is what the design says already, the design follows."""
        with self._lock:
            mask, now = change["new"], self._current
            if mask == now.mask:
                return
            queries, keys = mask.extent
            q_len, kv_len = max(now.q_len, (queries or 0) - now.q_start), max(now.kv_len, keys or 0)
            rest = {"q_start": now.q_start, "tile": now.tile, "heads": now.heads, "head_dim": now.head_dim}
            design = Design.of(mask, q_len, kv_len, **rest)
            self._current = design
            self.design = design.message()
            self._publish(design)
            self.settled = design.rev

    def _publish(self, design: Design) -> None:
        """Compile the design and answer. A mask that doesn't fit its plane is an answer too."""
        try:
            compiled = compile(design.mask, design.q_len, design.kv_len, q_start=design.q_start, tile=design.tile)
        except (ValueError, TypeError, MemoryError) as error:
            self.compiled = None
            with self.hold_sync():
                self.report = {"rev": design.rev, "draft": design.draft, "ok": False, "error": str(error)}
                self.tile_data = b""
            return
        tiles = compiled.tiles
        small = max(tiles.q_tiles, tiles.kv_tiles) <= CLASSES_LIMIT
        counts = np.stack([tiles.full_per_row, tiles.partial_per_row]).astype("<i4")
        stats = {name: value if isfinite(value) else None for name, value in asdict(compiled.stats).items()}
        with self.hold_sync():
            self.report = {
                "rev": design.rev,
                "draft": design.draft,
                "ok": True,
                "stats": stats,
                "predicted": predicted(compiled, design),
                "q_tiles": tiles.q_tiles,
                "classes": small,
            }
            self.tile_data = counts.tobytes() + (tiles.classes().tobytes() if small else b"")
        self.compiled = compiled

    def _asked(self, change: Mapping[str, Any]) -> None:
        """Answer each kind of question whose number is new."""
        with self._lock:
            if isinstance(self.design, dict) and self.design.get("rev") != self._current.rev:
                self._design_arrived({"new": self.design})  # it came in the same message; the question is about it
            asks = change["new"]
            for kind, question in asks.items():
                answer = ANSWERS.get(kind)
                if answer is None or not isinstance(question, dict) or "n" not in question:
                    kinds = ", ".join(ANSWERS)
                    self.problem = (
                        f"The message was refused. asks: {kind!r} is no question with a number; kinds are {kinds}"
                    )
                    continue
                if self._handled.get(kind) == question["n"]:
                    continue
                self._handled[kind] = question["n"]
                try:
                    made = answer(self, question)
                except (ValueError, TypeError, KeyError) as error:
                    made = {"error": f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)}
                self.answers = {**self.answers, kind: {**made, "n": question["n"]}}

    def _code(self, question: Mapping[str, Any]) -> dict[str, Any]:
        return code_panel.source(self._current, question["target"])

    def _tile(self, question: Mapping[str, Any]) -> dict[str, Any]:
        if self.compiled is None:
            return {"error": "The design does not compile, so there is no descriptor."}
        return inspector.describe(self.compiled, question["tile_row"])

    def _template(self, question: Mapping[str, Any]) -> dict[str, Any]:
        return {"node": gallery.get(question["name"], **question["params"]).node}

    def _check(self, question: Mapping[str, Any]) -> dict[str, Any]:
        if self.compiled is None:
            return {"found": []}  # why it does not compile is said elsewhere
        return linter.describe(self._current, causal=question["causal"])

    def _order(self, question: Mapping[str, Any]) -> dict[str, Any]:
        return reordered.describe(self._current)

    def _share(self, question: Mapping[str, Any]) -> dict[str, Any]:
        return {"fragment": share.fragment(self._current)}

    def _shared(self, question: Mapping[str, Any]) -> dict[str, Any]:
        design = share.design_in(str(question["text"]))
        compile(design.mask, design.q_len, design.kv_len, q_start=design.q_start, tile=design.tile)  # or an error
        return {"design": design.message()}


ANSWERS = {
    "code": Editor._code,
    "tile": Editor._tile,
    "template": Editor._template,
    "check": Editor._check,
    "order": Editor._order,
    "share": Editor._share,
    "shared": Editor._shared,
}


def predicted(compiled: CompiledMask, design: Design) -> dict[str, Any]:
    """The cost model's forward time, and the floor under it: visible pairs at the card's matrix rate."""
    flops = 4 * compiled.stats.visible_pairs * design.head_dim * design.heads
    return {
        "ms": predicted_ms(compiled.tiles, heads=design.heads, head_dim=design.head_dim),
        "floor_ms": flops / (PEAK_TFLOPS * 1e9),
        "device": DEVICE,
        "about": "Forward pass in bfloat16, from the cost model measured on one H200; the floor is the visible pairs "
        f"alone at {PEAK_TFLOPS:.0f} TFLOP/s.",
    }
