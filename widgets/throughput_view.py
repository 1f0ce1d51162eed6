"""A report as what the throughput panel draws: plain JSON, every number finite.

The headline is strict: it stays away while rounds run, when a check failed, when the device was disturbed, and below
the number of rounds at which anything can be called.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from cmask_lab.bench import statistics
from cmask_lab.bench.device import Conditions
from cmask_lab.bench.flops import attention_flops
from cmask_lab.bench.report import OK, WAITING, WRONG, Case, Check, Entry, Report
from cmask_lab.bench.statistics import CLOSE, FASTER, FEWEST, UNKNOWN

LIVE_RESAMPLES = 300
"""Resamples of a ratio's interval while rounds still come; the finished report has the full number."""

USUAL_BASELINES = ("flex-fa4", "sdpa-dense", "flex-cpu")
"""What a recorded report is compared with if it does not have the chosen baseline."""


def view(report: Report, *, case: int = 0, baseline: str = "", recorded: str = "") -> dict[str, Any]:
    """Everything that the panel shows of one case.

    Args:
        baseline: the contender that the others are compared with; a recorded report without it takes a usual one.
        recorded: name of the recorded report that this is; "" for one measured here.

    >>> from cmask_lab.bench.report import Report
    >>> view(Report({"name": "a device"}, {}, "2026-12-01T00:00:00+00:00"))["directions"]
    []
    """
    shown = {
        "recorded": recorded,
        "device": dict(report.device),
        "versions": dict(report.versions),
        "created": report.created,
        "done": report.done,
        "cases": [f"{each.title}, {each.q_len:,} tokens, {each.dtype}" for each in report.cases],
        "case": case,
        "title": "",
        "shape": "",
        "directions": [],
    }
    if not report.cases:
        return shown
    chosen = report.cases[min(case, len(report.cases) - 1)]
    shown["case"] = report.cases.index(chosen)
    shown["title"], shown["shape"] = chosen.title, _shape(chosen)
    names = [entry.contender for entry in chosen.entries]
    if recorded and baseline not in names:
        baseline = next((name for name in USUAL_BASELINES if name in names), baseline)
    for direction in chosen.directions:
        shown["directions"].append(_direction(chosen, direction, baseline, report.done))
    return shown


def headline(case: Case, direction: str, baseline: str) -> dict[str, str]:
    """One sentence and its tone: "faster", "slower", "close", "none" (nothing may be said, and why), "waiting"."""
    lead = case.ours[0] if case.ours else ""
    for name in (lead, baseline):
        entry = next((e for e in case.entries if (e.contender, e.direction) == (name, direction)), None)
        if entry is None:
            return _nothing(f"{name or 'a baseline'} was not among the contenders, so there is nothing to compare.")
        if entry.status == WAITING:
            return {"tone": "waiting", "text": "Preparing and checking …"}
        if entry.status == WRONG:
            return _nothing(f"{name} failed its check against the oracle: {entry.reason}.")
        if entry.status != OK:
            return _nothing(f"{name} did not run: {entry.reason}.")
    loop = case.loop(direction)
    if loop is None:
        return {"tone": "waiting", "text": "Checked; timing begins …"}
    if not loop.stopped:
        return {"tone": "waiting", "text": f"Measuring, {loop.rounds} round{'s' if loop.rounds != 1 else ''} so far …"}
    if loop.conditions.spoiled:
        return _nothing(f"the run was disturbed: {', '.join(loop.conditions.spoiled)}. Measure again.")
    if lead == baseline:
        return _nothing(f"{lead} is the baseline itself; choose another one to compare with.")
    ratio = statistics.paired_ratio(case.entry(baseline, direction).samples_ms, case.entry(lead, direction).samples_ms)
    span = f"{ratio.median:.4g}× [{ratio.low:.4g}, {ratio.high:.4g}]"
    if ratio.verdict == UNKNOWN:
        return _nothing(f"too few rounds: {ratio.n}, and {FEWEST} are the least that anything can be called from.")
    if ratio.verdict == CLOSE:
        return {"tone": "close", "text": f"{lead} and {baseline} are too close to call: {span}"}
    if ratio.verdict == FASTER:
        return {"tone": "faster", "text": f"{lead} is faster than {baseline}: {span}"}
    return {"tone": "slower", "text": f"{lead} is slower than {baseline}: {span}"}


def _nothing(why: str) -> dict[str, str]:
    return {"tone": "none", "text": f"No headline: {why}"}


def _direction(case: Case, direction: str, baseline: str, done: bool) -> dict[str, Any]:
    floor, loop = case.floor_ms(direction), case.loop(direction)
    flops = attention_flops(case.visible_pairs, case.head_dim, direction)
    entries = [e for e in case.entries if e.direction == direction]
    resamples = statistics.RESAMPLES if done else LIVE_RESAMPLES
    base = next((e for e in entries if e.contender == baseline and e.timed), None)
    return {
        "direction": direction,
        "headline": headline(case, direction, baseline),
        "baseline": baseline,
        "floor_ms": _finite(floor),
        "floor_tflops": _finite(flops / floor / 1e9) if floor else None,
        "entries": [_entry(case, entry, base, floor, flops, resamples) for entry in entries],
        "loop": None
        if loop is None
        else {
            "rounds": loop.rounds,
            "warmup_rounds": loop.warmup_rounds,
            "warmup_ms": _finite(loop.warmup_ms),
            "stopped": loop.stopped,
            "buffers": loop.buffers,
            "drift": drift(entries),
            **_conditions(loop.conditions),
        },
    }


def drift(entries: list[Entry]) -> list[float]:
    """How much slower than usual each round was, over all contenders: 0.02 is two percent.

    >>> drift([Entry("a", "forward", "ok", samples_ms=(1.0, 1.0, 1.1)), Entry("b", "forward", "absent")])
    [0.0, 0.0, 0.1]
    """
    times = np.array([e.samples_ms for e in entries if e.timed], np.float64)
    if not times.size:
        return []
    relative = np.log(times / np.median(times, axis=1, keepdims=True)).mean(axis=0)
    return [round(float(x), 5) for x in np.exp(relative) - 1]


def _entry(
    case: Case, entry: Entry, base: Entry | None, floor: float | None, flops: float, resamples: int
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": entry.contender,
        "ours": entry.contender in case.ours,
        "status": entry.status,
        "reason": entry.reason,
        "note": entry.note,
        "check": None if entry.check is None else _check(entry.check),
        **{name: _finite(getattr(entry, name)) for name in ("startup_ms", "plan_ms", "first_ms", "cold_ms", "host_ms")},
        "visited_tflops": _finite(case.visited_tflops(entry)),
        "summary": None,
        "ratio": None,
        "series": [_figures(flops / ms / 1e9) for ms in entry.samples_ms],
    }
    if entry.summary is None:
        return made
    s = entry.summary
    rates = [_figures(flops / ms / 1e9) for ms in (s.high_quartile, s.median, s.low_quartile)]
    made["summary"] = {
        "n": s.n,
        "ms": [_figures(ms) for ms in (s.low_quartile, s.median, s.high_quartile)],
        "tflops": rates,
        "floors": _figures(s.median / floor) if floor else None,
    }
    if base is not None and base is not entry:
        ratio = asdict(statistics.paired_ratio(base.samples_ms, entry.samples_ms, resamples=resamples))
        loop = case.loop(entry.direction)
        made["ratio"] = {**ratio, "verdict": "spoiled"} if loop and loop.conditions.spoiled else ratio
    return made


def _check(check: Check) -> dict[str, Any]:
    bounds = ", ".join(f"{name} {error:.1e} ≤ {check.allowed[name]:.1e}" for name, error in check.errors.items())
    said = f"matches the oracle: {bounds}; the keys of {check.proved_rows:,} rows proved"
    return {"passed": check.passed, "text": said if check.passed else check.reason}


def _conditions(conditions: Conditions) -> dict[str, Any]:
    return {
        "watched": conditions.watched,
        "spoiled": list(conditions.spoiled),
        "notes": list(conditions.notes),
        "conditions": conditions.sentence,
        "clocks_mhz": list(conditions.sm_clock_mhz),
    }


def _shape(case: Case) -> str:
    heads = f"H={case.heads}" if case.heads == case.kv_heads else f"H={case.heads}/{case.kv_heads}"
    tokens = f"S={case.q_len:,}" if case.q_len == case.kv_len else f"S={case.q_len:,}×{case.kv_len:,}"
    density = case.stats.get("density")
    share = "" if density is None else f", density {density:.3g}"
    return f"B={case.batch}, {heads}, {tokens}, D={case.head_dim}, {case.dtype}{share}"


def text(report: Report, kind: str, settings: dict[str, Any]) -> str:
    """A report to copy, with every field: "json", or "markdown" (tables, then the settings and the JSON)."""
    whole = json.dumps({"settings": settings, "report": report.to_dict()}, indent=1, allow_nan=False)
    if kind == "json":
        return whole
    return f"{report.markdown()}\n\n<details><summary>Every field</summary>\n\n```json\n{whole}\n```\n\n</details>\n"


def _finite(value: float | None) -> float | None:
    return _figures(value) if value is not None and np.isfinite(value) else None


def _figures(value: float) -> float:
    """Five figures: what a picture can show, in few bytes."""
    return float(f"{value:.5g}")
