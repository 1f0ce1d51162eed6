"""One benchmark under way: prepare every contender, check it, then time all of them together."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
import torch

from cmask_lab.bench import contenders as roster
from cmask_lab.bench.contenders.contender import Contender, Setting, one_line, ready
from cmask_lab.bench.density_map import density_map
from cmask_lab.bench.device import Monitor, describe, versions
from cmask_lab.bench.flops import BACKWARD, FORWARD, Rates, attention_flops, measure_rates
from cmask_lab.bench.oracle import Reference, check, reference
from cmask_lab.bench.report import ABSENT, FAILED, ITEMSIZE, OK, WRONG, Case, Entry, Loop, Report
from cmask_lab.bench.timing import Rules, clock_for, interleave

CPU_CACHE_BYTES = 2**25
"""Taken as the last level of a CPU's cache; systems do not tell it in one way."""

MOST_BUFFERS = {"cuda": 24, "cpu": 3}
"""On a CPU a call is long enough to push out what the one before it left."""

SHOW_EVERY_S = 0.25
"""Partial reports while rounds run."""

_started: set[tuple[str, str, int, bool]] = set()
"""(contender, dtype, head dimension, gradients): what has run once in this process."""


@dataclass
class Prepared:
    """A contender that has passed its check, with its inputs laid out."""

    contender: Contender
    inputs: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    gradients: list[torch.Tensor] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)

    def forward(self, buffer: int) -> object:
        """One call on the inputs of a buffer."""
        return self.contender.run(*self.inputs[buffer])

    def backward(self, buffer: int) -> object:
        """The gradients of the call that ``outputs`` holds for a buffer."""
        inputs, grad = self.inputs[buffer], self.gradients[buffer]
        return torch.autograd.grad(self.outputs[buffer], inputs, grad, retain_graph=True)


class Measurement:
    """Contenders of one setting, by name, to be measured in some directions within some seconds."""

    def __init__(
        self,
        setting: Setting,
        names: list[str],
        directions: tuple[str, ...],
        rules: Rules,
        seconds: float,
    ) -> None:
        self.setting, self.directions, self.rules = setting, directions, rules
        self.deadline, self.seconds = time.perf_counter() + seconds, seconds
        self.contenders = [roster.make(name) for name in names]
        self.prepared: dict[str, Prepared] = {}
        self.references: dict[tuple, Reference] = {}
        self.buffers = _buffer_count(setting)
        self.entries = {(name, d): Entry(name, d) for name in names for d in directions}
        self.report = Report(describe(setting.device), versions(), _now(), done=False, progress=0.0)
        self.case = _case(setting, [n for n in names if roster.is_ours(n)])
        self.steps, self.step = 1 + len(names) + 2 * len(directions), 0

    def reports(self) -> Iterator[Report]:
        """The report after every step, and every quarter of a second while rounds run."""
        setting = self.setting
        yield self._show("measuring the device")
        self.case = replace(self.case, rates=measure_rates(setting.device, setting.dtype))
        generator = torch.Generator(device=setting.device).manual_seed(0)
        self.sets = [setting.tensors(generator) for _ in range(self.buffers)]
        shape = (setting.batch, setting.heads, setting.q_len, setting.head_dim)
        self.upstream = [
            torch.randn(shape, device=setting.device, generator=generator).to(setting.dtype)
            for _ in range(self.buffers if setting.needs_grad else 0)
        ]
        for contender in self.contenders:
            self.step += 1
            yield self._show(f"{contender.name}: first call and check")
            self._prepare(contender)
        self.references.clear()  # their memory is not needed for timing
        for number, direction in enumerate(self.directions):
            self.step += 1
            yield from self._time(direction, len(self.directions) - number)
            self.step += 1
        # A floor must hold for the whole run: what the device reached before or after it, whichever was more.
        self.case = replace(self.case, rates=_higher(self.case.rates, measure_rates(setting.device, setting.dtype)))
        yield self._show("", done=True)

    def _prepare(self, contender: Contender) -> None:
        """Plan, first calls, check; whatever goes wrong becomes the reason in the table."""
        name, setting = contender.name, self.setting
        if (left := self.deadline - time.perf_counter()) <= 0:
            return self._set(name, status=ABSENT, reason=f"the {self.seconds:g} s of this run were over")
        try:
            if reason := contender.absent(setting):
                return self._set(name, status=ABSENT, reason=reason)
            with self._calling(contender):
                first: dict[str, dict] = {d: {} for d in self.directions}
                lead = first[self.directions[0]]
                lead["startup_ms"] = self._start(contender)
                lead["plan_ms"] = self._clocked(lambda: contender.plan(setting))
                visited = contender.visited_pairs(setting)
                if visited and (needed := self._estimate_s(visited)) > left / 4:
                    reason = f"a call takes {needed:.2g} s at the least; {left:.0f} s of this run are left"
                    return self._set(name, status=ABSENT, reason=reason)
                ready_to_run = self._lay_out(contender, first)
                result = self._check(contender)
        except Exception as error:  # a contender may fail in any way: the reason goes into the table
            _forget(setting.device)
            return self._set(name, status=FAILED, reason=one_line(error), note=contender.note)
        for direction, times in first.items():
            self._set(
                name,
                direction,
                status=OK if result.passed else WRONG,
                reason=result.reason,
                note=contender.note,
                visited_pairs=visited,
                check=result,
                **times,
            )
        if result.passed:
            self.prepared[name] = ready_to_run
        return None

    def _start(self, contender: Contender) -> float | None:
        setting = self.setting
        key = (contender.name, str(setting.dtype), setting.head_dim, setting.needs_grad)
        if key in _started:
            return None
        spent = self._clocked(lambda: contender.start(setting))
        _started.add(key)
        return spent

    def _lay_out(self, contender: Contender, first: dict[str, dict]) -> Prepared:
        """Inputs in the contender's layout, and its first calls, timed."""
        needs_grad = self.setting.needs_grad
        laid = []
        for tensors in self.sets:
            q, k, v = (x.detach().requires_grad_(needs_grad) for x in contender.prepare(*tensors))
            laid.append((q, k, v))
        made = Prepared(contender, laid)
        outputs: list[torch.Tensor] = []
        forward_ms = self._clocked(lambda: outputs.append(contender.run(*laid[0])))
        if FORWARD in first:
            first[FORWARD]["first_ms"] = forward_ms
        if BACKWARD in first:
            outputs += [contender.run(*s) for s in laid[1:]]
            made.outputs = outputs
            made.gradients = [
                _like_output(contender, out, grad) for out, grad in zip(outputs, self.upstream, strict=True)
            ]
            first[BACKWARD]["first_ms"] = self._clocked(lambda: made.backward(0))
        return made

    def _check(self, contender: Contender):
        task = contender.task(self.setting)
        grad_out = self.upstream[0] if self.setting.needs_grad else None
        key = (id(task.tables), task.activation, task.normalizer)
        if key not in self.references:
            self.references[key] = reference(task, *self.sets[0], grad_out)

        def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return contender.restore(contender.run(*contender.prepare(q, k, v)))

        return check(task, self.references[key], forward, self.sets[0], grad_out)

    def _time(self, direction: str, directions_left: int) -> Iterator[Report]:
        ready_ones = {n: p for n, p in self.prepared.items() if self.entries[n, direction].status == OK}
        if not ready_ones:
            return
        left = max(self.deadline - time.perf_counter(), 1.0) / directions_left
        rules = replace(self.rules, seconds=min(self.rules.seconds, left))
        monitor = Monitor.for_device(self.setting.device)
        calls = {name: getattr(p, direction) for name, p in ready_ones.items()}
        lead = next((n for n in self.case.ours if n in calls), next(iter(calls)))
        calls = {lead: calls.pop(lead), **calls}
        shown = time.perf_counter()
        clock = clock_for(self.setting.device)
        loop = interleave(calls, clock, rules, buffers=self.buffers, running=monitor.sample)
        while True:
            with self._calling(*(p.contender for p in ready_ones.values())):
                rounds = next(loop)
            if rounds.stopped or time.perf_counter() - shown > SHOW_EVERY_S:
                self._record(direction, rounds, monitor)
                yield self._show(f"{direction}: round {len(rounds.rows)}")
                shown = time.perf_counter()
            if rounds.stopped:
                return

    @contextmanager
    def _calling(self, *contenders: Contender) -> Iterator[None]:
        """The modes in which contenders are called, first and always: a compiler that sees another compiles again.

        Never held while a report is yielded: whoever reads it has modes of their own.
        """
        with ExitStack() as modes:
            modes.enter_context(torch.set_grad_enabled(self.setting.needs_grad))
            for contender in contenders:
                modes.enter_context(contender.compiling())
            yield

    def _record(self, direction: str, rounds, monitor: Monitor) -> None:
        times, host = rounds.times, np.median(np.array(rounds.host), axis=0)
        for column, name in enumerate(rounds.names):
            self._set(name, direction, samples_ms=tuple(times[:, column].tolist()), host_ms=float(host[column]))
        loop = Loop(
            direction,
            len(times),
            rounds.warmup_rounds,
            rounds.warmup_ms,
            rounds.stopped,
            self.buffers,
            monitor.conditions(times),
        )
        self.case = replace(self.case, loops=(*(x for x in self.case.loops if x.direction != direction), loop))

    def _set(self, name: str, direction: str | None = None, **changes) -> None:
        for key in [(name, d) for d in self.directions if direction in (None, d)]:
            self.entries[key] = replace(self.entries[key], **changes)

    def _show(self, doing: str, done: bool = False) -> Report:
        case = replace(self.case, entries=tuple(self.entries.values()))
        progress = 1.0 if done else min(self.step / self.steps, 0.99)
        self.report = replace(self.report, cases=(case,), doing=doing, done=done, progress=progress)
        return self.report

    def _clocked(self, call: Callable[[], object]) -> float:
        """Wall milliseconds of a call, its work on the device included."""
        ready(self.setting.device)
        began = time.perf_counter()
        call()
        ready(self.setting.device)
        return (time.perf_counter() - began) * 1e3

    def _estimate_s(self, visited_pairs: int) -> float:
        """Seconds that a call will take at least: what it computes, at the device's matrix rate."""
        assert self.case.rates is not None
        flops = sum(attention_flops(visited_pairs, self.setting.head_dim, d) for d in self.directions)
        return flops / (self.case.rates.matrix_tflops * 1e12)


def _like_output(contender: Contender, out: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """The gradient of the output in the contender's own layout."""
    turned = contender.restore(grad)  # a transposition is its own inverse
    if turned.shape != out.shape:
        raise ValueError(f"{contender.name} returns shape {tuple(out.shape)}, expected {tuple(turned.shape)}")
    return turned.contiguous()


def _higher(one: Rates | None, other: Rates) -> Rates:
    if one is None:
        return other
    return Rates(max(one.matrix_tflops, other.matrix_tflops), max(one.bandwidth_gbs, other.bandwidth_gbs))


def _case(setting: Setting, ours: list[str]) -> Case:
    compiled = setting.compiled
    return Case(
        name=setting.subject.name,
        title=setting.subject.title,
        mask=setting.mask.spec(),
        batch=setting.batch,
        heads=setting.heads,
        kv_heads=setting.kv_heads,
        head_dim=setting.head_dim,
        q_len=setting.q_len,
        kv_len=setting.kv_len,
        dtype=str(setting.dtype).removeprefix("torch."),
        visible_pairs=setting.pairs([table.visible_pairs for table in compiled.interval_tables]),
        stats=dataclasses.asdict(compiled.stats),
        tile=compiled.tile,
        density_map=density_map(compiled),
        ours=tuple(ours),
    )


def _buffer_count(setting: Setting) -> int:
    """Input sets that must take turns so that none is still in the cache when its turn comes again."""
    itemsize = ITEMSIZE[str(setting.dtype).removeprefix("torch.")]
    positions = setting.heads * setting.q_len + 2 * setting.kv_heads * setting.kv_len
    set_bytes = setting.batch * positions * setting.head_dim * itemsize
    cache = CPU_CACHE_BYTES
    if setting.device.type == "cuda":
        cache = getattr(torch.cuda.get_device_properties(setting.device), "L2_cache_size", None) or 2**26
    return int(np.clip(1 + -(-3 * cache // max(set_bytes, 1)), 2, MOST_BUFFERS[setting.device.type]))


def _forget(device: torch.device) -> None:
    """Give back the memory of a contender that failed, so that the next one is not made to fail."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
