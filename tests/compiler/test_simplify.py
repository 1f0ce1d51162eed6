"""Intervals back to regions: the same cells always, and short where there is something to recognise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cmask_lab as cm
from cmask_lab.compiler.compose import MOST_PARTS, box_sizes
from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.compiler.simplify import simplify, size
from cmask_lab.compiler.strands import strands
from cmask_lab.masks import gallery
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.tables import from_table
from tests.masks.gallery.cases import all_cases, views
from tests.masks.samples import masks
from tests.masks.samples import views as any_view


def without_words(mask: Mask, q_len: int, kv_len: int | None = None) -> Mask:
    """The mask as bare intervals: what an importer has."""
    return from_table(mask.intervals(q_len, kv_len))


RECOVERED = [
    (cm.full(), 7, 9),
    (cm.empty(), 5, 5),
    (cm.causal(), 33, None),
    (cm.anticausal(), 33, None),
    (cm.window(4), 33, None),
    (cm.window(3, 5), 33, None),
    (cm.window(None, 5), 33, None),
    (cm.band(-9, -2), 33, None),
    (cm.band(None, 12), 9, 20),
    (cm.prefix(6), 9, 20),
    (cm.suffix(6), 9, 20),
    (cm.prefix(6) | cm.causal(), 20, None),
    (cm.sink(2) | cm.window(4), 30, None),
    (cm.prefix(2) | cm.window(4), 30, None),
    (cm.rect(q=(3, 9), k=(2, 11)), 16, 16),
    (cm.causal() & cm.rect(q=(3, 12)), 16, 16),
    (cm.strided(3, 1), 20, None),
    (cm.strided(4) & cm.window(12), 40, None),
    (cm.documents([3, 8, 1, 6]), 18, None),
    (cm.documents([3, 8, 1, 6]) & cm.causal(), 18, None),
    (cm.documents([9, 8, 1, 6]) & cm.window(2, 1), 24, None),
    (cm.documents([3, 8]) & cm.causal(), 16, None),
    (cm.causal() & (cm.prefix(6) | cm.documents([6, 3, 4, 2])), 15, None),
    (cm.prefix(6) | cm.documents([6, 3, 4, 2]), 15, None),
    (cm.causal() | cm.documents([4, 4, 4]), 12, None),
    (cm.causal() | cm.rect(q=(4, 9), k=(4, 9)), 20, None),
    (cm.global_tokens([(0, 3)]) | cm.window(2, 2), 30, None),
    (cm.grid(9, 11).disk(3), 99, None),
    (cm.grid(9, 11).disk(6), 99, None),
    (cm.grid(9, 11).box(2, 3), 99, None),
    (cm.grid(9, 11).neighborhood((3, 5)), 99, None),
    (cm.grid(9, 11).neighborhood((3, 5), causal=(True, False)), 99, None),
    (cm.grid(9, 11).axial(), 99, None),
    (cm.grid(4, 6, 5).box(1, 2, 1), 120, None),
    (cm.grid(4, 6, 5).disk(3), 120, None),
    (cm.grid(5, 6, 5).neighborhood((3, 3, 3)), 150, None),
    (cm.tiles(["101", "010", "111"], 8), 24, None),
]


@pytest.mark.parametrize(("mask", "q_len", "kv_len"), RECOVERED, ids=lambda value: repr(value)[:60])
def test_what_is_drawn_with_a_few_words_comes_back(mask: Mask, q_len: int, kv_len: int | None) -> None:
    found = simplify(without_words(mask, q_len, kv_len), q_len, kv_len)
    assert found.intervals(q_len, kv_len) == mask.intervals(q_len, kv_len)
    assert size(found) <= size(mask)


@pytest.mark.parametrize(
    ("mask", "q_len", "expected"),
    [
        (cm.causal(), 40, "cm.causal()"),
        (cm.documents([5, 7, 9]) & cm.causal(), 21, "cm.documents([5, 7, 9]) & cm.causal()"),
        (cm.grid(8, 12).disk(4), 96, "cm.grid(8, 12).disk(4)"),
        (
            gallery.get("clear", text=5, height=8, width=12, radius=3),
            101,
            "cm.global_tokens([(0, 5)]) | cm.grid(8, 12).disk(3).at(q=(5, 101), k=(5, 101))",
        ),
        (
            gallery.get("shared_prompts", groups=[[6, 3, 4], [5, 2, 2, 2]]),
            24,
            "cm.repeat([13, 11], [cm.causal() & (cm.prefix(6) | cm.documents([6, 3, 4])), "
            "cm.causal() & (cm.prefix(5) | cm.documents([5, 2, 2, 2]))])",
        ),
        (
            gallery.get("block_causal_video", frames=4, frame=6, chunk=2),
            24,
            "cm.causal() | cm.documents([12, 12])",
        ),
        (
            gallery.get("eagle3_training", length=12, steps=3),
            12,
            "cm.causal().at(q=(0, 12), k=(0, 12)) | cm.strided(12, 0).at(q=(0, 12), k=(12, 36))",
        ),
    ],
)
def test_the_words_are_the_expected_ones(mask: Mask, q_len: int, expected: str) -> None:
    keys = mask.extent[1] or q_len
    assert repr(simplify(without_words(mask, q_len, keys), q_len, keys)) == expected


@given(masks(), any_view())
@settings(max_examples=60)
def test_any_table_keeps_its_cells(mask: Mask, view: tuple[int, int, int]) -> None:
    q_len, kv_len, q_start = view
    table = mask.intervals(q_len, kv_len, q_start)
    found = simplify(table, q_start=q_start)
    assert found.intervals(q_len, kv_len, q_start) == table


@given(masks(), any_view())
@settings(max_examples=30)
def test_a_mask_never_gets_longer(mask: Mask, view: tuple[int, int, int]) -> None:
    q_len, kv_len, q_start = view
    found = simplify(mask, q_len, kv_len, q_start=q_start)
    assert size(found) <= size(mask)
    assert found.intervals(q_len, kv_len, q_start) == mask.intervals(q_len, kv_len, q_start)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.02, 0.5, 0.95]))
@settings(max_examples=30)
def test_noise_stays_what_it_is(seed: int, q_len: int, kv_len: int, density: float) -> None:
    dense = np.random.default_rng(seed).random((q_len, kv_len)) < density
    assert np.array_equal(simplify(cm.from_dense(dense), q_len, kv_len).to_dense(q_len, kv_len), dense)


@pytest.mark.parametrize("name", gallery.names())
def test_every_mask_of_the_gallery_keeps_its_cells(name: str) -> None:
    for params in all_cases()[name][::7]:
        mask = gallery.get(name, **params)
        q_len, kv_len, q_start = views(mask)[0]
        table = mask.intervals(q_len, kv_len, q_start)
        assert simplify(table, q_start=q_start).intervals(q_len, kv_len, q_start) == table


def test_a_few_wrong_cells_are_named() -> None:
    dense = cm.causal().to_dense(200)
    dense[3, 50] = dense[120, 199] = True
    dense[77, 12:15] = False
    found = simplify(cm.from_dense(dense))
    assert np.array_equal(found.to_dense(200), dense)
    assert size(found) < 400
    assert "causal" in repr(found)


def test_what_has_no_words_is_the_rest() -> None:
    """Many long rectangles and some noise: the rectangles have names, the noise is explicit."""
    generator = np.random.default_rng(0)
    dense = generator.random((300, 300)) < 0.004
    for n in range(30):
        dense[10 * n : 10 * n + 8, 5 * n : 5 * n + 100] = True
    found = simplify(cm.from_dense(dense))
    assert np.array_equal(found.to_dense(300), dense)
    assert size(found) < size(cm.from_dense(dense))
    assert repr(found).count("cm.rect") <= MOST_PARTS
    assert "named('the rest')" in repr(found)


def test_one_mask_for_each_head_and_batch_entry() -> None:
    bare = cm.per_batch([cm.per_head([without_words(cm.causal(), 9), without_words(cm.window(2), 9)])] * 2)
    found = simplify(bare, 9)
    assert repr(found) == f"cm.per_batch([{', '.join(['cm.per_head([cm.causal(), cm.window(2, 0)])'] * 2)}])"


def test_rows_of_a_decoding_step() -> None:
    table = cm.window(5).intervals(3, 40, 37)
    assert repr(simplify(table, q_start=37)) == "cm.window(5, 0)"


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0)])
def test_nothing(shape: tuple[int, int]) -> None:
    assert simplify(IntervalTable.empty(*shape)) == cm.empty()


def test_long_masks_are_described_quickly() -> None:
    lengths = np.random.default_rng(1).integers(100, 1000, 400)
    table = (cm.documents(lengths) & cm.causal()).intervals(int(lengths.sum()))
    assert simplify(table) == cm.documents(lengths) & cm.causal()
    table = gallery.get("clear", text=128, height=84, width=96, radius=8).intervals(8192)
    disk = cm.grid(84, 96).disk(8).at(q=(128, 8192), k=(128, 8192))
    assert simplify(table) == cm.global_tokens([(0, 128)]) | disk


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((cm.causal(),), ValueError, "the mask has no end; pass the q_len"),
        (("causal", 8), TypeError, "got str; give a mask or an IntervalTable"),
        ((IntervalTable.full(2, 3), 4), ValueError, "the table has 2 rows of 3 keys"),
        ((cm.documents([4]), 3, 3), ValueError, "made for 4"),
    ],
)
def test_wrong_arguments(arguments: tuple, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        simplify(*arguments)


def test_strands_of_a_square_in_a_triangle() -> None:
    mask = cm.causal() | cm.rect(q=(4, 9), k=(4, 9))
    parts = strands(mask.intervals(20))
    assert parts.rows.tolist() == [4, 5, 11]
    union = parts.region(0) | parts.region(1) | parts.region(2)
    assert union.intervals(20) == mask.intervals(20)


@given(masks(), any_view())
@settings(max_examples=40)
def test_strands_cover_every_interval_once(mask: Mask, view: tuple[int, int, int]) -> None:
    q_len, kv_len, q_start = view
    table = mask.intervals(q_len, kv_len, q_start)
    parts = strands(table)
    assert int(parts.rows.sum()) == table.count
    pieces = [parts.region(number, q_start).intervals(q_len, kv_len, q_start) for number in range(len(parts))]
    assert sum(piece.visible_pairs for piece in pieces) == table.visible_pairs
    union = IntervalTable.empty(q_len, kv_len)
    for piece in pieces:
        union = union | piece
    assert union == table


def test_box_sizes() -> None:
    table = (cm.documents([3, 2]) & cm.causal()).intervals(5)
    assert box_sizes(table) == [3, 2]
    assert box_sizes(cm.causal().intervals(5)) == [5]
    padded = cm.documents(ids=[0, 0, -1, -1, -1, 1, 1, -1]).intervals(8)
    assert box_sizes(padded) == [2, 3, 2]
