"""What an entry says about itself, and what it says to wrong parameters."""

from __future__ import annotations

import inspect
import json
import re

import pytest

import cmask_lab.masks as cm
from cmask_lab.masks import gallery


@pytest.mark.parametrize("name", gallery.names())
def test_an_entry_is_complete(name: str) -> None:
    entry = gallery.entry(name)
    assert entry.name == name
    assert entry.family in gallery.FAMILIES
    assert entry.title
    assert entry.formula
    assert "\n" not in entry.formula
    assert re.search(r"arXiv:\d{4}\.\d{4,5}|github\.com/[\w.-]+/[\w.-]+", entry.source)
    assert entry.url.startswith("https://")
    for parameter in entry.parameters:
        assert parameter.about, parameter.name
        assert parameter.kind in ("int", "float", "bool", "choice", "ints", "pairs", "lists")
        if parameter.kind in ("int", "float"):
            assert parameter.least is not None
            assert parameter.slider is not None
            assert parameter.least <= parameter.default <= parameter.slider
        if parameter.kind == "choice":
            assert parameter.default in parameter.choices


@pytest.mark.parametrize("name", gallery.names())
def test_the_drawing_shows_both_colours(name: str) -> None:
    """That it is right is the doctest's business; here: it is there, rectangular, and not blank."""
    rows = gallery.entry(name).picture.split("\n")
    assert len({len(row) for row in rows}) == 1
    assert set("".join(rows)) == ({"#", " "} if name == "full" else {"#", ".", " "})


@pytest.mark.parametrize("name", gallery.names())
def test_a_description_is_json_that_builds_the_default(name: str) -> None:
    entry = gallery.entry(name)
    description = json.loads(json.dumps(entry.describe()))
    params = {parameter["name"]: parameter["default"] for parameter in description["params"]}
    assert gallery.get(name, **params) == gallery.get(name)
    assert {parameter["kind"] for parameter in description["params"]} <= {"int", "float", "bool", "choice", "text"}
    as_text = {
        parameter["name"]: json.dumps(parameter["default"])
        for parameter in description["params"]
        if parameter["kind"] == "text"
    }
    assert gallery.get(name, **as_text) == gallery.get(name)


def test_families_partition_the_names() -> None:
    by_family = [name for family in gallery.FAMILIES for name in gallery.names(family)]
    assert by_family == gallery.names()
    assert len(set(by_family)) == len(by_family)


def test_an_entry_shows_itself_in_a_notebook() -> None:
    html = gallery.entry("sink_window")._repr_html_()
    assert "https://arxiv.org/abs/2309.17453" in html
    assert "<code>sinks</code>" in html
    assert "W counts keys" in html


def test_functions_are_entries_and_keep_their_signatures() -> None:
    from cmask_lab.masks.gallery.plain import sliding_window

    assert sliding_window(window=5) == cm.window(4)
    assert sliding_window(5) == gallery.get("sliding_window", window=5)
    assert str(inspect.signature(sliding_window)) == "(window: 'int' = 1024) -> 'Mask'"


@pytest.mark.parametrize(
    ("name", "params", "error", "message"),
    [
        ("slidingwindow", {}, ValueError, "no mask is called 'slidingwindow'; did you mean 'sliding_window'"),
        ("zzz", {}, ValueError, "gallery.names\\(\\) lists them"),
        ("sliding_window", {"width": 3}, TypeError, "no parameter is called 'width'; it has window"),
        ("causal", {"window": 3}, TypeError, "it has none"),
        ("sliding_window", {"window": 0}, ValueError, "sliding_window: window is 0; it must be at least 1"),
        ("sliding_window", {"window": 2.5}, TypeError, "sliding_window: window is 2.5; it must be an integer"),
        ("random_tiles", {"density": 1.5}, ValueError, "density is 1.5; it must lie between 0 and 1"),
        ("random_tiles", {"density": "x"}, TypeError, "density is 'x'; it must be a number"),
        ("random_tiles", {"causal": 1}, TypeError, "causal is 1; it must be True or False"),
        ("axial", {"axis": "depth"}, ValueError, "axis is 'depth'; it must be one of 'both', 'row', 'column'"),
        ("documents_full", {"lengths": [2, -1]}, ValueError, "value 1 is -1"),
        ("documents_full", {"lengths": "[2, "}, ValueError, "must be a list of integers"),
        ("documents_full", {"lengths": 7}, TypeError, "must be a list of integers"),
        ("documents_prefix", {"parts": [[3, 2]]}, ValueError, "document 0 is \\[3, 2\\]"),
        ("shared_prompts", {"groups": []}, ValueError, "give at least one list"),
        ("image_in_text", {"images": [(4, 2)]}, ValueError, "needs start <= stop"),
        ("flamingo", {"places": [5, 3]}, ValueError, "place 0 is 5, behind 3"),
        ("bigbird", {"window": 2}, ValueError, "window is 2; it must be odd"),
        ("sparse_fixed", {"stride": 4, "summary": 5}, ValueError, "at most the stride, 4"),
        ("swin_shifted", {"window": 3, "shift": 3}, ValueError, "below the window's side, 3"),
        ("natten_2d", {"shape": [4]}, ValueError, "shape is \\[4\\]; give 2 numbers"),
        ("natten_2d", {"shape": [4, 4], "kernel": [5]}, ValueError, "spans 5 positions of axis y, which has 4"),
        ("sta_2d", {"shape": [5, 4], "tile": [2, 2]}, ValueError, "tiles of 2 must divide it"),
        ("hstu", {"length": 4, "targets": 5}, ValueError, "each must be at most the length"),
        ("hstu_packed", {"lengths": [4, 4], "targets": [1, 1, 1]}, ValueError, "2 lengths and 3 targets"),
        ("eagle3_training", {"length": 4, "valid": 5}, ValueError, "at most the length, 4"),
        ("dflash_training", {"context": 4, "anchors": [5]}, ValueError, "anchor 0 is 5"),
        ("context_parallel", {"ranks": 2, "rank": 2}, ValueError, "rank is 2; it must lie between 0 and 1"),
        ("continuous_batching", {"cached": [1], "new": [1, 1]}, ValueError, "1 caches and 2 new"),
        ("tree_attention", {"parents": [1, 0]}, ValueError, "its own ancestor"),
    ],
)
def test_wrong_parameters(name: str, params: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gallery.get(name, **params)


def test_an_unknown_family() -> None:
    with pytest.raises(ValueError, match="family is 'dense'; it must be one of 'plain'"):
        gallery.names("dense")
