"""Do windows show as many keys as another library's of that size?"""

from __future__ import annotations

from collections.abc import Iterator

from cmask_lab.compiler.findings import Finding
from cmask_lab.compiler.rules.problem import Problem
from cmask_lab.masks.grids import Neighborhood
from cmask_lab.masks.regions import SlidingWindow
from cmask_lab.masks.window_counts import NATTEN, WINDOW_COUNTS


def counted(problem: Problem) -> Iterator[Finding]:
    """Windows against the number of another library; without one, those that are likely one too long."""
    windows = list(dict.fromkeys(part for part in problem.mask.walk() if isinstance(part, SlidingWindow) and part.left))
    library, size = problem.options.library, problem.options.window
    if library is None:
        yield from _round_windows(windows)
        return
    if library == NATTEN:
        yield from _natten_windows(problem, windows, size)
        return
    count = WINDOW_COUNTS[library]
    for part in windows:
        assert part.left is not None
        if size is None:
            theirs = count.size(part.left)
            yield Finding("window", "note", f"{part!r} is {theirs} in {library} ({count.how})", f"pass {theirs} there")
        elif part.left != (left := count.left(size)):
            yield Finding(
                "window",
                "error" if abs(part.left - left) == 1 else "warning",
                f"{part!r} shows {part.left + 1} keys; {library} with {size} shows {left + 1} ({count.how})",
                f"use {SlidingWindow(left, part.right)!r}",
            )
    if not windows and size is not None:
        yield Finding("window", "warning", f"{library} has a window of {size}, the mask has none", "add cm.window(…)")


def _round_windows(windows: list[SlidingWindow]) -> Iterator[Finding]:
    """A left of 1024 shows 1025 keys, which few people want."""
    for part in windows:
        left = part.left or 0
        if left >= 16 and left & (left - 1) == 0 and part.right == 0:
            yield Finding(
                "window",
                "note",
                f"{part!r} shows {left + 1} keys, the query's own among them: one more than {left}",
                f"for a window of {left} keys use cm.window({left - 1})",
            )


def _natten_windows(problem: Problem, windows: list[SlidingWindow], size: int | None) -> Iterator[Finding]:
    for part in windows:
        yield Finding(
            "window",
            "warning",
            f"{part!r} is cut off at the border; NATTEN shifts it, so that every query sees equally many keys",
            "use cm.grid(…).neighborhood(size)",
        )
    for part in problem.mask.walk():
        if isinstance(part, Neighborhood) and size is not None and set(part.size) != {size}:
            yield Finding("window", "warning", f"{part!r} is not NATTEN's kernel_size={size}", f"use size {size}")
