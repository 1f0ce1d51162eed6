"""The whole benchmark at a small size on the CPU: what is reported, and what happens to contenders that can't run."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import cmask_lab as cm
from cmask_lab.bench import contenders, run, suites
from cmask_lab.bench.contenders.contender import Natural, Setting
from cmask_lab.bench.contenders.flex import Flex, block_mask_from_tiles
from cmask_lab.bench.flops import Rates
from cmask_lab.bench.report import Report
from cmask_lab.bench.suite import line_up, stream_suite
from cmask_lab.bench.timing import Rules

CPU = torch.device("cpu")
SHORT = Rules(warmup_rounds=1, warmup_ms=0, at_least=6, at_most=6)
SMALL = {"heads": 2, "head_dim": 32, "seq_len": 192, "dtype": "float32", "device": "cpu", "rules": SHORT}


def measure(mask: cm.Mask | suites.Subject, **changes) -> Report:
    return run.benchmark(mask, **{**SMALL, "baselines": ["sdpa-dense"], **changes})


class Stub(Natural):
    """A contender that does what a test wants."""

    def __init__(self, name: str, out=None, fails: Exception | None = None) -> None:
        self.name, self.out, self.fails = name, out, fails

    def absent(self, setting: Setting) -> str | None:
        return None

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.fails:
            raise self.fails
        return self.out(q, k, v)


def with_stub(monkeypatch: pytest.MonkeyPatch, stub: Stub) -> None:
    make = contenders.make
    monkeypatch.setattr(contenders, "make", lambda name: stub if name == stub.name else make(name))


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_everybody_is_checked_and_timed_in_the_same_rounds(direction: str) -> None:
    report = measure(cm.documents([100, 92]) & cm.causal(), direction=direction, kv_heads=1)
    case = report.case
    assert report.done
    assert report.progress == 1.0
    assert case.directions == (("forward", "backward") if direction == "both" else (direction,))
    for each in case.directions:
        ours, dense = case.entry("cmask", each), case.entry("sdpa-dense", each)
        assert ours.status == dense.status == "ok"
        assert len(ours.samples_ms) == len(dense.samples_ms) == 6
        assert ours.check is not None
        assert ours.check.passed
        assert ours.check.proved_rows == 2 * 192
        assert set(ours.check.errors) == ({"out"} if direction == "forward" else {"out", "dq", "dk", "dv"})
        assert ours.first_ms is not None
        assert dense.visited_pairs == 2 * 192 * 192
        assert case.visible_pairs <= (ours.visited_pairs or 0) <= dense.visited_pairs
        (comparison,) = case.comparisons(each)
        assert (comparison.ours, comparison.baseline, comparison.ratio.n) == ("cmask", "sdpa-dense", 6)
        loop = case.loop(each)
        assert loop is not None
        assert (loop.rounds, loop.warmup_rounds, loop.stopped) == (6, 1, "limit of 6 rounds")
    first = case.entry("cmask", case.directions[0])
    assert first.plan_ms is not None
    assert first.cold_ms == first.plan_ms + (first.first_ms or 0)


def test_visible_pairs_are_counted_over_batch_and_heads() -> None:
    masks = [cm.causal(), cm.window(3)]
    report = measure(cm.per_head(masks), batch=2)
    assert report.case.visible_pairs == 2 * sum(int(m.to_dense(192).sum()) for m in masks)
    assert report.case.entry("cmask", "forward").status == "ok"
    assert report.case.entry("sdpa-dense", "forward").status == "ok"


def test_tflops_are_two_columns() -> None:
    case = measure(cm.window(10)).case
    entry = case.entry("sdpa-dense", "forward")
    assert entry.summary is not None
    assert case.tflops(entry) == pytest.approx(4 * case.visible_pairs * 32 / entry.summary.median / 1e9)
    assert case.visited_tflops(entry) == pytest.approx(4 * 2 * 192**2 * 32 / entry.summary.median / 1e9)


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


def test_a_baseline_that_cannot_run_says_why() -> None:
    entries = {
        e.contender: e
        for e in measure(cm.prefix(5), baselines=[n for n in contenders.NAMES if n != "flex-cpu"]).case.entries
    }
    assert entries["flex-triton"].reason == "needs a CUDA GPU"
    assert entries["fa4"].status == "absent"
    assert entries["sdpa-dense"].status == "ok"


def test_an_order_that_does_not_help_is_absent() -> None:
    entry = measure(cm.causal(), ours=["cmask", "cmask+order"]).case.entry("cmask+order", "forward")
    assert (entry.status, entry.reason) == ("absent", "no token order is better than the natural one")


def test_orders_inside_the_call_and_kept() -> None:
    report = measure(
        cm.grid(64, 64).disk(8), seq_len=4096, ours=["cmask", "cmask+order", "cmask+kept"], baselines=[], heads=1
    )
    case = report.case
    assert {e.contender: e.status for e in case.entries} == dict.fromkeys(("cmask", "cmask+order", "cmask+kept"), "ok")
    assert "permuted inside the call" in case.entry("cmask+order", "forward").note
    visited = [e.visited_pairs or 0 for e in case.entries]
    assert visited[1] == visited[2] < visited[0], "the order must make fewer tiles"
    assert {c.baseline for c in case.comparisons("forward", "cmask+kept")} == {"cmask", "cmask+order"}


def test_silu_is_checked_against_silu() -> None:
    entry = measure(suites.hstu(512), seq_len=512, ours=["cmask", "cmask+silu"], direction="both").case.entry(
        "cmask+silu", "backward"
    )
    assert entry.status == "ok"


def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    with_stub(monkeypatch, Stub("sdpa-flash", without_mask))
    report = measure(cm.causal(), baselines=["sdpa-flash"])
    entry = report.case.entry("sdpa-flash", "forward")
    assert (entry.status, entry.samples_ms) == ("wrong", ())
    assert entry.reason == "query 0 of batch entry 0, head 0 does not see the keys that the mask shows it"
    assert "WRONG: query 0" in report.table()
    assert report.case.comparisons("forward") == []


def test_an_error_of_one_contender_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with_stub(
        monkeypatch,
        Stub("sdpa-flash", fails=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB\nmore")),
    )
    report = measure(cm.causal(), baselines=["sdpa-flash", "sdpa-dense"])
    entry = report.case.entry("sdpa-flash", "forward")
    assert (entry.status, entry.reason) == ("failed", "OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB")
    assert report.case.entry("sdpa-dense", "forward").status == "ok"


def test_no_time_left_is_said() -> None:
    report = measure(cm.causal(), seconds=0.0)
    assert {e.reason for e in report.case.entries} == {"the 0 s of this run were over"}
    assert report.done


def test_a_contender_that_would_take_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "measure_rates", lambda device, dtype: Rates(1e-9, 1.0))
    report = measure(cm.causal())
    assert {e.status for e in report.case.entries} == {"absent"}
    assert "s at the least" in report.case.entries[0].reason


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


def test_a_suite_runs_all_its_masks_in_one_report() -> None:
    options = {k: v for k, v in SMALL.items() if k != "seq_len"}
    *parts, last = stream_suite("four", [512], **options, baselines=["sdpa-dense"])
    assert [case.name for case in last.cases] == list(suites.FOUR)
    assert all(case.entry("cmask", "forward").status == "ok" for case in last.cases)
    assert last.done
    assert not any(part.done for part in parts)
    assert all(len(a.cases) <= len(b.cases) for a, b in pairwise(parts))
    assert "geometric mean" in last.table()


def test_variants_stand_behind_what_they_vary() -> None:
    ours, rivals = line_up(suites.clear(512, 8), ["cmask", "cmask-reference"], ["flex-fa4", "fa4"])
    assert ours == ["cmask", "cmask+order", "cmask+kept", "cmask-reference"]
    assert rivals == ["flex-fa4", "flex-fa4+kept", "fa4"]


def setting(mask: cm.Mask | suites.Subject, length: int) -> Setting:
    subject = mask if isinstance(mask, suites.Subject) else suites.plain(mask, length)
    compiled = cm.compile(subject.mask, length)
    return Setting(subject, compiled, CPU, torch.float32, 1, 2, 2, 32, needs_grad=False)


@pytest.mark.parametrize("seq_len", [1024, 1000])
@pytest.mark.parametrize("name", ["causal", "hstu", "reward", "clear-r8"])
def test_a_block_mask_from_tiles_is_the_one_that_flex_makes(name: str, seq_len: int) -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    subject = suites.subject(name, seq_len)
    assert subject.predicate is not None
    mask_mod = subject.predicate(CPU, None)
    made = block_mask_from_tiles(cm.compile(subject.mask, seq_len), mask_mod, (128, 128), CPU)
    theirs = create_block_mask(mask_mod, 1, 1, seq_len, seq_len, device="cpu", BLOCK_SIZE=(128, 128))
    assert torch.equal(made.to_dense(), theirs.to_dense())
    if seq_len % 128:
        return  # of the last rows' blocks Flex calls none full, and we call full what is full as far as it goes
    for counts, indices in (("kv_num_blocks", "kv_indices"), ("full_kv_num_blocks", "full_kv_indices")):
        assert torch.equal(getattr(made, counts), getattr(theirs, counts))
        for row in range(made.kv_num_blocks.shape[-1]):
            n = int(getattr(made, counts)[0, 0, row])
            assert torch.equal(getattr(made, indices)[0, 0, row, :n], getattr(theirs, indices)[0, 0, row, :n])


def test_flex_gets_a_predicate_for_masks_that_differ_by_head() -> None:
    masks = [cm.causal(), cm.window(3), cm.causal()]
    flex = Flex("flex-triton")
    predicate = flex._predicate(setting(cm.per_head(masks), 40))
    q, kv, b = torch.arange(40)[:, None], torch.arange(40)[None], torch.tensor(0)
    for head, mask in enumerate(masks):
        assert torch.equal(predicate(b, torch.tensor(head), q, kv).expand(40, 40), torch.from_numpy(mask.to_dense(40)))


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    report = measure(cm.causal(), direction="both")
    assert Report.load(report.save(tmp_path / "report.json")) == report
    same = report.compare(Report.load(tmp_path / "report.json"))
    assert len(same) == 4
    assert {d.ratio.median for d in same} == {1.0}
