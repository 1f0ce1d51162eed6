"""Reports as data, tables, pictures and pages, made from times whose meaning is known."""

from __future__ import annotations

import json
import re
import struct
import zlib
from contextlib import suppress
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import cmask_lab as cm
from cmask_lab.bench import figure, html, picture, tables
from cmask_lab.bench.device import Conditions
from cmask_lab.bench.flops import Rates
from cmask_lab.bench.report import Case, Check, Entry, Loop, Report, recorded_names

STEADY = Conditions(True, sm_clock_mhz=(1980, 1980), power_w=(600.0, 650.0))


def entry(contender: str, base_ms: float, direction: str = "forward", **changes) -> Entry:
    samples = tuple(base_ms * (1 + 0.01 * ((i * 7) % 5 - 2)) for i in range(20))
    check = Check({"out": 1e-3}, {"out": 3e-3}, 512)
    made = Entry(contender, direction, "ok", "", "a kernel", None, 2.0, 30.0, samples, 0.05, 4_000_000, check)
    return replace(made, **changes)


def case(name: str = "causal", conditions: Conditions = STEADY, **changes) -> Case:
    absent = Entry("fa4", "forward", "absent", "can't express <this> mask")
    wrong = Entry("flex-triton", "forward", "wrong", "query 3 does not see its keys")
    made = Case(
        name=name,
        title=f"{name} mask",
        mask=cm.causal().spec(),
        batch=1,
        heads=2,
        kv_heads=2,
        head_dim=64,
        q_len=1024,
        kv_len=1024,
        dtype="bfloat16",
        visible_pairs=2 * 524_800,
        stats={"density": 0.5, "full_tiles": 28, "partial_tiles": 8, "empty_tiles": 28, "patterns": 1, "waste": 1.12}
        | {"descriptor_bytes": 2048, "compile_ms": 1.5},
        tile=(128, 128),
        density_map=((51, 0), (100, 51)),
        rates=Rates(700.0, 4000.0),
        ours=("cmask", "cmask+silu"),
        entries=(entry("cmask", 1.0), entry("cmask+silu", 0.9), entry("flex-fa4", 1.5), absent, wrong),
        loops=(Loop("forward", 20, 3, 210.0, "spread below 0.3%", 4, conditions),),
    )
    return replace(made, **changes)


def report(*cases: Case) -> Report:
    about = {"type": "cuda", "name": "NVIDIA H200"}
    return Report(about, {"torch": "2.11.0", "triton": "3.6.0"}, "2026-12-01T00:00:00+00:00", cases or (case(),))


def test_a_report_is_json_and_back() -> None:
    text = json.dumps(report().to_dict(), allow_nan=False)
    assert Report.from_dict(json.loads(text)) == report()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cmask_report": 99}, "version 99 is not known"),
        ({"surprise": 1}, "Report has no field 'surprise'"),
    ],
)
def test_an_unknown_version_or_field_is_named(change: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Report.from_dict(report().to_dict() | change)


@pytest.mark.parametrize("other", [[], {}, None, "report", {"cmask": 1}])
def test_what_is_no_report_is_named(other: object) -> None:
    with pytest.raises(ValueError, match="report: this is none"):
        Report.from_dict(other)  # type: ignore[arg-type]


def _places(value: object, path: tuple = ()) -> list[tuple]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, each in inner for place in _places(each, (*path, key))]


def test_a_report_with_any_part_taken_out_or_replaced_is_an_error_or_a_report() -> None:
    whole = json.dumps(report().to_dict())
    for place in _places(json.loads(whole)):
        for replacement in ("taken out", 7, None, [], {}, "text"):
            kept = json.loads(whole)
            inner = kept
            for key in place[:-1]:
                inner = inner[key]
            if replacement == "taken out":
                del inner[place[-1]]
            else:
                inner[place[-1]] = replacement
            with suppress(ValueError):
                assert isinstance(Report.from_dict(kept), Report)


def test_a_report_loads_without_pytorch(tmp_path: Path) -> None:
    import subprocess
    import sys

    path = report().save(tmp_path / "r.json")
    code = (
        "import sys; from cmask_lab.bench import Report; r = Report.load(sys.argv[1]); r.table(); r.markdown(); "
        "r._repr_html_(); r.save(sys.argv[1] + '.html'); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or "torch was imported"


def test_the_leading_one_is_compared_with_all_others_round_by_round() -> None:
    found = {c.baseline: c for c in case().comparisons("forward")}
    assert found.keys() == {"cmask+silu", "flex-fa4"}
    assert found["flex-fa4"].ratio.median == pytest.approx(1.5)
    assert found["flex-fa4"].verdict == "faster"
    assert found["cmask+silu"].verdict == "slower"
    assert [c.baseline for c in case().comparisons("forward", "cmask+silu", baselines_only=True)] == ["flex-fa4"]
    assert case().comparisons("backward") == []


def test_if_the_leading_one_is_absent_the_next_one_leads() -> None:
    first = replace(entry("cmask", 1.0), status="failed", samples_ms=())
    found = case(entries=(first, *case().entries[1:])).comparisons("forward")
    assert {(c.ours, c.baseline) for c in found} == {("cmask+silu", "flex-fa4")}


def test_a_disturbed_run_has_no_verdict() -> None:
    disturbed = case(conditions=replace(STEADY, spoiled=("2 other processes on the GPU",)))
    assert {c.verdict for c in disturbed.comparisons("forward")} == {"spoiled"}
    for text in (report(disturbed).table(), report(disturbed).markdown(), report(disturbed)._repr_html_()):
        assert "] spoiled" in text
        assert "SPOILED: 2 other processes on the GPU" in text
        assert "SPOILED: 2 other processes on the GPU. Measure again." in text
    assert "(spoiled)" in picture.throughput_svg(report(disturbed), "forward")


def test_the_floor_is_pairs_at_the_matrix_rate_or_bytes_at_the_bandwidth() -> None:
    assert case().floor_ms("forward") == pytest.approx(4 * 2 * 524_800 * 64 / 700e9)
    slow_memory = case(rates=Rates(1e6, 1.0))
    moved = 4 * 2 * 1024 * 64 * 2 + 4 * 2 * 1024
    assert slow_memory.floor_ms("forward") == pytest.approx(moved / 1e6)
    assert case(rates=None).floor_ms("forward") is None


def test_the_table_says_everything() -> None:
    text = report().table()
    for words in (
        "NVIDIA H200; torch 2.11.0, triton 3.6.0",
        "B=1, H=2, S=1,024, D=64, bfloat16, density 0.500",
        "can't express <this> mask",
        "WRONG: query 3 does not see its keys",
        "1.50× [1.50, 1.50] faster",
        "32.0 ms (2 ms + 30.0 ms)",
        "20 interleaved rounds after 3 of warm-up (210 ms), 4 input sets in turn; stopped: spread below 0.3%.",
        "SM clock 1980 MHz, power 600–650 W.",
    ):
        assert words in text, words
    header = next(line for line in text.splitlines() if "contender" in line)
    assert re.search(r"TFLOP/s\s+on visited\s+× floor\s+cmask is\s+new mask", header)


def test_slow_devices_are_told_in_gflops() -> None:
    slow = case(rates=Rates(0.05, 10.0))
    assert "GFLOP/s" in report(slow).table()
    assert "TFLOP/s" not in report(slow).table()


def test_a_doubtful_ratio_counts_for_no_mean_and_no_headline() -> None:
    sound, brief = case(), case("window")
    brief = replace(brief, entries=tuple(replace(e, samples_ms=e.samples_ms[:2]) for e in brief.entries))
    disturbed = case("hstu", conditions=replace(STEADY, spoiled=("2 other processes on the GPU",)))
    found = report(sound, brief, disturbed)
    _, rows = tables.summary_rows(found, "forward")
    cells = {row[0]: row[-1] for row in rows}
    assert cells["geometric mean"] == "1.50× (of 1)"
    assert not cells["causal mask"].endswith("rounds")
    assert cells["window mask"].endswith("] too few rounds")
    assert cells["hstu mask"].endswith("] spoiled")
    page = html.page(found)
    assert "against flex-fa4, one mask<" in page
    assert "2 of 3 comparisons count for no headline" in page
    assert "class='figure'" not in html.page(report(disturbed))


def test_what_is_too_close_to_call_makes_no_number_in_a_headline() -> None:
    level = case(entries=(entry("cmask", 2.0), entry("flex-fa4", 2.0)))
    page = html.page(report(level))
    assert "<b>too close to call</b><span>against flex-fa4, one mask, 1.00×" in page
    page = html.page(report(level, case("window")))
    assert "geometric mean of 2, 1 too close to call" in page


def test_all_masks_stand_in_one_table_with_their_geometric_mean() -> None:
    second = case("window", entries=(entry("cmask", 1.0), entry("cmask+silu", 2.0), entry("flex-fa4", 6.0)))
    header, rows = tables.summary_rows(report(case(), second), "forward")
    assert header == ["mask", "tokens", "ours, ms", "floor, ms", "flex-fa4"]
    assert [row[0] for row in rows] == [
        "causal mask",
        "causal mask (cmask+silu)",
        "window mask",
        "window mask (cmask+silu)",
        "geometric mean",
    ]
    # The square root of 1.5 · 6; variants are not counted.
    assert rows[-1][-1] == "3.00× (of 2)"


def test_markdown_tables_have_as_many_cells_in_every_row() -> None:
    blocks = re.findall(r"(?:^\|.*\|$\n?)+", report(case(), case("window")).markdown(), re.MULTILINE)
    assert len(blocks) == 3
    for block in blocks:
        assert len({line.count("|") for line in block.strip().splitlines()}) == 1


def test_reports_of_two_runs_are_compared_without_pairs() -> None:
    before = case(entries=(entry("cmask", 1.2), entry("flex-fa4", 1.5)))
    found = report(case()).compare(report(before))
    assert [(d.contender, d.ratio.verdict) for d in found] == [("cmask", "faster"), ("flex-fa4", "too close to call")]
    assert found[0].ratio.median == pytest.approx(1.2)
    assert "was 1.2 ms" in str(found[0])
    assert report(case(q_len=2048)).compare(report(case())) == []


def test_recorded_reports_load() -> None:
    for name in recorded_names():
        assert Report.recorded(name).cases, name
    with pytest.raises(ValueError, match="'nobody' is not one of"):
        Report.recorded("nobody")


def test_a_picture_is_svg_that_follows_the_reader() -> None:
    drawn = picture.throughput_svg(report(case(rates=Rates(0.5, 4000.0))), "forward")
    root = ElementTree.fromstring(drawn)
    bars = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if "c-" in rect.get("class", "")]
    widths = [float(bar.get("width", 0)) for bar in bars]
    assert [bar.get("class") for bar in bars] == ["c-cmask", "c-cmask", "c-flex-fa4"]
    assert widths[0] / widths[2] == pytest.approx(1.5, abs=0.01), (
        "bars are rates: 1.5 times the time, 1.5 times shorter"
    )
    assert "prefers-color-scheme:dark" in drawn
    assert picture.throughput_svg(report(), "backward") == ""


def test_a_tile_map_is_a_png() -> None:
    png = picture.tile_map_png(((100, 0), (30, 100)), scale=2)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (4, 4)
    length = struct.unpack(">I", png[33:37])[0]
    rows = zlib.decompress(png[41 : 41 + length])
    assert len(rows) == 4 * (1 + 4 * 4), "a filter byte and four pixels of four bytes in each row"
    assert rows[1:5] == rows[5:9] == bytes((45, 111, 219, 255))
    assert rows[9:13] == bytes(4)


class _Outside(HTMLParser):
    """Collects whatever a page would load from elsewhere, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img", "br", "i"):
            self.open.append(tag)
        self.loaded += [v for k, v in attrs if k in ("src", "href") and v and not v.startswith("data:")]

    def handle_endtag(self, tag: str) -> None:
        if tag != "i":
            assert self.open.pop() == tag


def test_the_page_needs_no_network_and_no_script() -> None:
    page = html.page(report(case(), case("window")), {"causal": {"python": "cm.causal() # <b>"}})
    reader = _Outside()
    reader.feed(page)
    assert reader.loaded == []
    assert reader.open == []
    assert "script" not in reader.tags
    assert {"svg", "img", "table", "details"} <= set(reader.tags)
    assert "@import" not in page
    assert "url(" not in page
    assert "cm.causal() # &lt;b&gt;" in page
    assert "can&#x27;t express &lt;this&gt; mask" in page
    assert "1.50×" in page


def test_the_plotly_figure_shows_every_contender() -> None:
    made = figure.throughput(report())
    bars = {trace.name: trace for trace in made.data if trace.type == "bar"}
    assert bars.keys() == {"cmask", "cmask+silu", "flex-fa4"}
    assert bars["cmask"].y[0] == pytest.approx(case().tflops(case().entries[0]))
    floor = next(trace for trace in made.data if trace.type == "scatter")
    assert floor.y[0] == pytest.approx(700.0)
    assert "faster" in bars["flex-fa4"].customdata[0]


def test_pictures_are_saved_by_the_ending_of_their_name(tmp_path: Path) -> None:
    both = case(entries=(*case().entries, entry("cmask", 2.0, "backward")))
    names = figure.save(report(both), tmp_path / "p.svg")
    assert [n.name for n in names] == ["p-forward.svg", "p-backward.svg"]
    assert all(n.read_text().startswith("<svg") for n in names)
    (page,) = figure.save(report(), tmp_path / "p.html")
    assert "cdn.plot.ly" not in page.read_text().split("<body>")[0]
    assert page.stat().st_size > 3_000_000, "Plotly itself is inside"
    with pytest.raises(ValueError, match=r"'p.png' ends in '.png'"):
        figure.save(report(), tmp_path / "p.png")


def test_a_notebook_shows_tables_and_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    import IPython.display

    shown: list[object] = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    report()._ipython_display_()
    assert "cmask-table" in shown[0].data  # type: ignore[attr-defined]
    assert type(shown[1]).__name__ == "Figure"
    monkeypatch.setitem(__import__("sys").modules, "plotly", None)
    report()._ipython_display_()
    assert "<svg" in shown[2].data  # type: ignore[attr-defined]
