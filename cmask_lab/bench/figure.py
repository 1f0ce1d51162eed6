"""A report as Plotly figures, for notebooks and for pages that one can point at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cmask_lab.bench.picture import COLORS, color_class, throughput_svg
from cmask_lab.bench.report import Case, Entry, Report

PARTIAL, FULL = "#e2922e", "#2d6fdb"


def throughput(report: Report) -> Any:
    """Bars of TFLOP/s on visible pairs: a group for every mask, one panel for each direction, quartiles as whiskers."""
    from plotly.subplots import make_subplots

    directions = tuple(dict.fromkeys(d for case in report.cases for d in case.directions)) or ("forward",)
    titles = [f"{d}: TFLOP/s on visible pairs" for d in directions]
    figure = make_subplots(rows=len(directions), cols=1, subplot_titles=titles, vertical_spacing=0.16)
    names = list(dict.fromkeys(e.contender for case in report.cases for e in case.entries if e.timed))
    for row, direction in enumerate(directions, start=1):
        for name in names:
            figure.add_trace(_bars(report, name, direction, legend=row == 1), row=row, col=1)
        figure.add_trace(_floor(report, direction, legend=row == 1), row=row, col=1)
    figure.update_layout(
        barmode="group",
        height=120 + 340 * len(directions),
        title=f"{report.device.get('name', '')}, {report.created[:10]}",
        legend={"orientation": "h", "y": -0.12},
        template="plotly_white",
        margin={"l": 60, "r": 20, "t": 80, "b": 60},
    )
    return figure


def save(report: Report, path: str | Path) -> list[Path]:
    """Write a picture: ``.html`` a Plotly page that works without a network, ``.svg`` a still one for each direction.

    Returns:
        The files written.
    """
    target = Path(path)
    if target.suffix == ".html":
        target.write_text(throughput(report).to_html(include_plotlyjs=True, full_html=True), encoding="utf-8")
        return [target]
    if target.suffix != ".svg":
        raise ValueError(f"figure: {target.name!r} ends in {target.suffix!r}; give a name that ends in .svg or .html")
    directions = list(dict.fromkeys(d for case in report.cases for d in case.directions))
    names = [target if len(directions) == 1 else target.with_name(f"{target.stem}-{d}.svg") for d in directions]
    for name, direction in zip(names, directions, strict=True):
        name.write_text(throughput_svg(report, direction), encoding="utf-8")
    return names


def display(report: Report) -> None:
    """Show a report in a notebook: its tables, then the Plotly figure, or a still picture where Plotly is missing."""
    from IPython.display import HTML
    from IPython.display import display as show

    try:
        import plotly  # noqa: F401
    except ModuleNotFoundError:
        show(HTML(report._repr_html_()))
        return
    from cmask_lab.bench.html import fragment

    show(HTML(fragment(report, charts=False)))
    if any(entry.timed for case in report.cases for entry in case.entries):
        show(throughput(report))


def _bars(report: Report, name: str, direction: str, legend: bool) -> Any:
    import plotly.graph_objects as go

    found = [
        (case, e) for case in report.cases for e in case.entries if (e.contender, e.direction) == (name, direction)
    ]
    timed = [(case, e) for case, e in found if e.timed]
    rates = [case.tflops(e) or 0.0 for case, e in timed]
    summaries = [e.summary for _, e in timed if e.summary]
    return go.Bar(
        name=name,
        legendgroup=name,
        showlegend=legend,
        x=[case.title for case, _ in timed],
        y=rates,
        error_y={
            "array": [rate * (s.median / s.low_quartile - 1) for rate, s in zip(rates, summaries, strict=True)],
            "arrayminus": [rate * (1 - s.median / s.high_quartile) for rate, s in zip(rates, summaries, strict=True)],
            "thickness": 1,
        },
        marker_color=COLORS.get(color_class(name).removeprefix("c-"), COLORS["sdpa-dense"])[0],
        marker_pattern_shape="/" if "+" in name else "",
        customdata=[_hover(case, e) for case, e in timed],
        hovertemplate="%{x}<br>%{fullData.name}: %{y:.4g} TFLOP/s<br>%{customdata}<extra></extra>",
    )


def _floor(report: Report, direction: str, legend: bool) -> Any:
    import plotly.graph_objects as go

    from cmask_lab.bench.flops import tflops

    known = [(case, floor) for case in report.cases if (floor := case.floor_ms(direction))]
    return go.Scatter(
        name="floor of the device",
        legendgroup="floor",
        showlegend=legend,
        mode="markers",
        marker={"symbol": "line-ew-open", "size": 26, "color": "#5d646e"},
        x=[case.title for case, _ in known],
        y=[tflops(case.visible_pairs, case.head_dim, direction, floor) for case, floor in known],
    )


def _hover(case: Case, entry: Entry) -> str:
    summary = entry.summary
    assert summary is not None
    lines = [f"{summary.median:.4g} ms ({summary.low_quartile:.4g}–{summary.high_quartile:.4g}), n={summary.n}"]
    for comparison in case.comparisons(entry.direction):
        if comparison.baseline == entry.contender:
            r = comparison.ratio
            lines.append(f"{comparison.ours}: {r.median:.3f}× [{r.low:.3f}, {r.high:.3f}], {comparison.verdict}")
    return "<br>".join([*lines, entry.note])
