"""Benchmarks small enough for a test."""

from __future__ import annotations

from cmask_lab.bench import run
from cmask_lab.bench.report import Report
from cmask_lab.bench.subjects import Subject
from cmask_lab.bench.timing import Rules
from cmask_lab.masks.mask import Mask

SHORT = Rules(warmup_rounds=1, warmup_ms=0, at_least=6, at_most=6)
SMALL = {"heads": 2, "head_dim": 32, "seq_len": 192, "dtype": "float32", "device": "cpu", "rules": SHORT}


def measure(mask: Mask | Subject, **changes) -> Report:
    return run.benchmark(mask, **{**SMALL, "baselines": ["sdpa-dense"], **changes})
