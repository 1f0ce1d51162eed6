"""Golden vectors: what a spec means, as intervals, for every implementation of the region language to check itself by.

``python -m tests.masks.golden`` writes ``golden.json``, a list of

    {"spec": …, "q_len": …, "kv_len": …, "q_start": …, "row_ptr": […], "start": […], "stop": […]}

The intervals come from the cell-by-cell oracle, not from the package. Rows are normal: sorted, disjoint, not touching.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.masks import Mask, causal, prefix, window
from tests.masks.oracle import dense
from tests.masks.samples import SIDE, WINDOWS, Draw, composition
from tests.masks.test_regions import CASES

PATH = Path(__file__).with_name("golden.json")
COMPOSITIONS = 260
NAMED = (causal().named("lower half") & (window(4, 2).named("近傍") | prefix(2))).named('a "name"')


def vectors() -> list[dict[str, Any]]:
    """Every region in two windows, then compositions in one each."""
    result = [vector(NAMED, WINDOWS[0])]
    for n, (mask, _) in enumerate(CASES.values()):
        result += [vector(mask, WINDOWS[0]), vector(mask, WINDOWS[1 + n % (len(WINDOWS) - 1)])]
    for seed in range(COMPOSITIONS):
        mask = composition(Draw.seeded(seed), depth=1 + seed % 4)
        if max(end or 0 for end in mask.extent) <= SIDE:
            result.append(vector(mask, WINDOWS[seed % len(WINDOWS)]))
    return result


def vector(mask: Mask, view: tuple[int, int, int]) -> dict[str, Any]:
    """One entry of the file."""
    q_len, kv_len, q_start = view
    table = IntervalTable.from_dense(dense(mask.node, q_len, kv_len, q_start))
    edges = {name: getattr(table, name).tolist() for name in ("row_ptr", "start", "stop")}
    return {"spec": mask.spec(), "q_len": q_len, "kv_len": kv_len, "q_start": q_start, **edges}


def text() -> str:
    """The file's contents: one vector a line."""
    lines = (json.dumps(entry, separators=(",", ":"), ensure_ascii=False) for entry in vectors())
    return "[\n" + ",\n".join(lines) + "\n]\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
