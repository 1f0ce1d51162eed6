"""Height and width in their places?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cmask_lab.compiler.findings import Finding
from cmask_lab.compiler.rules.problem import Problem
from cmask_lab.masks.grids import GridMask


def swapped(problem: Problem) -> Iterator[Finding]:
    """Token grids that are not of the shape given, or contradict each other."""
    grids = list(dict.fromkeys(part.shape for part in problem.mask.walk() if isinstance(part, GridMask)))
    wanted = problem.options.grid
    if wanted is not None:
        for have in grids:
            if have != wanted:
                exchanged = _turned(have) == wanted
                yield Finding(
                    "grid",
                    "error",
                    f"the mask's grid is {_times(have)}, the tokens stand as {_times(wanted)}"
                    + (": height and width are swapped" if exchanged else ""),
                    f"use cm.grid{wanted}; height comes before width",
                )
        return
    for n, have in enumerate(grids):
        for other in grids[:n]:
            if have != other and have == _turned(other):
                yield Finding(
                    "grid",
                    "warning",
                    f"the mask has grids of {_times(other)} and {_times(have)}: in one of them height and width look "
                    f"swapped",
                    "give height before width in both",
                )


def _turned(shape: Sequence[int]) -> tuple[int, ...]:
    """Height and width exchanged."""
    return (*shape[:-2], shape[-1], shape[-2])


def _times(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
