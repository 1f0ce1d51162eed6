"""Tiles against a count of the dense array, tile by tile."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmask_lab.compiler import patterns, tiles
from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.compiler.tiles import query_tile_hulls, row_groups, tile_table

TILES = [(32, 32), (64, 32), (32, 64), (128, 128)]


@st.composite
def dense_masks(draw):
    """Random cells, random whole tiles, or a shifted causal edge: masks with empty, partial and full tiles."""
    q_len, kv_len = draw(st.integers(0, 200)), draw(st.integers(0, 200))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["cells", "tiles", "edge"]))
    if kind == "cells":
        return random.random((q_len, kv_len)) < draw(st.sampled_from([0.0, 0.001, 0.5, 0.999, 1.0]))
    if kind == "tiles":
        coarse = random.random((q_len // 32 + 1, kv_len // 32 + 1)) < 0.6
        return np.kron(coarse, np.ones((32, 32), bool))[:q_len, :kv_len]
    return np.arange(kv_len) <= np.arange(q_len)[:, None] + draw(st.integers(-50, 50))


def counted(dense: np.ndarray, tile: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Visible and existing cells of every tile."""
    shape = [-(-length // side) for length, side in zip(dense.shape, tile, strict=True)]
    visible = np.zeros((shape[0] * tile[0], shape[1] * tile[1]), int)
    existing = np.zeros_like(visible)
    visible[: dense.shape[0], : dense.shape[1]] = dense
    existing[: dense.shape[0], : dense.shape[1]] = 1
    return tuple(a.reshape(shape[0], tile[0], shape[1], tile[1]).sum((1, 3)) for a in (visible, existing))


@pytest.fixture(params=["at once", "in small groups"])
def grouping(request, monkeypatch):
    """Long tables are worked on in groups of query tiles; small groups must not change anything."""
    if request.param == "in small groups":
        for module in (tiles, patterns):
            monkeypatch.setattr(module, "CELLS_AT_ONCE", 700)
    return request.param


@pytest.mark.parametrize("tile", TILES)
def test_classes_and_densities_are_those_of_the_dense_array(tile, grouping):
    @given(dense_masks())
    def check(dense):
        tile_map = tile_table(IntervalTable.from_dense(dense), tile)
        visible, existing = counted(dense, tile)
        assert np.array_equal(tile_map.classes() == tiles.FULL, (visible == existing) & (existing > 0))
        assert np.array_equal(tile_map.classes() == tiles.PARTIAL, (visible > 0) & (visible < existing))
        assert np.allclose(tile_map.density(), visible / np.maximum(existing, 1))
        assert tile_map.full_tiles == ((visible == existing) & (existing > 0)).sum()
        assert tile_map.full_per_row.sum() == tile_map.full_tiles
        assert tile_map.partial_per_row.sum() == tile_map.partial_tiles

    check()


def test_a_part_of_the_map_is_the_map_cut_out():
    dense = np.random.default_rng(0).random((300, 260)) < 0.5
    dense[:128, 64:192] = True
    tile_map = tile_table(IntervalTable.from_dense(dense), (32, 32))
    part = {"q_tiles": (1, 7), "kv_tiles": (3, 8)}
    assert np.array_equal(tile_map.classes(**part), tile_map.classes()[1:7, 3:8])
    assert np.array_equal(tile_map.density(**part), tile_map.density()[1:7, 3:8])


def test_runs_are_as_long_as_they_can_be():
    tile_map = tile_table(IntervalTable.full(64, 320), (32, 32))
    assert tile_map.run_start.tolist() == [0, 0]
    assert tile_map.run_stop.tolist() == [10, 10]
    assert tile_map.partial_tiles == 0


def test_hulls_end_where_the_last_visible_key_does():
    table = IntervalTable.from_row_bounds([0, 40, 0], [0, 65, 0], 96)
    lo, hi = query_tile_hulls(table, 32, 32)
    assert (lo.tolist(), hi.tolist()) == ([1], [3])
    lo, hi = query_tile_hulls(IntervalTable.empty(0, 0), 32, 32)
    assert len(lo) == len(hi) == 0


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 12))
def test_groups_cover_all_rows_in_order_and_stay_within_the_limit(width, limit):
    groups = row_groups(np.array(width, np.int64), limit)
    assert [row for first, last in groups for row in range(first, last)] == list(range(len(width)))
    assert all(sum(width[first:last]) <= limit or last - first == 1 for first, last in groups)
