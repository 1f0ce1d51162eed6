"""A report in words and numbers: plain text for a terminal, Markdown, and HTML for a notebook or a page.

All three come from the same rows. TFLOP/s stand in two columns: on visible pairs, which is what a user gets, and on all
pairs of the tiles that were visited, which is how hard the kernel worked.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import exp, log

from cmask_lab.bench.flops import DIRECTIONS
from cmask_lab.bench.report import FAILED, WRONG, Case, Comparison, Entry, Report

HEADER = ("contender", "median ms", "quartiles", "n", "{unit}", "on visited", "× floor", "{ours} is", "new mask", "")
"""Columns of a case's table; the last holds notes and reasons."""


def text(report: Report) -> str:
    """The whole report for a terminal."""
    parts = [machine(report)]
    for case in report.cases:
        parts.append(f"\n{case.title}: {_shape(case)}")
        for direction in case.directions:
            header, rows = case_rows(case, direction)
            parts += [f"  {direction}{floor(case, direction)}", _aligned([header, *rows], "    ")]
            parts += [f"    {line}" for line in remarks(case, direction)]
    for direction in DIRECTIONS:
        header, rows = summary_rows(report, direction)
        if len(rows) > 1:
            parts += [f"\nAll masks, {direction}: how many times faster ours is", _aligned([header, *rows], "  ")]
    return "\n".join(parts)


def markdown(report: Report) -> str:
    """The whole report as Markdown."""
    parts = [machine(report)]
    for direction in DIRECTIONS:
        header, rows = summary_rows(report, direction)
        if len(rows) > 1:
            parts += [f"**All masks, {direction}:** how many times faster ours is", _pipes([header, *rows])]
    for case in report.cases:
        for direction in case.directions:
            header, rows = case_rows(case, direction)
            parts.append(f"**{case.title}**, {direction}, {_shape(case)}{floor(case, direction)}")
            parts.append(_pipes([header, *rows]))
            parts += [f"_{line}_" for line in remarks(case, direction)]
    return "\n\n".join(parts)


def html(report: Report) -> str:
    """The tables as HTML; looks come from the page that they stand in (a notebook's own table style, or ours)."""
    parts = [f"<p class='cmask-machine'>{escape(machine(report))}</p>"]
    for case in report.cases:
        for direction in case.directions:
            caption = f"<b>{escape(case.title)}</b>, {direction}, {escape(_shape(case) + floor(case, direction))}"
            parts.append(case_html(case, direction, caption))
    return f"<div class='cmask-report'>{''.join(parts)}</div>"


def case_html(case: Case, direction: str, caption: str) -> str:
    """One case's table, with its remarks."""
    header, rows = case_rows(case, direction)
    notes = "".join(f"<p class='cmask-remark'>{escape(line)}</p>" for line in remarks(case, direction))
    return _html_table(header, rows, caption, "cmask-notes") + notes


def summary_html(report: Report, direction: str, caption: str) -> str:
    """The table of all masks; "" if there is but one."""
    header, rows = summary_rows(report, direction)
    return _html_table(header, rows, caption, "cmask-summary") if len(rows) > 1 else ""


def case_rows(case: Case, direction: str) -> tuple[list[str], list[list[str]]]:
    """Header and one row an entry of a case in one direction."""
    comparisons = {c.baseline: c for c in case.comparisons(direction)}
    lead = next(iter(comparisons.values())).ours if comparisons else (case.ours[0] if case.ours else "ours")
    entries = [e for e in case.entries if e.direction == direction]
    scale = _unit_of([case])
    header = [h.format(ours=lead, unit=scale) for h in HEADER]
    return header, [_row(case, e, comparisons.get(e.contender), scale) for e in entries]


def summary_rows(report: Report, direction: str) -> tuple[list[str], list[list[str]]]:
    """For every mask the median time of each of ours and its ratio to each baseline.

    The last row holds the geometric mean of each column, over the contenders that lead; a ratio that was spoiled or
    had too few rounds says so and is not in the mean.
    """
    found = [
        (case, name, {c.baseline: c for c in case.comparisons(direction, name, baselines_only=True)})
        for case in report.cases
        if direction in case.directions
        for name in case.ours_timed(direction)
    ]
    rivals = list(dict.fromkeys(rival for _, _, against in found for rival in against))
    rows = []
    for case, name, against in found:
        summary, lowest = case.entry(name, direction).summary, case.floor_ms(direction)
        assert summary is not None, "only what was timed is listed"
        variant = "" if name == case.ours_timed(direction)[0] else f" ({name})"
        times = [_ms(summary.median), _ms(lowest) if lowest else ""]
        rows.append(
            [case.title + variant, f"{case.q_len:,}", *times, *(_ratio(against.get(r), doubt=True) for r in rivals)]
        )
    leading = [against for case, name, against in found if name == case.ours_timed(direction)[0]]
    if len(leading) > 1:
        means = [
            _mean([against[r].ratio.median for against in leading if r in against and not against[r].doubt])
            for r in rivals
        ]
        if any(means):
            rows.append(["geometric mean", "", "", "", *means])
    return ["mask", "tokens", "ours, ms", "floor, ms", *rivals], rows


def remarks(case: Case, direction: str) -> list[str]:
    """What must be known to judge the numbers: how the rounds went, and under which conditions."""
    loop = case.loop(direction)
    if loop is None:
        return []
    checked = [e for e in case.entries if e.direction == direction and e.check and e.check.passed]
    lines = [
        f"{loop.rounds} interleaved round{'' if loop.rounds == 1 else 's'} after {loop.warmup_rounds} of warm-up "
        f"({loop.warmup_ms:.0f} ms), {loop.buffers} input sets in turn; stopped: {loop.stopped or 'not yet'}."
    ]
    if checked and checked[0].check:
        lines.append(
            f"Before that, {len(checked)} contenders were checked: {checked[0].check.proved_rows:,} rows of the mask "
            f"proved, results compared with a dense reference."
        )
    conditions = loop.conditions
    if conditions.sentence:
        lines.append(f"{conditions.sentence}.")
    lines += [f"Note: {note}." for note in conditions.notes]
    if conditions.spoiled:
        lines.append(f"SPOILED: {'; '.join(conditions.spoiled)}. Measure again.")
    return lines


def _row(case: Case, entry: Entry, comparison: Comparison | None, scale: str) -> list[str]:
    if entry.summary is None:
        label = {WRONG: "WRONG: ", FAILED: "FAILED: "}.get(entry.status, "")
        return [entry.contender, "–", "", "", "", "", "", "", _cold(entry), label + (entry.reason or entry.status)]
    s = entry.summary
    lowest, visible, visited = case.floor_ms(entry.direction), case.tflops(entry), case.visited_tflops(entry)
    return [
        entry.contender,
        _ms(s.median),
        f"{_ms(s.low_quartile)}–{_ms(s.high_quartile)}",
        str(s.n),
        rate(visible, scale),
        rate(visited, scale),
        f"{s.median / lowest:.2f}" if lowest else "",
        f"{_ratio(comparison)} {comparison.verdict}" if comparison else "",
        _cold(entry),
        entry.note,
    ]


def _cold(entry: Entry) -> str:
    """From a new mask to its first result: plan + first call."""
    if entry.cold_ms is None or entry.plan_ms is None or entry.first_ms is None:
        return ""
    return f"{_long(entry.cold_ms)} ({_long(entry.plan_ms)} + {_long(entry.first_ms)})"


def _ratio(comparison: Comparison | None, doubt: bool = False) -> str:
    if comparison is None:
        return ""
    r = comparison.ratio
    tail = f" {comparison.doubt}" if doubt and comparison.doubt else ""
    return f"{r.median:.2f}× [{r.low:.2f}, {r.high:.2f}]{tail}"


def machine(report: Report) -> str:
    """Device, packages and date in one line."""
    v = report.versions
    packages = ", ".join(f"{name} {v[name]}" for name in ("torch", "triton", "flash-attn-4", "cmask-lab") if name in v)
    return f"{report.device.get('name', 'unknown device')}; {packages}; {report.created}"


def _shape(case: Case) -> str:
    heads = f"H={case.heads}" if case.heads == case.kv_heads else f"H={case.heads}:{case.kv_heads}"
    density = case.stats.get("density")
    tail = f", density {density:.3f}" if density is not None else ""
    return f"B={case.batch}, {heads}, S={case.q_len:,}, D={case.head_dim}, {case.dtype}{tail}"


def floor(case: Case, direction: str) -> str:
    """The floor of a case and the rates it follows from, as the end of a heading; "" before they are measured."""
    lowest, r = case.floor_ms(direction), case.rates
    if lowest is None or r is None:
        return ""
    scale = _unit_of([case])
    matrix = f"{rate(r.matrix_tflops, scale)} {scale}"
    return f"; floor {_ms(lowest)} ms (matrix {matrix}, memory {r.bandwidth_gbs:.0f} GB/s)"


def _ms(value: float) -> str:
    """Three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _long(ms: float) -> str:
    return f"{ms / 1e3:.1f} s" if ms >= 1e3 else f"{_ms(ms)} ms" if ms >= 0.1 else "0 ms"


def unit(report: Report) -> str:
    """ "TFLOP/s", or "GFLOP/s" for a device that does not reach one TFLOP/s."""
    return _unit_of(report.cases)


def rate(tflops: float | None, scale: str) -> str:
    """A rate as text, three digits, in the unit ``scale``.

    >>> rate(0.0123, "GFLOP/s"), rate(653.2, "TFLOP/s")
    ('12.3', '653')
    """
    if tflops is None:
        return ""
    value = tflops * 1e3 if scale == "GFLOP/s" else tflops
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _unit_of(cases: Sequence[Case]) -> str:
    reached = [case.rates.matrix_tflops for case in cases if case.rates]
    return "GFLOP/s" if reached and max(reached) < 1 else "TFLOP/s"


def _mean(ratios: Sequence[float]) -> str:
    return f"{exp(sum(map(log, ratios)) / len(ratios)):.2f}× (of {len(ratios)})" if ratios else ""


def _aligned(rows: Sequence[Sequence[str]], indent: str) -> str:
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    # Names and notes read from the left, numbers from the right.
    left = (0, len(widths) - 1)
    lines = []
    for row in rows:
        cells = [row[c].ljust(w) if c in left else row[c].rjust(w) for c, w in enumerate(widths)]
        lines.append(indent + "  ".join(cells).rstrip())
    return "\n".join(lines)


def _pipes(rows: Sequence[Sequence[str]]) -> str:
    header, *body = [[cell.replace("|", "\\|") or " " for cell in row] for row in rows]
    rule = ["---", *["---:"] * (len(header) - 2), "---"]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *body))


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str, kind: str) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f"<div class='cmask-scroll'><table class='cmask-table {kind}'><caption>{caption}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
