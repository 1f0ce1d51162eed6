"""Every puzzle accepts its model answer, other answers that mean the same, and refuses each planted wrong one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cmask_lab as cm
from cmask_lab.course.exercises import Drawing, Verdict
from cmask_lab.course.puzzles import COURSE, LEAKING, MEANT, PICTURE

NUMBERS = range(1, len(COURSE.puzzles) + 1)


def value(source: str) -> Any:
    return eval(source, {"cm": cm, "np": np})


def test_there_are_fifteen() -> None:
    assert len(COURSE.puzzles) == 15
    assert len({puzzle.title for puzzle in COURSE.puzzles}) == 15


@pytest.mark.parametrize("number", NUMBERS)
def test_the_model_answer_is_accepted(number: int) -> None:
    verdict = COURSE.check(number, value(COURSE[number].model))
    assert verdict, verdict.message


@pytest.mark.parametrize(
    ("number", "source"), [(number, source) for number in NUMBERS for source in COURSE[number].wrong]
)
def test_a_planted_wrong_answer_is_refused(number: int, source: str) -> None:
    verdict = COURSE.check(number, value(source))
    assert not verdict
    assert verdict.message


@pytest.mark.parametrize(
    ("number", "source"),
    [
        (1, "cm.window(None, 0)"),
        (1, "~cm.band(1, None)"),
        (1, "cm.band(None, 1)"),
        (2, "cm.band(-3, 1)"),
        (2, "cm.causal() & cm.window(3, 9)"),
        (3, "cm.repeat([5, 7], cm.causal())"),
        (3, "cm.causal() - cm.rect(q=(5, 12), k=(0, 5))"),
        (4, "cm.causal() | cm.rect(k=(0, 4))"),
        (5, "cm.causal() & (cm.prefix(2) | cm.window(3, 0))"),
        (6, "cm.compile(cm.band(None, 1), 4, 16, q_start=12, tile=32)"),
        (7, "cm.tree([-1, 0, 1, 2, 3, 4, 5, 6, 3, 8, 9, 10, 3, 12, 13, 14])"),
        (8, "cm.grid(4, 6).disk(2)"),
        (9, "cm.prefix(4) | cm.rect(q=(0, 4)) | cm.grid(4, 6).disk(2).at(q=(4, 28), k=(4, 28))"),
        (10, "[15, 0]"),
        (11, "cm.documents(ids=[0] * 7 + [1] * 6 + [-1] * 3) & cm.causal()"),
        (13, "np.arange(1024).reshape(256, 4).T.reshape(-1)"),
        (13, "sorted(range(1024), key=lambda token: token % 4)"),
        (15, "0.59"),
    ],
)
def test_another_right_answer_is_accepted(number: int, source: str) -> None:
    verdict = COURSE.check(number, value(source))
    assert verdict, verdict.message


@pytest.mark.parametrize("number", [number for number in NUMBERS if isinstance(value(COURSE[number].model), cm.Mask)])
def test_no_single_wrong_cell_goes_unseen(number: int) -> None:
    """The model answer with one cell more or less, anywhere in the task's plane, is refused and the cell named."""
    model = value(COURSE[number].model)
    q_len = model.extent[0] or 8
    generator = np.random.default_rng(number)
    for query, key in {(0, 0), (q_len - 1, q_len - 1), *map(tuple, generator.integers(0, q_len, (6, 2)).tolist())}:
        cell = cm.rect(q=(query, query + 1), k=(key, key + 1))
        spoilt = model - cell if model.to_dense(q_len)[query, key] else model | cell
        verdict = COURSE.check(number, spoilt)
        assert not verdict
        assert f"Query {query} " in verdict.message
        assert f" key {key};" in verdict.message


def test_a_wrong_cell_is_told_with_its_reason_and_framed() -> None:
    verdict = COURSE.check(3, cm.causal())
    assert "Query 5 sees key 0; it should not: 5 belongs to document 2, 0 to document 1." in str(verdict)
    assert verdict.picture is not None
    assert verdict.picture.svg.count('class="wrong"') == 35


def test_the_leak_is_where_every_witness_says() -> None:
    """All cells in which the two masks differ are accepted, and no other."""
    wrong = LEAKING.to_dense(16) ^ MEANT.to_dense(16)
    for query, key in np.ndindex(16, 16):
        assert bool(COURSE.check(10, (query, key))) == wrong[query, key]


def test_par_is_what_the_model_answer_reaches() -> None:
    """No better order is known to the compiler than the one that par was set by."""
    verdict = COURSE.check(14, value(COURSE[14].model))
    assert str(verdict).startswith("460 tiles visited")
    stats = cm.compile(PICTURE, 4096, tile=64, order="auto").stats
    assert stats.full_tiles + stats.partial_tiles >= 460


def test_three_hints_come_one_after_another() -> None:
    for number in NUMBERS:
        nudge, picture, code = COURSE[number].hints
        assert isinstance(picture, Drawing)
        shown = [COURSE.hint(number).html for _ in range(4)]
        assert [f"Hint {n} of 3" in text for n, text in zip((1, 2, 3, 3), shown, strict=True)] == [True] * 4
        assert "<svg" in shown[1]
        assert shown[2] == shown[3]
        assert nudge
        assert code


def test_an_open_puzzle_is_no_error_and_not_solved() -> None:
    verdict = COURSE.check(1, ...)
    assert isinstance(verdict, Verdict)
    assert not verdict
    assert "Not answered yet" in verdict._repr_html_()


def test_a_puzzle_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="there is no puzzle 16; they are numbered 1 to 15"):
        COURSE.show(16)
