"""What the linter found: a list that prints itself, and shows itself as a table in a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cmask_lab.compiler.intervals import Int64s

SEVERITIES = ("error", "warning", "note")
"""An error is wrong whatever was meant; a warning most likely is; a note is worth knowing."""

COLOURS = {"error": "#b42318", "warning": "#b54708", "note": "#175cd3"}

RANGES_SHOWN = 3
RANGES_LISTED = 256
"""Ranges of rows in a description for a front end."""


def _no_rows() -> Int64s:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing that the linter has to say.

    Attributes:
        rule: what was looked for, such as "empty-rows".
        severity: "error", "warning" or "note".
        message: what is the case, with the numbers.
        remedy: what to do about it.
        rows: int64 ``(n,)``: positions of the queries concerned, ascending; empty where none in particular are.
        where: which of several masks: "head 3", "batch entry 0"; "" for a single mask.

    >>> Finding("empty-rows", "warning", "2 queries see nothing", "cut them off", np.array([6, 7]))
    warning empty-rows: 2 queries see nothing (rows 6–7). Remedy: cut them off.
    """

    rule: str
    severity: str
    message: str
    remedy: str
    rows: Int64s = field(default_factory=_no_rows)
    where: str = ""

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The rows as ranges ``[start, stop)``."""
        if not len(self.rows):
            return []
        breaks = np.flatnonzero(np.diff(self.rows) != 1) + 1
        return [(int(part[0]), int(part[-1]) + 1) for part in np.split(self.rows, breaks)]

    @property
    def place(self) -> str:
        """The rows for people: "rows 0–7, 12, … 96 in all"."""
        shown = [f"{start}–{stop - 1}" if stop > start + 1 else f"{start}" for start, stop in self.ranges]
        if not shown:
            return ""
        noun = "rows" if len(self.rows) > 1 else "row"
        rest = f", … {len(self.rows)} in all" if len(shown) > RANGES_SHOWN else ""
        return f"{noun} {', '.join(shown[:RANGES_SHOWN])}{rest}"

    def describe(self) -> dict[str, Any]:
        """Everything as JSON types; of very many ranges of rows the first ones."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "message": self.message,
            "remedy": self.remedy,
            "rows": [list(pair) for pair in self.ranges[:RANGES_LISTED]],
            "rows_count": len(self.rows),
            "where": self.where,
        }

    def __repr__(self) -> str:
        where = f" in {self.where}" if self.where else ""
        place = f" ({self.place})" if self.place else ""
        return f"{self.severity} {self.rule}{where}: {self.message}{place}. Remedy: {self.remedy}."


class Findings(list[Finding]):
    """All findings, the most severe first; a list, empty if there is nothing to say.

    >>> Findings()
    No findings.
    """

    @classmethod
    def of(cls, found: list[Finding]) -> Findings:
        """The findings in order of severity."""
        return cls(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))

    def by(self, rule: str) -> Findings:
        """Those of one rule."""
        return Findings([finding for finding in self if finding.rule == rule])

    @property
    def errors(self) -> Findings:
        """Those that are errors."""
        return Findings([finding for finding in self if finding.severity == "error"])

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "No findings."

    def _repr_html_(self) -> str:
        if not self:
            return "<p>No findings.</p>"
        rows = "".join(
            f'<tr><td style="color:{COLOURS[finding.severity]};font-weight:600">{finding.severity}</td>'
            f'<td style="text-align:left"><code>{finding.rule}</code> {html.escape(finding.where)}</td>'
            f'<td style="text-align:left">{html.escape(finding.message)}</td>'
            f'<td style="text-align:left">{html.escape(finding.place)}</td>'
            f'<td style="text-align:left">{html.escape(finding.remedy)}</td></tr>'
            for finding in self
        )
        head = "".join(f"<th>{name}</th>" for name in ("", "rule", "what", "where", "remedy"))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
