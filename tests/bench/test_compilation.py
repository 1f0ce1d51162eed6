"""Compile times beside create_block_mask: measured where it fits into memory, and a reason where it does not."""

import pytest

from cmask_lab import cli
from cmask_lab.bench import compilation
from cmask_lab.bench.compilation import CompileTime, compile_times


def test_every_mask_of_the_suite_is_timed_once_whatever_its_head_dimension():
    names = [each.name for each in compile_times(512, samples=2)]
    assert len(names) == len(set(names))
    assert {"causal", "hstu", "reward", "clear-r16"} <= set(names)
    assert "causal-d64" not in names


def test_a_block_mask_that_does_not_fit_is_not_made(monkeypatch):
    monkeypatch.setattr(compilation, "_free_bytes", lambda: 1000)
    monkeypatch.setattr(compilation, "_create_block_mask", lambda *_: pytest.fail("it would not fit"))
    first = next(compile_times(512, samples=2))
    assert first.block_mask is None
    assert first.ratio is None
    assert "needs 0 GB" in first.row()


def test_the_ratio_is_that_of_the_medians():
    times = CompileTime("a", 8, 8, (1.0, 2.0, 9.0), (10.0, 50.0, 60.0), "", 5)
    assert times.ratio == 25


def test_the_command_line_prints_the_table(capsys):
    assert cli.main(["compile", "--times", "--seq-len", "512"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == compilation.HEADER
    assert lines[1].startswith("causal")


def test_a_mask_and_all_masks_are_not_timed_together(capsys):
    assert cli.main(["compile", "causal", "--times"]) == 2
    assert "give a mask or --times, not both" in capsys.readouterr().err
    assert cli.main(["compile"]) == 2
    assert "give a mask, or --times" in capsys.readouterr().err
