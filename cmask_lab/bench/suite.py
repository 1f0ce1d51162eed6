"""Run a whole suite of masks under one time budget; every report on the way holds all results so far."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from cmask_lab.bench import contenders as roster
from cmask_lab.bench.device import best_device
from cmask_lab.bench.report import Case, Report
from cmask_lab.bench.run import stream
from cmask_lab.bench.subjects import Subject, subjects
from cmask_lab.bench.timing import Rules

BASELINES = {"cuda": ("flex-fa4", "fa4", "sdpa-cudnn", "flex-triton"), "cpu": roster.CPU_BASELINES}
"""What a suite compares with, the most important first: where time runs out, the last ones are left out."""

RULES = Rules(warmup_rounds=3, warmup_ms=100.0, at_least=12, at_most=120, target=0.004, seconds=5.0)
"""Of a suite: a little coarser than of a single benchmark."""


def stream_suite(
    suite: str = "paper",
    seq_lens: Sequence[int] = (32768,),
    *,
    seconds: float = 450.0,
    ours: Sequence[str] = ("cmask",),
    baselines: Sequence[str] | None = None,
    device: str | torch.device | None = None,
    rules: Rules = RULES,
    head_dim: int | None = None,
    only: Sequence[str] = (),
    **shape: Any,
) -> Iterator[Report]:
    """Measure every mask of a suite at every length, yielding the report with all results so far.

    Args:
        seconds: for everything, compilers included. Each mask gets an equal share of what is left.
        head_dim: of all masks; each mask's own if not given.
        only: names of masks; all if empty.
        shape: batch, heads, kv_heads, dtype, direction, as for :func:`cmask_lab.bench.run.benchmark`.

    >>> reports = stream_suite("four", [512], only=["causal"], heads=1, head_dim=32, dtype="float32", device="cpu",
    ...                        baselines=["sdpa-dense"], rules=Rules(at_least=2, at_most=2, warmup_ms=0))
    >>> *_, last = reports
    >>> [case.name for case in last.cases], last.done
    (['causal'], True)
    """
    chosen = torch.device(device) if device is not None else best_device()
    asked = tuple(BASELINES[chosen.type] if baselines is None else baselines)
    todo = [subject for seq_len in seq_lens for subject in subjects(suite, seq_len)]
    if only:
        if unknown := sorted(set(only) - {subject.name for subject in todo}):
            raise ValueError(f"suite {suite}: no mask {unknown[0]!r}; it has {sorted({s.name for s in todo})}")
        todo = [subject for subject in todo if subject.name in only]
    deadline = time.perf_counter() + seconds
    finished: tuple[Case, ...] = ()
    report: Report | None = None
    for number, subject in enumerate(todo):
        share = max(deadline - time.perf_counter(), 0.0) / (len(todo) - number)
        own, rivals = line_up(subject, ours, asked)
        for part in stream(
            subject,
            ours=own,
            baselines=rivals,
            device=chosen,
            seconds=share,
            rules=rules,
            head_dim=subject.head_dim if head_dim is None else head_dim,
            **shape,
        ):
            report = replace(
                part,
                cases=(*finished, *part.cases),
                progress=(number + part.progress) / len(todo),
                doing=f"{subject.title}: {part.doing}" if part.doing else subject.title,
                done=part.done and number == len(todo) - 1,
            )
            yield report
        assert report is not None, "every stream yields"
        finished = report.cases
        if chosen.type == "cuda":
            torch.cuda.empty_cache()


def line_up(subject: Subject, ours: Sequence[str], baselines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our contenders and the baselines for a mask: those asked for, and its own variants of them.

    >>> from cmask_lab.bench.subjects import clear
    >>> line_up(clear(1024, 8), ["cmask"], ["flex-fa4", "flex-triton"])
    (['cmask', 'cmask+order', 'cmask+kept'], ['flex-fa4', 'flex-fa4+kept', 'flex-triton'])
    """
    extra = [name for name in subject.contenders if name.partition("+")[0] in (*ours, *baselines)]
    ordered = [list(group) for group in (ours, baselines)]
    for group in ordered:
        for name in extra:
            base = name.partition("+")[0]
            if base in group:
                # Right behind the last of its kind.
                last = max(i for i, other in enumerate(group) if other.partition("+")[0] == base)
                group.insert(last + 1, name)
    return ordered[0], ordered[1]
