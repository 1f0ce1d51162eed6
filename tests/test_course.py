"""The drawings and the stepper of the course show what is really there."""

from __future__ import annotations

import re

import numpy as np
import pytest

import cmask_lab as cm
from cmask_lab.course import drawing
from cmask_lab.course.stepper import Walk, steps, visits

MASKS = {
    "causal": cm.causal(),
    "documents": cm.documents([50, 14, 64]) & cm.causal(),
    "sees nothing at first": cm.rect(q=(40, 128)) & cm.window(20),
    "dilated": cm.strided(3),
    "late keys first": cm.rect(k=(70, 75)) | cm.rect(k=(3, 9)),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_the_walk_visits_each_visible_cell_once(mask: cm.Mask) -> None:
    descriptor = cm.compile(mask, 128, tile=32).descriptor
    seen = np.zeros((128, 128), int)
    for row in range(4):
        for visit in visits(descriptor, row):
            seen[row * 32 : row * 32 + 32, visit.kv_tile * 32 : visit.kv_tile * 32 + 32] += visit.visible
    np.testing.assert_array_equal(seen, mask.to_dense(128))


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_the_walk_ends_at_softmax(mask: cm.Mask) -> None:
    generator = np.random.default_rng(0)
    q, k, v = generator.normal(size=(3, 128, 16))
    descriptor = cm.compile(mask, 128, tile=32).descriptor
    visible = mask.to_dense(128)
    weights = np.where(visible, np.exp(q @ k.T / 4), 0.0)
    for tile in range(4):
        rows = slice(tile * 32, tile * 32 + 32)
        walked = steps(q, k, v, descriptor, tile, scale=0.25)
        if not walked:
            assert not visible[rows].any()
            continue
        sees = visible[rows].any(axis=1)
        expected = (weights[rows] @ v)[sees] / weights[rows].sum(axis=1, keepdims=True)[sees]
        np.testing.assert_allclose(
            walked[-1].out[sees] / walked[-1].total[sees, None], expected, rtol=1e-12, atol=1e-14
        )
        assert not walked[-1].out[~sees].any()
        assert all(np.isfinite(step.total).all() for step in walked)


def test_a_walk_shows_one_frame_a_step_and_no_nan() -> None:
    generator = np.random.default_rng(1)
    q, k, v = generator.normal(size=(3, 128, 8))
    walked = steps(q, k, v, cm.compile(MASKS["sees nothing at first"], 128, tile=32).descriptor, 1, scale=0.3)
    html = Walk(walked)._repr_html_()
    assert html.count("class='frame'") == len(walked)
    assert "nan" not in html
    assert "inf" not in html


@pytest.mark.parametrize("q_len", [12, 200])
def test_cells_covers_exactly_the_visible_area(q_len: int) -> None:
    """Summed over the boxes of the path: with cells apart each is a bit smaller than 1, without exactly the runs."""
    mask = cm.documents([5, 7]) & cm.causal() if q_len == 12 else cm.window(17, 4)
    boxes = re.findall(r"M[\d.]+ [\d.]+h([\d.]+)v([\d.]+)h", drawing.cells(mask, q_len).svg.split("<path")[1])
    area = sum(float(width) * float(height) for width, height in boxes)
    scale = 0.88**2 if q_len == 12 else 1.0
    assert area == pytest.approx(scale * mask.intervals(q_len).visible_pairs)


def test_tiles_draws_each_partial_tile() -> None:
    compiled = cm.compile(cm.grid(16, 32).disk(4), 512, tile=32)
    assert drawing.tiles(compiled).svg.count('class="partial"') == compiled.stats.partial_tiles


def test_a_mask_without_a_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="a mask has no size of its own; give q_len"):
        drawing.cells(cm.causal())


def test_names_are_escaped() -> None:
    assert "<b>" not in drawing.layers({"<b>bold</b>": cm.causal()}, 4).svg
    assert "<b>" not in drawing.cells(cm.causal(), 4, caption="<b>bold</b>")._repr_html_()
