"""What ``benchmark`` and ``stream`` accept, and what they give."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import cmask_lab as cm
from cmask_lab.bench import run
from cmask_lab.bench.report import Report
from tests.bench.small_runs import SMALL, measure


def test_a_stream_fills_up() -> None:
    reports = list(run.stream(cm.causal(), **SMALL, baselines=["sdpa-dense", "flex-triton"]))
    assert [r.done for r in reports] == [False] * (len(reports) - 1) + [True]
    assert all(a.progress <= b.progress for a, b in pairwise(reports))
    assert {e.status for e in reports[0].case.entries} == {"waiting"}
    assert [e.status for e in reports[-1].case.entries] == ["ok", "ok", "absent"]
    assert any(r.doing == "cmask: first call and check" for r in reports)
    for report in reports:
        json.dumps(report.to_dict(), allow_nan=False)


def test_a_consumer_keeps_its_own_modes() -> None:
    """The loop runs without gradients; whoever reads a partial report does not."""
    for _ in run.stream(cm.causal(), **SMALL, baselines=[]):
        assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"direction": "up"}, "direction: 'up' is not one of"),
        ({"dtype": "int8"}, "dtype: 'int8' is not one of"),
        ({"heads": 0}, "heads: 0; give at least 1"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads: 3; give a divisor of heads, 4"),
        ({"baselines": ["flash"]}, "contender: 'flash' is unknown"),
        ({"ours": ["cmask-cuda"]}, "no backend 'cuda'"),
        ({"ours": ["cmask+fast"]}, "no variant 'fast'"),
        ({"ours": ["fa4"]}, "ours: 'fa4' is a baseline"),
        ({"ours": []}, "ours: empty"),
        ({"seq_len": -1}, "-1"),
    ],
)
def test_bad_input_is_named(changes: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("+", r"\+")):
        measure(cm.causal(), **changes)


def test_names_are_lists() -> None:
    with pytest.raises(TypeError, match="lists of names"):
        measure(cm.causal(), baselines="fa4")


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    report = measure(cm.causal(), direction="both")
    assert Report.load(report.save(tmp_path / "report.json")) == report
    same = report.compare(Report.load(tmp_path / "report.json"))
    assert len(same) == 4
    assert {d.ratio.median for d in same} == {1.0}
