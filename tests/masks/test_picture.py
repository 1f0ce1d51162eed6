"""The notebook's picture: its cells are the mask's densities, its text says the lengths, nothing is fetched."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import cmask_lab.masks as cm
from cmask_lab.masks import Mask
from cmask_lab.masks.picture import CELLS, INTERVALS_LIMIT, SHADES, coverage, own_lengths
from tests.masks.test_regions import CASES

SVG = "{http://www.w3.org/2000/svg}"


def painted(svg: str) -> np.ndarray:
    """The opacity of every cell, read back from the drawing."""
    root = ElementTree.fromstring(svg)
    columns, rows = (int(side) for side in root.attrib["viewBox"].split()[2:])
    cells = np.zeros((rows, columns))
    for path in root.iter(f"{SVG}path"):
        pieces = re.findall(r"M(\d+) (\d+)h(\d+)v1h-(\d+)z", path.attrib["d"])
        assert "".join("M{} {}h{}v1h-{}z".format(*piece) for piece in pieces) == path.attrib["d"]
        for x, y, width, back in pieces:
            assert width == back
            cells[int(y), int(x) : int(x) + int(width)] += float(path.attrib["fill-opacity"])
    return cells


@pytest.mark.parametrize("name", CASES)
def test_a_small_mask_is_drawn_cell_by_cell(name: str) -> None:
    mask = CASES[name][0]
    picture = mask.picture(24, 29)
    assert np.array_equal(painted(picture.svg), mask.to_dense(24, 29).astype(float))
    assert picture.density == mask.to_dense(24, 29).mean()


@pytest.mark.parametrize(("q_len", "kv_len"), [(64, 64), (65, 200), (300, 7), (1, 1000), (129, 129)])
def test_a_large_mask_is_drawn_by_share(q_len: int, kv_len: int) -> None:
    mask = cm.window(40) | cm.strided(5)
    dense = mask.to_dense(q_len, kv_len)
    tall, wide = -(-q_len // CELLS), -(-kv_len // CELLS)
    expected = np.array(
        [
            [dense[row : row + tall, column : column + wide].mean() for column in range(0, kv_len, wide)]
            for row in range(0, q_len, tall)
        ]
    )
    assert np.allclose(coverage(mask.intervals(q_len, kv_len)), expected, rtol=0, atol=1e-12)
    drawn = painted(mask.picture(q_len, kv_len).svg)
    assert drawn.shape == expected.shape
    assert (drawn >= expected - 1e-12).all()
    assert (drawn - expected < 1 / SHADES).all()


def test_html_says_name_formula_lengths_and_density() -> None:
    mask = (cm.causal() & cm.documents([3, 5])).named("<b>&")
    html = mask._repr_html_()
    assert "&lt;b&gt;&amp;" in html
    assert "<code>j ≤ i ∩ (doc(i) = doc(j), lengths [3, 5])</code>" in html
    assert "8 queries × 8 keys · density 32.812% · 21 visible pairs" in html
    assert "1 queries from 3 on" not in html
    assert "2 queries from 3 on × 8 keys" in mask.picture(2, 8, 3)._repr_html_()
    ElementTree.fromstring(html.replace("<br>", "<br/>"))  # well-formed


def test_colours_come_from_the_theme() -> None:
    svg = cm.causal().picture(4).svg
    assert "currentColor" in svg
    assert "var(--jp-brand-color1" in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")  # nothing is fetched


@pytest.mark.parametrize(
    ("mask", "lengths"),
    [
        (cm.causal(), (64, 64)),
        (cm.window(1023), (4092, 4092)),
        (cm.causal() & cm.prefix(100), (400, 400)),
        (cm.rect(q=(3, 50)), (50, 200)),
        (cm.documents([5, 4]), (9, 9)),
        (cm.grid(4, 8).disk(2).at(q=(0, 32), k=(8, 40)), (32, 40)),
        (cm.band(-300, 1), (1200, 1200)),
    ],
)
def test_a_mask_has_a_length_of_its_own(mask: Mask, lengths: tuple[int, int]) -> None:
    assert own_lengths(mask) == lengths
    assert mask.picture().window[1:] == lengths


def test_empty_planes_are_drawn() -> None:
    for picture in (cm.causal().picture(0), cm.causal().picture(0, 5), cm.causal().picture(5, 0)):
        ElementTree.fromstring(picture.svg)
        assert picture.density == 0


def test_a_mask_of_very_many_intervals_is_not_drawn_unasked() -> None:
    mask = cm.strided(2).at(q=(0, 20_000), k=(0, 20_000))
    assert mask._estimate(mask._window(20_000, None, 0)) > INTERVALS_LIMIT
    picture = mask.picture()
    assert (picture.coverage, picture.density) == (None, None)
    assert "too large to draw unasked; choose a length with .picture(q_len)" in picture._repr_html_()
    assert mask.picture(100, 20_000).density == 0.5


def test_masks_for_heads_are_shown_one_below_the_other() -> None:
    heads = cm.per_head([cm.window(n) for n in range(6)])
    html = heads._repr_html_()
    assert html.count("<svg") == 4
    assert "<p>head 3</p>" in html
    assert "… 2 more" in html
    assert "6 masks, one a head" in html
    assert cm.per_batch([heads, heads])._repr_html_().count("<svg") == 8


def test_long_lists_are_short_in_the_formula() -> None:
    assert cm.documents(range(1, 100)).formula == "doc(i) = doc(j), lengths [1, 2, 3, 4, 5, 6, … 99 in all]"
    assert len(cm.documents(ids=range(10_000))._repr_html_()) < 20_000
