"""Do documents see one another?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cmask_lab.compiler.findings import Finding
from cmask_lab.compiler.rules.problem import Problem, count
from cmask_lab.masks.combinators import Or
from cmask_lab.masks.regions import Causal, SlidingWindow
from cmask_lab.masks.tables import DocumentIds, Documents
from cmask_lab.masks.tables import documents as documents_region


def leaks(problem: Problem) -> Iterator[Finding]:
    """Rows that see another document, where the lengths are given; else a ``|`` that looks like it."""
    lengths = problem.options.documents
    if lengths is None:
        yield from _joined_documents(problem)
        return
    region = documents_region(lengths)
    total = region.extent[1] or 0
    length = problem.q_start + problem.table.q_len
    if total != length:
        yield Finding(
            "documents",
            "error" if total > length else "warning",
            f"the documents have {total:,} tokens in all, the sequence has {length:,}",
            "pass lengths that add up; padding at the end is a document of its own",
        )
    # Tokens behind the last document belong to none: they may see nothing and nobody may see them.
    keys = max(total, problem.table.kv_len)
    window = problem.table.shift(0, keys)
    leaks = window - region.intervals(problem.table.q_len, keys, problem.q_start)
    if leaks.count:
        rows = np.unique(leaks.rows_per_interval())
        (start, _), *_rest = leaks.row(int(rows[0])).tolist()
        yield Finding(
            "leak",
            "error",
            f"{count(len(rows))} {'sees' if len(rows) == 1 else 'see'} keys of another document: query "
            f"{problem.q_start + int(rows[0])} sees key {start}",
            "use mask & cm.documents(lengths)",
            problem.q_start + rows,
        )


def _joined_documents(problem: Problem) -> Iterator[Finding]:
    """``documents | causal``, where ``&`` may have been meant."""
    for part in problem.mask.walk():
        if isinstance(part, Or):
            kinds = [type(arg) for arg in part.args]
            if (Documents in kinds or DocumentIds in kinds) and (Causal in kinds or SlidingWindow in kinds):
                yield Finding(
                    "leak",
                    "note",
                    "documents are joined by | with a region that crosses their borders",
                    "if documents must not see one another use & instead",
                )
                return
