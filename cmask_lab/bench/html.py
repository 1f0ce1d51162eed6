"""A report as one page: tile maps, throughput, tables, exported code. No script, no network, light and dark."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import exp, log

from cmask_lab.bench import picture, tables
from cmask_lab.bench.report import Case, Comparison, Report
from cmask_lab.bench.statistics import CLOSE

LIGHT = "--ink:#16191d;--dim:#5d646e;--rule:#d9dde3;--paper:#fbfbfa;--card:#ffffff;--accent:#1d5fd0;--warn:#b42318"
DARK = "--ink:#e8eaed;--dim:#9aa3af;--rule:#343a42;--paper:#101215;--card:#171a1f;--accent:#6ea8ff;--warn:#ff8a7a"

PAGE_STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1300px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;margin:0 0 4px} h2{font-size:19px;margin:0 0 12px}
.lead{color:var(--dim);margin:0 0 24px}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px;margin:0 0 28px}
.figure{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:14px 16px}
.figure b{display:block;font-size:26px;line-height:1.2;color:var(--accent);font-variant-numeric:tabular-nums}
.figure span{color:var(--dim);font-size:13px}
section{background:var(--card);border:1px solid var(--rule);border-radius:12px;padding:20px;margin:0 0 20px}
.top{display:grid;grid-template-columns:220px minmax(0,1fr);gap:24px;align-items:start;margin:0 0 8px}
.map{width:220px;height:220px;image-rendering:pixelated;border:1px solid var(--rule);border-radius:6px;display:block}
.facts{margin:12px 0 0;font-size:13px;display:grid;gap:4px 28px;
grid-template-columns:repeat(auto-fit,minmax(150px,1fr))}
.facts div{display:flex;justify-content:space-between;border-bottom:1px solid var(--rule)}
.facts dt{color:var(--dim)} .facts dd{margin:0;font-variant-numeric:tabular-nums}
.chart{width:100%;height:auto;display:block;margin:0 0 8px}
details{margin:14px 0 0} summary{cursor:pointer;color:var(--dim)}
pre{overflow:auto;background:var(--paper);border:1px solid var(--rule);border-radius:8px;padding:12px;font-size:12.5px}
.key{font-size:13px;color:var(--dim);margin:8px 0 0}
.key i{display:inline-block;width:10px;height:10px;border-radius:2px;margin:0 5px 0 12px}
@media(max-width:760px){.top{grid-template-columns:1fr}}
"""

TABLE_STYLE = """
.cmask-scroll{overflow-x:auto}
.cmask-table{border-collapse:collapse;font-size:13px;white-space:nowrap;font-variant-numeric:tabular-nums;width:100%}
.cmask-table caption{text-align:left;padding:10px 0 6px;color:inherit}
.cmask-table th,.cmask-table td{padding:4px 10px;text-align:right;border-bottom:1px solid var(--rule,#d9dde3)}
.cmask-table th:first-child,.cmask-table td:first-child,.cmask-notes td:last-child{text-align:left}
.cmask-notes td:last-child{white-space:normal;min-width:160px}
.cmask-notes td:nth-last-child(3){white-space:normal;min-width:150px}
.cmask-remark,.cmask-machine{font-size:12.5px;opacity:.75;margin:2px 0}
"""


def page(report: Report, code: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """The report as a whole HTML document.

    Args:
        code: by case name: exported source by target, shown folded under the case.
    """
    css = (
        f":root{{{LIGHT};color-scheme:light dark}}@media(prefers-color-scheme:dark){{:root{{{DARK}}}}}"
        + PAGE_STYLE
        + TABLE_STYLE
        + _chart_style()
    )
    parts = [
        "<h1>cmask_lab report</h1>",
        f"<p class='lead'>{escape(tables.machine(report))}</p>",
        _headline(report),
        *(_summary(report, direction) for direction in ("forward", "backward")),
        *(_case(report, case, (code or {}).get(case.name, {})) for case in report.cases),
    ]
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'><title>cmask_lab report</title>"
        f"<style>{css}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def fragment(report: Report, charts: bool = True) -> str:
    """What stands in a notebook's output: tables, and pictures if wanted."""
    drawn = [picture.throughput_svg(report, d) for d in ("forward", "backward")] if charts else []
    return f"<style>{TABLE_STYLE}</style>{tables.html(report)}{''.join(drawn)}"


def _headline(report: Report) -> str:
    """One number a baseline: the geometric mean of how many times faster ours is, over masks and directions.

    A comparison that was spoiled, or had too few rounds, makes no headline.
    """
    comparisons = [
        comparison
        for case in report.cases
        for direction in case.directions
        for comparison in case.comparisons(direction, baselines_only=True)
    ]
    trusted = [c for c in comparisons if not c.doubt]
    found: dict[str, list[Comparison]] = {}
    for comparison in trusted:
        found.setdefault(comparison.baseline, []).append(comparison)
    cards = [_card(name, of_one) for name, of_one in found.items()]
    left_out = len(comparisons) - len(trusted)
    warning = (
        f"<p style='color:var(--warn)'>{left_out} of {len(comparisons)} comparisons count for no headline: spoiled, or "
        "too few rounds; see below.</p>"
        if left_out
        else ""
    )
    return f"<div class='figures'>{''.join(cards)}</div>{warning}"


def _card(baseline: str, comparisons: list[Comparison]) -> str:
    ratios = [comparison.ratio.median for comparison in comparisons]
    mean = f"{exp(sum(map(log, ratios)) / len(ratios)):.2f}×"
    undecided = sum(comparison.verdict == CLOSE for comparison in comparisons)
    said = f"geometric mean of {len(ratios)}" if len(ratios) > 1 else "one mask"
    if undecided == len(ratios):
        mean, said = CLOSE, f"{said}, {mean}"
    elif undecided:
        said += f", {undecided} too close to call"
    return f"<div class='figure'><b>{mean}</b><span>against {escape(baseline)}, {said}</span></div>"


def _summary(report: Report, direction: str) -> str:
    if not any(direction in case.directions for case in report.cases):
        return ""
    table = tables.summary_html(report, direction, f"<b>All masks, {direction}</b>: how many times faster ours is")
    return f"<section>{table}</section>" if table else ""


def _case(report: Report, case: Case, code: Mapping[str, str]) -> str:
    alone = Report(report.device, report.versions, report.created, (case,))
    charts = "".join(picture.throughput_svg(alone, d, standalone=False) for d in case.directions)
    each = "".join(tables.case_html(case, d, f"<b>{d}</b>{escape(tables.floor(case, d))}") for d in case.directions)
    listings = "".join(
        f"<details><summary>{escape(target)}</summary><pre>{escape(source)}</pre></details>"
        for target, source in code.items()
    )
    return (
        f"<section id='{escape(case.name)}'><h2>{escape(case.title)}</h2><div class='top'><div>{_map(case)}</div>"
        f"<div>{charts}{_facts(case)}</div></div>{each}{listings}</section>"
    )


def _map(case: Case) -> str:
    if not case.density_map:
        return ""
    address = picture.data_uri(picture.tile_map_png(case.density_map))
    return (
        f"<img class='map' alt='Tile map: queries down, keys across' src='{address}'>"
        "<p class='key'><i style='background:#2d6fdb;margin-left:0'></i>full"
        "<i style='background:#e2922e'></i>partial</p>"
    )


def _facts(case: Case) -> str:
    stats = case.stats
    facts = {
        "density": f"{stats['density']:.4g}",
        "tile": f"{case.tile[0]} × {case.tile[1]}",
        "full tiles": f"{stats['full_tiles']:,}",
        "partial tiles": f"{stats['partial_tiles']:,}",
        "empty tiles": f"{stats['empty_tiles']:,}",
        "patterns": f"{stats['patterns']:,}",
        "visited / visible": f"{stats['waste']:.2f}",
        "descriptor": f"{stats['descriptor_bytes'] / 1024:.1f} KiB",
        "compile": f"{stats['compile_ms']:.1f} ms",
    }
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())
    return f"<dl class='facts'>{rows}</dl>"


def _chart_style() -> str:
    """The charts take the page's colours; only the bars have their own."""
    return picture.STYLE + picture.style(False) + f"@media(prefers-color-scheme:dark){{{picture.style(True)}}}"
