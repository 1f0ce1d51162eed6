"""The exercises' machinery: show a puzzle, check an answer, give a hint.

A checker compares sets of cells, never text, so every equivalent answer passes and an answer that is wrong in a single
cell of a single size does not. What it finds first, reading row by row, is told in words and framed in the picture.
"""

from __future__ import annotations

import html
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cmask_lab.compiler.compile import CompiledMask, compile
from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.course.drawing import Drawing, cells
from cmask_lab.masks.mask import Mask


@dataclass(frozen=True)
class Verdict:
    """What a checker says: True or False where a bool is wanted, a message and a picture in a notebook."""

    solved: bool
    message: str
    picture: Drawing | None = None

    def __bool__(self) -> bool:
        return self.solved

    def __str__(self) -> str:
        return self.message

    def _repr_html_(self) -> str:
        colour, mark = ("#1f8a4c", "✓") if self.solved else ("#c0392b", "✗")
        picture = self.picture._repr_html_() if self.picture else ""
        return (
            f"<div style='border-left: 4px solid {colour}; padding: .2em .8em'><b style='color: {colour}'>{mark}</b> "
            f"{html.escape(self.message)}<br>{picture}</div>"
        )


NOT_YET = Verdict(False, "Not answered yet: put your answer in place of the three dots, then run the cell again.")

Checker = Callable[[Any], Verdict]


@dataclass(frozen=True)
class Puzzle:
    """One exercise.

    Attributes:
        task: what to do, in HTML.
        given: the picture that goes with it.
        check: the checker.
        hints: a nudge, a picture, a piece of the code; asked for one after another.
        model: Python of a model answer, with ``cm`` and ``np``.
        wrong: Python of wrong answers, each with a mistake that people make; the checker must refuse them.
    """

    title: str
    task: str
    check: Checker
    hints: tuple[str, Drawing, str]
    model: str
    wrong: tuple[str, ...]
    given: Drawing | None = None


@dataclass
class Course:
    """The puzzles in their order, and how many hints of each were asked for."""

    puzzles: tuple[Puzzle, ...]
    hinted: dict[int, int] = field(default_factory=dict)

    def __getitem__(self, number: int) -> Puzzle:
        if not 1 <= number <= len(self.puzzles):
            raise ValueError(f"exercises: there is no puzzle {number}; they are numbered 1 to {len(self.puzzles)}")
        return self.puzzles[number - 1]

    def show(self, number: int) -> Text:
        """The task of a puzzle, with its picture."""
        puzzle = self[number]
        picture = puzzle.given._repr_html_() if puzzle.given else ""
        return Text(f"<h4>{number}. {puzzle.title}</h4><p>{puzzle.task}</p>{picture}")

    def check(self, number: int, answer: Any) -> Verdict:
        """Whether the answer is right; where it is not, the first place in which it is not."""
        return NOT_YET if answer is ... else self[number].check(answer)

    def hint(self, number: int) -> Text:
        """The next of three hints: a nudge, a picture, a piece of the code."""
        puzzle, level = self[number], min(self.hinted.get(number, 0), 2)
        self.hinted[number] = level + 1
        hint = puzzle.hints[level]
        body = hint._repr_html_() if isinstance(hint, Drawing) else html.escape(hint)
        if level == 2:
            body = f"<code>{body}</code>"
        return Text(f"<p>Hint {level + 1} of 3: {body}</p>")


@dataclass(frozen=True)
class Text:
    """A piece of HTML that shows itself."""

    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.html


# Checkers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plane:
    """Lengths at which an answer is compared."""

    q_len: int
    kv_len: int | None = None
    q_start: int = 0


def same_cells(
    target: Mask,
    planes: tuple[Plane, ...],
    why: Callable[[int, int], str],
    *,
    regions: int | None = None,
    best_regions: int | None = None,
) -> Checker:
    """A checker for a mask: it must see what ``target`` sees, in every plane.

    Args:
        why: for a cell (query, key) the reason why it should be visible, or not.
        regions: the most regions that the answer may be made of.
        best_regions: the fewest known.

    >>> import cmask_lab as cm
    >>> check = same_cells(cm.causal(), (Plane(4),), lambda q, k: f"a query sees no key after itself")
    >>> print(check(cm.window(None, 1)))
    Query 0 sees key 1; it should not: a query sees no key after itself. 3 of 16 cells are wrong at 4 × 4.
    """

    def check(answer: Any) -> Verdict:
        if not isinstance(answer, Mask):
            return Verdict(False, f"The answer is a {type(answer).__name__}; it should be a mask, such as cm.causal().")
        for plane in planes:
            try:
                found = answer.intervals(plane.q_len, plane.kv_len, plane.q_start)
            except ValueError as error:
                return Verdict(False, f"The answer does not fit: {error}")
            verdict = _compared(found, target.intervals(plane.q_len, plane.kv_len, plane.q_start), plane.q_start, why)
            if verdict is not None:
                return verdict
        used = regions_of(answer)
        if regions is not None and used > regions:
            return Verdict(
                False, f"The cells are right, but the answer has {used} regions; at most {regions} are allowed."
            )
        score = "" if best_regions is None else f" Solved with {_count(used, 'region')}, best known {best_regions}."
        return Verdict(True, f"Right in every cell.{score}")

    return check


def same_window(target: Mask, plane: Plane, why: Callable[[int, int], str]) -> Checker:
    """A checker for a compiled mask: the lengths must be those of ``plane``, and the cells those of ``target``."""

    def check(answer: Any) -> Verdict:
        if not isinstance(answer, CompiledMask):
            return Verdict(False, f"The answer is a {type(answer).__name__}; it should be what cm.compile(…) returns.")
        expected = target.intervals(plane.q_len, plane.kv_len, plane.q_start)
        shape, wanted = (answer.q_len, answer.kv_len), (expected.q_len, expected.kv_len)
        if shape != wanted:
            return Verdict(
                False, f"It has {shape[0]} queries and {shape[1]} keys; it should have {wanted[0]} and {wanted[1]}."
            )
        if answer.q_start != plane.q_start:
            text = f"Its first query row stands at position {answer.q_start}; it should stand at {plane.q_start}."
            return Verdict(False, text)
        wrong = _compared(answer.mask.intervals(*shape, answer.q_start), expected, plane.q_start, why)
        return Verdict(True, "Right in every cell.") if wrong is None else wrong

    return check


def witness(buggy: Mask, meant: Mask, q_len: int) -> Checker:
    """A checker for "find a cell that is wrong": any cell ``(query, key)`` in which the two masks differ."""
    wrong = buggy.to_dense(q_len) ^ meant.to_dense(q_len)

    def check(answer: Any) -> Verdict:
        try:
            query, key = (operator.index(each) for each in answer)
        except (TypeError, ValueError):
            return Verdict(False, f"The answer is {answer!r}; it should be a pair (query, key), such as (3, 1).")
        if not (0 <= query < q_len and 0 <= key < q_len):
            return Verdict(False, f"({query}, {key}) lies outside the plane of {q_len} × {q_len}.")
        picture = cells(buggy, q_len, wrong=[(query, key)])
        sees = "sees" if buggy.to_dense(q_len)[query, key] else "does not see"
        if not wrong[query, key]:
            return Verdict(False, f"Query {query} {sees} key {key}, and that is as it should be.", picture)
        return Verdict(True, f"Found: query {query} {sees} key {key}; {wrong.sum()} cells are wrong in all.", picture)

    return check


def good_order(mask: Mask, tile: int, limit: int, best: int) -> Checker:
    """A checker for a token order: a permutation that brings the visited tiles down to ``limit``; ``best`` is par."""
    q_len, _ = mask.extent
    assert q_len is not None

    def check(answer: Any) -> Verdict:
        order = np.asarray(answer)
        if order.shape != (q_len,) or not np.array_equal(np.sort(order), np.arange(q_len)):
            text = f"The answer must name each token of 0 … {q_len - 1} once"
            return Verdict(False, f"{text}; it has shape {order.shape} and {len(np.unique(order))} different tokens.")
        compiled = compile(mask, q_len, tile=tile, order=order.astype(np.int32))
        stats = compiled.stats
        visited = stats.full_tiles + stats.partial_tiles
        before = compile(mask, q_len, tile=tile).stats
        start = before.full_tiles + before.partial_tiles
        text = f"{visited} tiles visited ({stats.partial_tiles} partial) instead of {start}; best known {best}."
        return Verdict(visited <= limit, text if visited <= limit else f"{text} The limit is {limit}.")

    return check


def good_tile(mask: Mask, q_len: int, waste: float, descriptor_bytes: int) -> Checker:
    """A checker for a tile size: both the wasted work and the descriptor must stay under a limit."""

    def check(answer: Any) -> Verdict:
        try:
            stats = compile(mask, q_len, tile=answer).stats
        except (ValueError, TypeError) as error:
            return Verdict(False, str(error))
        text = (
            f"{stats.visited_pairs / stats.visible_pairs:.2f} pairs computed for each visible one (limit {waste}), "
            f"{stats.descriptor_bytes:,} bytes of descriptor (limit {descriptor_bytes:,})."
        )
        return Verdict(stats.waste <= waste and stats.descriptor_bytes <= descriptor_bytes, text)

    return check


def close_to(value: float, unit: str, how: str, tolerance: float = 0.05) -> Checker:
    """A checker for a prediction: within ``tolerance`` (relative) of the value; ``how`` explains it."""

    def check(answer: Any) -> Verdict:
        if isinstance(answer, bool) or not isinstance(answer, int | float | np.number):
            return Verdict(False, f"The answer is a {type(answer).__name__}; it should be a number of {unit}.")
        ratio = float(answer) / value
        if abs(ratio - 1) <= tolerance:
            return Verdict(True, f"{value:.3g} {unit}: {how}.")
        if ratio <= 0:
            return Verdict(False, f"{answer:.3g} {unit}: a prediction is more than 0.")
        more = "more" if ratio > 1 else "less"
        return Verdict(
            False, f"{answer:.3g} {unit} is {more} than it takes, by a factor of {max(ratio, 1 / ratio):.2g}."
        )

    return check


def regions_of(mask: Mask) -> int:
    """How many regions an expression is made of: its leaves.

    >>> import cmask_lab as cm
    >>> regions_of(cm.causal() & (cm.prefix(4) | cm.documents([4, 4])))
    3
    """
    return sum(regions_of(child) for child in mask.children) or 1


def _compared(
    found: IntervalTable, expected: IntervalTable, q_start: int, why: Callable[[int, int], str]
) -> Verdict | None:
    """None if the tables agree, else a verdict that names the first wrong cell."""
    difference = found ^ expected
    if not difference.count:
        return None
    row, key = int(difference.rows_per_interval()[0]), int(difference.start[0])
    query = row + q_start
    extra = any(start <= key < stop for start, stop in found.row(row).tolist())
    says, should = ("sees", "should not") if extra else ("does not see", "should")
    total = found.q_len * found.kv_len
    text = (
        f"Query {query} {says} key {key}; it {should}: {why(query, key)}. "
        f"{difference.visible_pairs} of {total} cells are wrong at {found.q_len} × {found.kv_len}."
    )
    if total > 64 * 64:
        return Verdict(False, text)
    wrong = [(int(q), int(k)) for q, k in np.argwhere(difference.to_dense())]
    return Verdict(False, text, cells(found.to_dense(), wrong=wrong, caption="Your mask; the wrong cells are framed."))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
