"""The tables and charts of ``docs/measured.md`` and the README, made from the recorded reports.

``python docs/tables.py`` writes them. A table stands between ``<!-- recorded: NAME -->`` and ``<!-- /recorded -->``:
that of every recorded report whose name begins with NAME.
"""

from __future__ import annotations

import re
from pathlib import Path

from cmask_lab.bench import picture, tables
from cmask_lab.bench.flops import DIRECTIONS
from cmask_lab.bench.report import Report, recorded_names

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "measured.md"
CHARTED = "four-masks"
"""The end of the name of the H200's report that is drawn."""

SLOT = re.compile(r"(<!-- recorded: ([\w-]+) -->\n).*?(<!-- /recorded -->)", re.DOTALL)


def made() -> dict[Path, str]:
    """Every file that is made from the reports, and what it holds."""
    report = Report.recorded(next(n for n in recorded_names() if n.startswith("h200") and n.endswith(CHARTED)))
    charts = {
        DOCS / "images" / f"{CHARTED}-{direction}.svg": picture.throughput_svg(report, direction) + "\n"
        for direction in DIRECTIONS
    }
    return charts | {PAGE: filled(PAGE.read_text())}


def filled(text: str) -> str:
    """The text with every table made anew."""
    return SLOT.sub(lambda slot: f"{slot[1]}{recorded(slot[2])}{slot[3]}", text)


def recorded(start: str) -> str:
    """The tables of the recorded reports whose names begin so."""
    return "".join(summary(Report.recorded(name)) for name in recorded_names() if name.startswith(start))


def summary(report: Report) -> str:
    """Machine and versions, then for each direction a row a mask: time of ours, ratio to each baseline."""
    parts = [f"\n{tables.machine(report)}\n"]
    for direction in DIRECTIONS:
        header, rows = tables.summary_rows(report, direction)
        if rows:
            lines = [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
            parts.append(f"\n**{direction.capitalize()}**\n\n" + "\n".join(lines) + "\n")
    return "".join(parts) + "\n"


if __name__ == "__main__":
    for path, content in made().items():
        path.write_text(content, encoding="utf-8")
