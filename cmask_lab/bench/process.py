"""A benchmark in a process of its own, for a page that must stay alive while it runs.

>>> process = BenchmarkProcess({"mask": {"cmask": 1, "mask": {"type": "causal"}}, "seq_len": 256, "heads": 1,
...     "head_dim": 32, "dtype": "float32", "device": "cpu", "baselines": [], "seconds": 5})
>>> [event["event"] for event in process.events()][-1]
'done'

A request is a JSON object: ``mask`` (a spec) and any keyword of :func:`cmask_lab.bench.run.stream`; ``rules`` is an
object with fields of :class:`cmask_lab.bench.timing.Rules`. Events are JSON objects too, in this order:

==============  =======================================================================================
``started``     the process is up (``pid``)
``report``      a partial report (``report``: :meth:`Report.to_dict`); many of these
``done``        the last report has come; nothing follows
``cancelled``   instead of ``done``: cancelled, or a newer request took its place
``error``       instead of ``done``: ``kind`` (such as "OutOfMemoryError" or "Crash") and ``message``
==============  =======================================================================================

A worker process stays warm between requests: PyTorch is imported once, kernels are compiled once. A newer request
cancels the one before it; if that does not stop within :data:`PATIENCE_S` (a compiler can't be interrupted), its
process is ended and a fresh one takes over. A crash of the worker (a kernel that took the device down, memory that ran
out) is an ``error`` event, and the next request starts a fresh process.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from cmask_lab.bench.report import Report

PATIENCE_S = 3.0
"""How long a cancelled request may go on before its process is ended."""

LAST = ("done", "cancelled", "error")
"""Events after which nothing follows."""


class BenchmarkProcess:
    """One request and its events.

    Args:
        request: see above.
        worker: the process to run it in; one that all share if not given.
    """

    def __init__(self, request: Mapping[str, Any], worker: Worker | None = None) -> None:
        self.request = dict(request)
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._finished = threading.Event()
        self._worker = worker or shared_worker()
        self._worker.submit(self)

    @property
    def running(self) -> bool:
        """Whether more events may come."""
        return not self._finished.is_set()

    def poll(self) -> list[dict[str, Any]]:
        """The events that have come since the last call; never waits."""
        found = []
        while True:
            try:
                found.append(self._events.get_nowait())
            except queue.Empty:
                return found

    def events(self, timeout: float | None = None) -> Iterator[dict[str, Any]]:
        """The events as they come, until the last one.

        Raises:
            TimeoutError: none came for ``timeout`` seconds.
        """
        while True:
            try:
                event = self._events.get(timeout=timeout)
            except queue.Empty:
                raise TimeoutError(f"no event for {timeout:g} s") from None
            yield event
            if event["event"] in LAST:
                return

    def report(self, timeout: float | None = None) -> Report:
        """Wait for the end and return the last report.

        Raises:
            RuntimeError: the benchmark failed or was cancelled.
        """
        last = None
        for event in self.events(timeout):
            if event["event"] == "report":
                last = Report.from_dict(event["report"])
            elif event["event"] in ("error", "cancelled"):
                raise RuntimeError(f"{event.get('kind', 'cancelled')}: {event.get('message', 'by a newer request')}")
        assert last is not None, "a report comes before done"
        return last

    def cancel(self) -> None:
        """Stop it; the last event will be ``cancelled``, soon."""
        self._worker.cancel(self)

    def _deliver(self, event: dict[str, Any]) -> None:
        if self.running:
            self._events.put(event)
            if event["event"] in LAST:
                self._finished.set()


@dataclass
class _Child:
    """A process, what it prints, and the last request that it has finished."""

    process: subprocess.Popen[str]
    log: IO[bytes]
    finished: int = 0

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        """Close the pipes of a process that has ended."""
        for pipe in (self.process.stdin, self.process.stdout, self.log):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what was still to be sent to it
                    pipe.close()


class Worker:
    """A process that runs one request at a time and stays warm; all methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._current: BenchmarkProcess | None = None
        self._number = 0

    def submit(self, work: BenchmarkProcess) -> None:
        """Run a request now; the one before it is cancelled."""
        with self._lock:
            self._drop()
            child = self._child if self._child is not None and self._child.alive else self._start()
            self._begin(child, work)
            work._deliver({"event": "started", "pid": child.process.pid})

    def cancel(self, work: BenchmarkProcess) -> None:
        """Cancel a request if it is still the one that runs."""
        with self._lock:
            if self._current is work and self._child is not None:
                self._drop()
                _send(self._child, {"number": self._number, "cancel": True})

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._drop()
            self._end()

    def _begin(self, child: _Child, work: BenchmarkProcess) -> None:
        self._number += 1
        self._current = work
        _send(child, {"number": self._number, "request": work.request})

    def _drop(self) -> None:
        """The current request is over for its owner; its process gets a while to notice."""
        if self._current is None or self._child is None:
            return
        work, self._current = self._current, None
        work._deliver({"event": "cancelled"})
        threading.Thread(target=self._end_if_stuck, args=(self._child, self._number), daemon=True).start()

    def _end_if_stuck(self, child: _Child, number: int) -> None:
        """End a process that is still busy with a cancelled request, and give what waits for it to a fresh one."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if not child.alive or child.finished >= number:
                return
            time.sleep(0.02)
        with self._lock:
            if child is not self._child:
                return
            waiting, self._current = self._current, None
            self._end()
            if waiting is not None:
                self._begin(self._start(), waiting)

    def _start(self) -> _Child:
        log = tempfile.TemporaryFile()  # noqa: SIM115 (open for as long as the process lives)
        process = subprocess.Popen(
            [sys.executable, "-m", "cmask_lab.bench.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
        )
        self._child = _Child(process, log)
        threading.Thread(target=self._read, args=(self._child,), daemon=True).start()
        return self._child

    def _read(self, child: _Child) -> None:
        """Hand the process's events to the request that they belong to, until it ends."""
        assert child.process.stdout is not None, "it was opened as a pipe"
        for line in child.process.stdout:
            event = json.loads(line)
            number = event.pop("number")
            with self._lock:
                last = event["event"] in LAST
                if last:
                    child.finished = number
                if child is self._child and number == self._number and self._current is not None:
                    self._current._deliver(event)
                    self._current = None if last else self._current
        code, message = child.process.wait(), _tail(child.log)
        with self._lock:
            child.close()
            if child is self._child and self._current is not None:
                work, self._current = self._current, None
                work._deliver({"event": "error", "kind": "Crash", "message": f"exit status {code}: {message}"})

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None and child.alive:
            child.process.kill()
            child.process.wait()


def _send(child: _Child, message: Mapping[str, Any]) -> None:
    assert child.process.stdin is not None, "it was opened as a pipe"
    try:
        child.process.stdin.write(json.dumps(message) + "\n")
        child.process.stdin.flush()
    except (BrokenPipeError, ValueError):
        return  # the process has just died and its pipe is broken, or closed already; its reader tells


_shared: Worker | None = None


def shared_worker() -> Worker:
    """The worker that requests run in unless they bring their own; it ends with this process."""
    global _shared
    if _shared is None:
        _shared = Worker()
        atexit.register(_shared.close)
    return _shared


def _tail(log: IO[bytes], size: int = 2000) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(log.tell() - size, 0))
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"


def serve(requests: IO[str], events: IO[str]) -> None:
    """The worker's side: read requests from one pipe, write events to the other, until the first one closes."""
    incoming: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def listen() -> None:
        for line in requests:
            incoming.put(json.loads(line))
        incoming.put(None)

    threading.Thread(target=listen, daemon=True).start()

    def tell(number: int, event: dict[str, Any]) -> None:
        events.write(json.dumps({"number": number, **event}) + "\n")
        events.flush()

    message = incoming.get()
    while message is not None:
        if "request" not in message:
            message = incoming.get()
            continue
        number, interrupted = message["number"], False
        try:
            for report in _stream(message["request"]):
                if interrupted := not incoming.empty():
                    break
                tell(number, {"event": "report", "report": report.to_dict()})
        except Exception as error:  # whatever a request brings about is the requester's to see
            tell(number, {"event": "error", "kind": type(error).__name__, "message": str(error)})
        else:
            tell(number, {"event": "cancelled" if interrupted else "done"})
        message = incoming.get()


def _stream(request: dict[str, Any]) -> Iterator[Report]:
    import cmask_lab as cm
    from cmask_lab.bench.run import stream
    from cmask_lab.bench.timing import Rules

    arguments = dict(request)
    if "mask" not in arguments:
        raise ValueError("request: it has no 'mask', the spec of a mask")
    mask = cm.from_spec(arguments.pop("mask"))
    if "rules" in arguments:
        arguments["rules"] = Rules(**arguments["rules"])
    return stream(mask, **arguments)


def main() -> None:
    """Entry point of the worker process."""
    # Compilers print to standard output: events get a pipe of their own, and prints go where errors go.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, events)


if __name__ == "__main__":
    main()
