"""The linter finds each of the faults that it knows, on the very rows, and says nothing about what is right."""

from __future__ import annotations

import json

import numpy as np
import pytest

import cmask_lab as cm
from cmask_lab.compiler.check import check
from cmask_lab.compiler.findings import Finding, Findings
from cmask_lab.masks import gallery


def only(findings: Findings, rule: str) -> Finding:
    """The one finding of a rule."""
    (finding,) = findings.by(rule)
    return finding


@pytest.mark.parametrize(
    ("mask", "q_len", "options"),
    [
        (cm.causal(), 4096, {"causal": True}),
        (cm.full(), 4096, {}),
        (cm.window(1023), 4096, {"library": "huggingface", "window": 1024, "causal": True}),
        (cm.documents([1000, 96, 2000]) & cm.causal(), 3096, {"documents": [1000, 96, 2000], "causal": True}),
        (gallery.get("prefix_lm"), 1000, {}),
        (gallery.get("shared_prompt"), 1024, {"causal": True}),
        (cm.causal(), 1, {"causal": True}),
        (cm.causal(), 0, {"causal": True}),
        (cm.grid(24, 32).neighborhood(7), 768, {"grid": (24, 32), "library": "natten", "window": 7}),
    ],
)
def test_what_is_right_is_not_found_fault_with(mask: cm.Mask, q_len: int, options: dict) -> None:
    findings = check(mask, q_len, **options)
    assert [finding for finding in findings if finding.severity != "note"] == []


def test_documents_that_do_not_add_up() -> None:
    findings = check(cm.documents([2, 2, 3]) & cm.causal(), 8)
    finding = only(findings, "documents")
    assert finding.severity == "warning"
    assert finding.ranges == [(7, 8)]
    assert "7 tokens in all, the sequence has 8" in finding.message
    assert only(findings, "empty-rows").ranges == [(7, 8)]


def test_documents_longer_than_the_sequence() -> None:
    finding = only(check(cm.causal(), 6, documents=[2, 2, 3]), "documents")
    assert finding.severity == "error"
    assert "7 tokens in all, the sequence has 6" in finding.message


def test_a_mask_made_for_a_longer_sequence() -> None:
    findings = check(gallery.get("hstu", length=2048), 1024, library="hstu")
    assert [finding.rule for finding in findings] == ["lengths"]
    assert findings[0].severity == "error"
    assert "made for 2048 keys and does not fit kv_len 1024" in findings[0].message
    assert "give it 2048 keys or more" in findings[0].remedy


def test_a_mask_made_for_a_shorter_sequence() -> None:
    finding = only(check(cm.grid(8, 8).disk(3), 80), "lengths")
    assert finding.severity == "warning"
    assert finding.ranges == [(64, 80)]


def test_a_part_that_ends_early_is_no_shorter_mask() -> None:
    assert not check(cm.causal() | cm.rect(q=(0, 64), k=(0, 200)), 4096)


def test_rows_that_see_nothing() -> None:
    mask = cm.causal() - cm.rect(q=(3, 5), k=(0, 9)) - cm.rect(q=(7, 8))
    finding = only(check(mask, 9), "empty-rows")
    assert finding.rows.tolist() == [3, 4, 7]
    assert "3 queries see nothing" in finding.message
    assert finding.place == "rows 3–4, 7"


def test_rows_whose_first_tile_is_empty_for_them() -> None:
    findings = check(cm.window(7), 256)
    rows = np.arange(256)
    late = (np.maximum(rows - 7, 0) // 128 > np.where(rows < 128, 0, 0)) & (rows >= 128)
    assert np.array_equal(only(findings, "first-tile").rows, rows[late])
    assert only(findings, "first-tile").severity == "note"
    assert not check(cm.causal(), 256).by("first-tile")


def test_a_causal_model_that_sees_the_future() -> None:
    finding = only(check(cm.window(5, 1), 20, causal=True), "future")
    assert finding.severity == "error"
    assert finding.ranges == [(0, 19)]
    assert "query 0 sees key 1" in finding.message
    assert not check(cm.window(5, 1), 20).by("future")
    assert only(check(cm.full(), 2, 40, q_start=10, causal=True), "future").ranges == [(10, 12)]


def test_a_leak_across_documents() -> None:
    finding = only(check(cm.window(3), 12, documents=[5, 7]), "leak")
    assert finding.severity == "error"
    assert finding.rows.tolist() == [5, 6, 7]
    assert "query 5 sees key 2" in finding.message
    assert not check(cm.window(3) & cm.documents([5, 7]), 12, documents=[5, 7]).by("leak")


def test_padding_does_not_leak() -> None:
    findings = check(cm.causal(), 9, documents=[5, 2])
    assert only(findings, "documents").severity == "warning"
    assert only(findings, "leak").rows.tolist() == [5, 6, 7, 8]
    within = cm.documents([5, 2]) & cm.causal()
    assert not check(within, 9, documents=[5, 2]).by("leak")


def test_documents_joined_by_or() -> None:
    finding = only(check(cm.documents([4, 4]) | cm.causal(), 8), "leak")
    assert finding.severity == "note"
    assert "&" in finding.remedy


@pytest.mark.parametrize(
    ("library", "right"),
    [
        ("huggingface", 63),
        ("flashmask", 63),
        ("xformers", 63),
        ("flexattention", 64),
        ("flashattention", 64),
        ("jax", 64),
        ("hstu", 64),
    ],
)
def test_windows_off_by_one(library: str, right: int) -> None:
    assert not check(cm.window(right), 512, library=library, window=64).by("window")
    for wrong in (right - 1, right + 1):
        finding = only(check(cm.window(wrong), 512, library=library, window=64), "window")
        assert finding.severity == "error"
        assert finding.remedy == f"use cm.window({right}, 0)"
    assert only(check(cm.window(right + 9), 512, library=library, window=64), "window").severity == "warning"


def test_windows_in_other_words() -> None:
    assert "is 64 in huggingface" in only(check(cm.window(63), 512, library="huggingface"), "window").message
    assert "the mask has none" in only(check(cm.causal(), 512, library="jax", window=9), "window").message
    assert "shows 1025 keys" in only(check(cm.window(1024), 2048), "window").message
    assert not check(cm.window(1023), 2048).by("window")


def test_windows_against_natten() -> None:
    assert "cut off at the border" in only(check(cm.window(3, 3), 99, library="natten"), "window").message
    mask = cm.grid(9, 11).neighborhood(5)
    assert "not NATTEN's kernel_size=7" in only(check(mask, 99, library="natten", window=7), "window").message


def test_height_and_width_swapped() -> None:
    mask = gallery.get("clear", text=16, height=24, width=40, radius=3)
    finding = only(check(mask, 976, grid=(40, 24)), "grid")
    assert finding.severity == "error"
    assert "24 × 40, the tokens stand as 40 × 24: height and width are swapped" in finding.message
    assert not check(mask, 976, grid=(24, 40)).by("grid")
    assert "swapped" not in only(check(mask, 976, grid=(12, 80)), "grid").message


def test_two_grids_that_contradict_each_other() -> None:
    mask = cm.grid(6, 9).box(1) | cm.grid(9, 6).axial()
    assert "look swapped" in only(check(mask, 54), "grid").message
    assert not check(cm.grid(6, 9).box(1) | cm.grid(6, 9).axial(), 54).by("grid")


def test_badly_balanced_work() -> None:
    mask = gallery.get("longformer", reach=128, tokens=[(0, 8)])
    finding = only(check(mask, 32768, heads=4), "balance")
    assert finding.severity == "warning"
    assert finding.ranges == [(0, 128)]
    assert not check(mask, 32768, heads=64).by("balance")
    assert not check(cm.causal(), 32768, heads=4).by("balance")


def test_a_token_order_that_halves_the_tiles() -> None:
    mask = gallery.get("swin", height=32, width=256, window=8)
    finding = only(check(mask, 8192), "order")
    assert finding.severity == "note"
    natural, auto = (cm.compile(mask, 8192, tile=128, order=order).stats for order in ("natural", "auto"))
    now, then = (stats.full_tiles + stats.partial_tiles for stats in (natural, auto))
    assert then <= 0.55 * now
    assert f"{then:,} tiles instead of {now:,}" in finding.message
    assert not check(cm.causal(), 8192).by("order")


def test_one_mask_for_each_head() -> None:
    mask = cm.per_batch([cm.per_head([cm.causal(), cm.full()]), cm.per_head([cm.causal(), cm.causal()])])
    findings = check(mask, 64, causal=True)
    assert [finding.where for finding in findings.by("future")] == ["batch entry 0, head 1"]


def test_the_most_severe_comes_first_and_is_told_in_words() -> None:
    findings = check(cm.window(4), 300, causal=True, documents=[100, 150], library="huggingface")
    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert findings.errors == findings.by("leak")
    text = repr(findings)
    assert text.count("\n") == len(findings) - 1
    assert text.startswith("error leak: ")
    html = findings._repr_html_()
    assert html.count("<tr>") == len(findings) + 1
    assert "&amp;" in html
    assert check(cm.causal(), 64)._repr_html_() == "<p>No findings.</p>"


def test_a_finding_as_json() -> None:
    finding = only(check(cm.causal() - cm.strided(2), 2000), "empty-rows")
    description = json.loads(json.dumps(finding.describe()))
    assert description["rows"] == [[0, 1]]
    assert description["rows_count"] == 1
    many = Finding("x", "note", "m", "r", np.arange(0, 2000, 2)).describe()
    assert len(many["rows"]) == 256
    assert many["rows_count"] == 1000


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("causal", 8), {}, TypeError, "mask is str"),
        ((cm.causal(), 8), {"library": "keras"}, ValueError, "library is 'keras'; it must be one of"),
        ((cm.causal(), 8), {"window": 4}, ValueError, "without the library that counts it"),
        ((cm.causal(), -1), {}, ValueError, "q_len is -1"),
        ((cm.causal(), 8), {"heads": 0}, ValueError, "heads is 0"),
        ((cm.causal(), 8), {"grid": (0, 8)}, ValueError, "grid size is 0"),
        ((cm.causal(), 8), {"documents": [4, -1]}, ValueError, "length 1 is -1"),
    ],
)
def test_arguments_that_make_no_sense(arguments: tuple, options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check(*arguments, **options)


@pytest.mark.parametrize("name", gallery.names())
def test_the_gallery_has_no_errors(name: str) -> None:
    mask = gallery.get(name)
    queries, keys = mask.extent
    assert not check(mask, queries or 700, keys or None).errors
