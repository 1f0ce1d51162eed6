"""The loop that times: all contenders in one process, interleaved, in rounds whose order is random and then mirrored.

Timing one contender after another compares a cool device with a warm one. Here every round runs each contender once, so
a round gives one ratio for every pair; the order of a round is drawn at random and the next round runs it backwards
(A B C, C B A), so whatever drifts steadily cancels.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from cmask_lab.bench.statistics import precise_enough

Call = Callable[[int], object]
"""A contender's call: runs once on the inputs with that number, without waiting for the device."""


@dataclass(frozen=True)
class Rules:
    """When a measurement is warm, and when it may end.

    Attributes:
        warmup_rounds, warmup_ms: rounds and time that are run, counted and left out; both must be reached.
        at_least, at_most: timed rounds.
        target: relative half width of every ratio's interval that is small enough to stop.
        seconds: time after which the loop ends whatever the spread (a round that has begun is finished).
    """

    warmup_rounds: int = 4
    warmup_ms: float = 200.0
    at_least: int = 12
    at_most: int = 400
    target: float = 0.003
    seconds: float = 10.0


RULES = {"cuda": Rules(), "cpu": Rules(warmup_rounds=2, warmup_ms=100.0, at_least=8, at_most=100, target=0.01)}
"""By device type: a CPU that other programs share will not get more precise than one percent."""


@dataclass
class Rounds:
    """What the loop has so far.

    Attributes:
        names: the contenders, in the order of the columns.
        rows: one a timed round: milliseconds of each contender.
        host: one a timed round: milliseconds that the host took to put each call on its way.
        orders: one a timed round: the order in which the contenders ran.
        warmup_rounds, warmup_ms: what was left out.
        stopped: why the loop ended; "" while it runs.
    """

    names: tuple[str, ...]
    rows: list[list[float]] = field(default_factory=list)
    host: list[list[float]] = field(default_factory=list)
    orders: list[tuple[int, ...]] = field(default_factory=list)
    warmup_rounds: int = 0
    warmup_ms: float = 0.0
    stopped: str = ""

    @property
    def times(self) -> np.ndarray:
        """float64 ``(rounds, contenders)`` in milliseconds."""
        return np.array(self.rows, np.float64).reshape(len(self.rows), len(self.names))


class Clock(Protocol):
    """Times the calls of one round on one kind of device."""

    def round(
        self, calls: Sequence[Callable[[], object]], running: Callable[[], None]
    ) -> tuple[list[float], list[float]]:
        """Milliseconds on the device and on the host for each call; ``running`` is called while the device works."""
        ...


class HostClock:
    """For devices that finish a call before they return from it: the CPU."""

    def round(
        self, calls: Sequence[Callable[[], object]], running: Callable[[], None]
    ) -> tuple[list[float], list[float]]:
        """Wall time of each call."""
        times = []
        for call in calls:
            began = time.perf_counter()
            call()
            times.append((time.perf_counter() - began) * 1e3)
        running()
        return times, times


class CudaClock:
    """CUDA events around every call, with the device kept busy until the host has put the call on its way.

    Without that a short kernel would be timed together with the Python that launches it. The cover is a spin kernel of
    the length that the host needed in the last round; host times are reported in a column of their own.
    """

    LONGEST_COVER_MS = 5.0

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._cycles_per_ms = 1e3 * _spin_cycles_per_us(device)
        self._cover_ms: dict[int, float] = {}

    def round(
        self, calls: Sequence[Callable[[], object]], running: Callable[[], None]
    ) -> tuple[list[float], list[float]]:
        """Time between two events around each call."""
        marks, host = [], []
        for call in calls:
            key = id(getattr(call, "func", call))
            torch.cuda._sleep(int(self._cycles_per_ms * self._cover_ms.get(key, 1.0)))
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            began = time.perf_counter()
            call()
            host.append((time.perf_counter() - began) * 1e3)
            stop.record()
            marks.append((start, stop))
            self._cover_ms[key] = min(1.5 * host[-1] + 0.05, self.LONGEST_COVER_MS)
        running()
        torch.cuda.synchronize(self.device)
        return [start.elapsed_time(stop) for start, stop in marks], host


def clock_for(device: torch.device) -> Clock:
    """The clock for a device.

    >>> type(clock_for(torch.device("cpu"))).__name__
    'HostClock'
    """
    return CudaClock(device) if device.type == "cuda" else HostClock()


def interleave(
    calls: dict[str, Call],
    clock: Clock,
    rules: Rules,
    *,
    buffers: int = 1,
    seed: int = 0,
    running: Callable[[], None] = lambda: None,
) -> Iterator[Rounds]:
    """Run rounds until the ratios are known well enough or a limit is reached; yields after every timed round.

    Args:
        calls: contenders by name; the first one is what the others are compared with.
        buffers: number of input sets; every call takes the next one, so that no call finds its inputs in a cache.
        running: called once a round while the device is busy (to read its clocks).

    >>> work = {"a": lambda i: sum(range(2000)), "b": lambda i: sum(range(4000))}
    >>> *_, last = interleave(work, HostClock(), Rules(at_least=4, at_most=6, warmup_ms=0))
    >>> last.times.shape[1], last.stopped != ""
    (2, True)
    """
    if not calls:
        raise ValueError("interleave: no contender to time")
    generator, turn = random.Random(seed), 0
    contenders = list(calls.values())
    state = Rounds(tuple(calls))

    def run(order: Sequence[int]) -> tuple[list[float], list[float]]:
        nonlocal turn
        bound = []
        for number in order:
            bound.append(_Bound(contenders[number], turn % buffers))
            turn += 1
        device, host = clock.round(bound, running)
        place = {number: index for index, number in enumerate(order)}
        return [device[place[n]] for n in range(len(order))], [host[place[n]] for n in range(len(order))]

    began = time.perf_counter()
    while state.warmup_rounds < rules.warmup_rounds or state.warmup_ms < rules.warmup_ms:
        if state.warmup_rounds >= 1 and time.perf_counter() - began > rules.seconds / 2:
            break
        state.warmup_ms += sum(run(range(len(calls)))[0])
        state.warmup_rounds += 1

    began = time.perf_counter()
    order: list[int] = []
    while not state.stopped:
        mirrored = len(state.rows) % 2 == 1
        order = order[::-1] if mirrored else generator.sample(range(len(calls)), len(calls))
        device, host = run(order)
        state.rows.append(device)
        state.host.append(host)
        state.orders.append(tuple(order))
        state.stopped = _stop(state, rules, time.perf_counter() - began)
        yield state


def _stop(state: Rounds, rules: Rules, seconds: float) -> str:
    rounds = len(state.rows)
    if rounds % 2 == 1 and rounds < rules.at_most:
        # A mirrored pair is finished, unless there is no time even for that.
        return f"time limit of {rules.seconds:.3g} s" if seconds > 1.5 * rules.seconds else ""
    if rounds % 4 == 0 and precise_enough(state.times, target=rules.target, at_least=rules.at_least):
        return f"spread below {rules.target:.1%}"
    if rounds >= rules.at_most:
        return f"limit of {rules.at_most} rounds"
    if seconds > rules.seconds:
        return f"time limit of {rules.seconds:.3g} s"
    return ""


@dataclass(frozen=True)
class _Bound:
    """A call with its input set chosen; ``func`` names the contender, as in functools.partial."""

    func: Call
    buffer: int

    def __call__(self) -> object:
        return self.func(self.buffer)


def _spin_cycles_per_us(device: torch.device) -> float:
    """Cycles of the spin kernel in a microsecond, measured: the clock it counts differs between chips."""
    cycles = 2_000_000
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(cycles)
    start.record()
    torch.cuda._sleep(cycles)
    stop.record()
    torch.cuda.synchronize(device)
    return cycles / (start.elapsed_time(stop) * 1e3)
