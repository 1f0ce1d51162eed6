"""A suite of masks in one report."""

from __future__ import annotations

from itertools import pairwise

from cmask_lab.bench import subjects
from cmask_lab.bench.suite import line_up, stream_suite
from tests.bench.small_runs import SMALL


def test_a_suite_runs_all_its_masks_in_one_report() -> None:
    options = {k: v for k, v in SMALL.items() if k != "seq_len"}
    *parts, last = stream_suite("four", [512], **options, baselines=["sdpa-dense"])
    assert [case.name for case in last.cases] == list(subjects.FOUR)
    assert all(case.entry("cmask", "forward").status == "ok" for case in last.cases)
    assert last.done
    assert not any(part.done for part in parts)
    assert all(len(a.cases) <= len(b.cases) for a, b in pairwise(parts))
    assert "geometric mean" in last.table()


def test_variants_stand_behind_what_they_vary() -> None:
    ours, rivals = line_up(subjects.clear(512, 8), ["cmask", "cmask-reference"], ["flex-fa4", "fa4"])
    assert ours == ["cmask", "cmask+order", "cmask+kept", "cmask-reference"]
    assert rivals == ["flex-fa4", "flex-fa4+kept", "fa4"]
