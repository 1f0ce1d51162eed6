"""Live throughput below the Studio: ours against the others, checked, in a process of its own.

The panel is a front end of :class:`cmask_lab.bench.process.BenchmarkProcess`. Traits go to the browser only; what comes
from there is ``asks``, and every field of it is checked.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets
from cmask_lab.widgets import machine
from cmask_lab.widgets.throughput_settings import Settings, SettingsError, is_ours
from cmask_lab.widgets.throughput_view import text, view

from cmask_lab.bench.process import LAST, BenchmarkProcess, Worker
from cmask_lab.bench.report import Report, recorded_names
from cmask_lab.masks import Mask

if TYPE_CHECKING:
    from cmask_lab.widgets.studio import Studio

STATIC = Path(__file__).parent / "static"
PERIOD_S = 0.25
"""The browser is told at most so often while a benchmark runs."""
SETTLED_S = 0.8
"""With ``auto`` a mask is measured when it has not changed for so long."""
IDLE, WAITING, RUNNING, DONE, STOPPED, FAILED = "idle", "waiting", "running", "done", "stopped", "failed"

ADVICE = {
    "OutOfMemoryError": "The device's memory did not suffice: take fewer heads, tokens or batch entries.",
    "MemoryError": "The memory did not suffice: take fewer heads, tokens or batch entries.",
    "Crash": "The benchmark's process ended. The notebook is not touched, and the next start takes a fresh process.",
}
"""By kind of error: what to do."""

_worker = Worker()
"""All panels of a notebook share one process: two at once would disturb each other's times."""
atexit.register(_worker.close)
_open: set[int] = set()
"""Panels that are open; the process ends with the last one."""


class Throughput(anywidget.AnyWidget):
    """The panel as a widget; all that it can do is a method too.

    Args:
        mask: what to measure; :meth:`show_mask` changes it.
        q_len, kv_len, q_start: its plane.
        worker: the process to measure in; one that all panels share if not given.

    >>> import cmask_lab as cm
    >>> panel = Throughput(cm.causal(), 256)
    >>> panel.settings = panel.settings.on("cpu")
    >>> panel.configure(heads=1, kv_heads=1, head_dim=16, contenders=("cmask",), seconds=20)
    >>> panel.start()
    >>> panel.wait(120).case.entry("cmask", "forward").status
    'ok'
    >>> panel.close()
    """

    _esm = STATIC / "throughput.js"
    _css = STATIC / "throughput.css"

    machine = traitlets.Dict().tag(sync=True)
    recorded = traitlets.List().tag(sync=True)
    choices = traitlets.Dict().tag(sync=True)
    plane = traitlets.Dict().tag(sync=True)
    status = traitlets.Dict().tag(sync=True)
    results = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)
    asks = traitlets.Any({}).tag(sync=True)
    answers = traitlets.Dict().tag(sync=True)

    def __init__(
        self, mask: Mask, q_len: int, kv_len: int | None = None, q_start: int = 0, *, worker: Worker | None = None
    ) -> None:
        self._lock = threading.RLock()
        self._settings, self._chosen = Settings(), False
        self._worker = worker or _worker
        self._run: BenchmarkProcess | None = None
        self._report: Report | None = None
        self._requested: dict[str, Any] = {}
        self._looking, self._wanted, self._closed = False, False, False
        self._timer: threading.Timer | None = None
        self._ended = threading.Event()
        self._handled: dict[str, Any] = {}
        self._plane = (mask, q_len, q_start + q_len if kv_len is None else kv_len, q_start)
        self._shape = {"heads": 16, "head_dim": 128}
        super().__init__(
            recorded=[_about(name) for name in recorded_names()],
            choices=self._settings.message(),
            status={"state": IDLE, "doing": "", "progress": 0.0},
        )
        self._tell_plane()
        self.observe(self._asked, "asks")
        _open.add(id(self))

    @property
    def settings(self) -> Settings:
        """What is measured and shown; set it, or change some of it with :meth:`configure`."""
        return self._settings

    @settings.setter
    def settings(self, value: Settings) -> None:
        with self._lock:
            self._check(value)
            before, self._settings, self._chosen = self._settings, value, True
            self.choices = value.message()
            self.problem = ""
            self._tell_plane()
            if (before.recorded, before.case, before.baseline) != (value.recorded, value.case, value.baseline):
                self._show()
            if value.auto and not before.auto:
                self._settle()

    def configure(self, **changes: Any) -> None:
        """Change some settings, such as ``panel.configure(heads=8, dtype="float16")``.

        Raises:
            SettingsError: a value that is not possible; nothing is changed then.
        """
        with self._lock:
            self.settings = Settings.read({**self._settings.message(), **changes})

    @property
    def report(self) -> Report | None:
        """What was measured last here, partial while it runs; None before."""
        return self._report

    def look(self) -> None:
        """Find out what this machine can run, if that is not known yet; ``machine`` will hold it in a few seconds.

        The browser asks for it when the panel comes into view: one that nobody looks at costs nothing.
        """
        with self._lock:
            if not self.machine and not self._looking:
                self._looking = True
                threading.Thread(target=self._look, daemon=True).start()

    def start(self) -> None:
        """Measure the mask as it is now; what runs is cancelled.

        Raises:
            SettingsError: the settings, or the mask's plane, can't be measured.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("throughput: this panel is closed")
            request = self._settings.request(*self._plane)
            if self.machine.get("problem"):
                raise SettingsError(f"throughput: {self.machine['problem']}")
            self._ended.clear()
            self.problem = ""
            if not self.machine:
                self._wanted = True
                self.look()  # the answer starts it: two processes at once would disturb each other
                self.status = {"state": WAITING, "doing": "looking at this machine", "progress": 0.0}
                return
            self._requested, self._report = request, None
            self._settings = replace(self._settings, recorded="", case=0)
            self.choices = self._settings.message()
            self._run = BenchmarkProcess(request, self._worker)
            self.status = {"state": RUNNING, "doing": "starting", "progress": 0.0}
            self.results = {}
            threading.Thread(target=self._follow, args=(self._run,), daemon=True).start()

    def stop(self) -> None:
        """End the measurement; what has come so far stays."""
        with self._lock:
            self._wanted = False
            run, self._run = self._run, None
            if run is not None and run.running:
                run.cancel()
            if self.status["state"] in (RUNNING, WAITING):
                self.status = {**self.status, "state": STOPPED, "doing": ""}
            self._ended.set()

    def wait(self, timeout: float | None = None) -> Report:
        """The report, when the measurement has ended.

        Raises:
            TimeoutError: it has not ended in so many seconds.
            RuntimeError: it failed, or nothing was measured.
        """
        if not self._ended.wait(timeout):
            raise TimeoutError(f"throughput: not done after {timeout:g} s")
        if self.status["state"] == FAILED:
            raise RuntimeError(f"throughput: {self.status['error']['kind']}: {self.status['error']['message']}")
        if self._report is None:
            raise RuntimeError("throughput: nothing was measured")
        return self._report

    def copy(self, kind: str = "json") -> str:
        """The report on view with every field and the settings, as "json" or "markdown"."""
        if kind not in ("json", "markdown"):
            raise SettingsError(f"copy: {kind!r} is not one of 'json', 'markdown'")
        shown = self._shown()
        if shown is None:
            raise SettingsError("copy: nothing has been measured yet")
        return text(shown, kind, self._settings.message())

    def show_mask(self, mask: Mask, q_len: int, kv_len: int | None = None, q_start: int = 0) -> None:
        """Another mask; with ``auto`` it is measured when it has not changed for a moment."""
        with self._lock:
            plane = (mask, q_len, q_start + q_len if kv_len is None else kv_len, q_start)
            if plane == self._plane:
                return
            self._plane = plane
            self._tell_plane()
            if self._settings.auto:
                self._settle()

    def close(self) -> None:
        """End the measurement and the widget; the last panel takes the process with it."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self.stop()
                if self._timer is not None:
                    self._timer.cancel()
                _open.discard(id(self))
                if self._worker is not _worker or not _open:
                    self._worker.close()
        super().close()

    def _look(self) -> None:
        """Ask, then take the settings that suit, and begin what was asked for meanwhile."""
        found = machine.look()
        with self._lock:
            if self._closed:
                return
            self.machine = found
            best = next((d["id"] for d in found["devices"]), "cpu")
            if not self._chosen and best != self._settings.device:
                self._settings = self._settings.on(best, **self._shape)
                self.choices = self._settings.message()
            self._looking = False
            wanted, self._wanted = self._wanted, False
            if wanted:
                self._try(self.start)

    def _check(self, settings: Settings) -> None:
        """What only this machine and this installation can say about settings."""
        devices = [device["id"] for device in self.machine.get("devices", ())]
        if devices and settings.device not in devices:
            raise SettingsError(f"settings: device is {settings.device!r}; there are {', '.join(devices)}")
        names = [contender["name"] for contender in self.machine.get("contenders", ())]
        for name in settings.contenders if names else ():
            if not (name in names or is_ours(name) or name.partition("+")[0] in names):
                raise SettingsError(f"settings: contenders holds {name!r}; there are {', '.join(names)}")
        known = [each["name"] for each in self.recorded]
        if settings.recorded and settings.recorded not in known:
            raise SettingsError(
                f"settings: recorded is {settings.recorded!r}; there are {', '.join(known) or 'no recorded reports'}"
            )

    def _follow(self, run: BenchmarkProcess) -> None:
        """Pass the newest report on, four times a second at most, until the last event."""
        while True:
            events = run.poll()
            with self._lock:
                if run is not self._run:
                    return
                newest = next((e["report"] for e in reversed(events) if e["event"] == "report"), None)
                if newest is not None:
                    self._report = Report.from_dict(newest)
                    doing, progress = self._report.doing, self._report.progress
                    self._show()
                    self.status = {"state": RUNNING, "doing": doing, "progress": progress}
                end = events[-1] if events and events[-1]["event"] in LAST else None
                if end is not None:
                    self._end(end)
                    return
            time.sleep(PERIOD_S)

    def _end(self, event: Mapping[str, Any]) -> None:
        self._run = None
        progress = self.status["progress"]
        if event["event"] == "error":
            kind, message = event["kind"], event["message"]
            advice = next((words for name, words in ADVICE.items() if name in (kind, kind.rpartition(".")[2])), "")
            error = {"kind": kind, "message": message, "advice": advice}
            self.status = {"state": FAILED, "doing": "", "progress": progress, "error": error}
        elif event["event"] == "cancelled":
            self.status = {"state": STOPPED, "doing": "another panel began to measure", "progress": progress}
        else:
            self.status = {"state": DONE, "doing": "", "progress": 1.0}
        self._ended.set()

    def _shown(self) -> Report | None:
        return _recorded(self._settings.recorded) if self._settings.recorded else self._report

    def _show(self) -> None:
        shown, now = self._shown(), self._settings
        self.results = {} if shown is None else view(shown, case=now.case, baseline=now.baseline, recorded=now.recorded)
        self._tell_plane()

    def _tell_plane(self) -> None:
        """Tell what would be measured now, and whether the results are of another mask."""
        _, q_len, kv_len, _ = self._plane
        try:
            request, why_not = self._settings.request(*self._plane), ""
        except SettingsError as error:
            request, why_not = {}, str(error)
        stale = bool(self._report and request and request["mask"] != self._requested.get("mask"))
        tokens = request.get("seq_len")
        self.plane = {"q_len": q_len, "kv_len": kv_len, "tokens": tokens, "why_not": why_not, "stale": stale}

    def _settle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(SETTLED_S, self._settled)
        self._timer.daemon = True
        self._timer.start()

    def _settled(self) -> None:
        with self._lock:
            if not self._closed and self._settings.auto:
                self._try(self.start)

    def _try(self, action: Any) -> None:
        try:
            action()
        except SettingsError as error:
            self.stop()
            self.problem = str(error)

    def _asked(self, change: Mapping[str, Any]) -> None:
        """What the browser wants: settings first, then a command, then text to copy; each once."""
        with self._lock:
            asks = change["new"]
            if not isinstance(asks, Mapping):
                self.problem = f"The message was refused. asks: {asks!r:.60} is given; an object is expected"
                return
            for kind in sorted(asks, key=lambda kind: list(ASKS).index(kind) if kind in ASKS else 0):
                question = asks[kind]
                if kind not in ASKS or not isinstance(question, Mapping) or set(question) != {"n", "value"}:
                    kinds = ", ".join(ASKS)
                    self.problem = f"The message was refused. asks: {kind!r} is not a number and a value of {kinds}"
                    continue
                if self._handled.get(kind) == question["n"]:
                    continue
                self._handled[kind] = question["n"]
                try:
                    ASKS[kind](self, question)
                except (ValueError, TypeError) as error:
                    self.problem = f"The message was refused. {error}"
                    self.answers = {**self.answers, kind: {"n": question["n"], "error": str(error)}}

    def _ask_settings(self, question: Mapping[str, Any]) -> None:
        wanted = Settings.read(question["value"])
        if wanted.device != self._settings.device:
            wanted = replace(wanted, device=self._settings.device).on(wanted.device, **self._shape)
        self.settings = wanted
        self.answers = {**self.answers, "settings": {"n": question["n"]}}

    def _ask_command(self, question: Mapping[str, Any]) -> None:
        commands = {"look": self.look, "start": self.start, "stop": self.stop}
        name = question["value"]
        if not isinstance(name, str) or name not in commands:
            raise SettingsError(f"command: {name!r} is not one of {', '.join(commands)}")
        commands[name]()

    def _ask_copy(self, question: Mapping[str, Any]) -> None:
        made = self.copy(question["value"])
        self.answers = {**self.answers, "copy": {"n": question["n"], "text": made}}


ASKS = {"settings": Throughput._ask_settings, "command": Throughput._ask_command, "copy": Throughput._ask_copy}


def panel(studio: Studio) -> Throughput:
    """The throughput panel of a Studio; the Studio's end is its end."""
    design = studio.design
    made = Throughput(design.mask, design.q_len, design.kv_len, design.q_start)
    made._shape = {"heads": design.heads, "head_dim": design.head_dim}

    def settled(change: Mapping[str, Any]) -> None:
        if change["new"]["ok"] and not change["new"]["draft"]:
            now = studio.design
            made.show_mask(now.mask, now.q_len, now.kv_len, now.q_start)

    def ended(change: Mapping[str, Any]) -> None:
        if change["new"] is None:
            made.close()

    studio.editor.observe(settled, "report")
    studio.editor.observe(ended, "comm")
    return made


_recorded = functools.cache(Report.recorded)


def _about(name: str) -> dict[str, str]:
    """A recorded report in one line, for a list."""
    report = _recorded(name)
    return {"name": name, "label": f"{name} ({report.device.get('name', 'a device')})"}
