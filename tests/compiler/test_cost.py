"""The cost model orders what can be measured: more tiles cost more, and a tile size is chosen by predicted cost."""

import numpy as np
import pytest

import cmask_lab as cm
from cmask_lab.compiler.cost import RELATIVE_RATE, cheapest_tiles, predicted_cost, predicted_ms, row_cost
from cmask_lab.compiler.tiles import tile_table


@pytest.mark.parametrize("mask", [cm.causal(), cm.documents([100, 300, 624]), cm.strided(7), cm.window(20)])
def test_the_tile_size_taken_is_the_cheapest_of_all(mask):
    table = mask.intervals(1024)
    (tiles,) = cheapest_tiles([table])
    assert predicted_cost(tiles) == min(predicted_cost(tile_table(table, tile)) for tile in RELATIVE_RATE)


def test_a_partial_tile_costs_more_than_a_full_one():
    full, partial = row_cost(np.array([1, 0]), np.array([0, 1]))
    assert full < partial


def test_a_pass_takes_no_less_than_its_heaviest_query_tile():
    one_long_row, spread = (cm.rect(q=q, k=(0, k)).intervals(32768) for q, k in [((0, 128), 32768), (None, 128)])
    long_ms, spread_ms = (predicted_ms(tile_table(table, (128, 128))) for table in (one_long_row, spread))
    assert one_long_row.visible_pairs == spread.visible_pairs
    assert long_ms > 50 * spread_ms, "one multiprocessor does the one row, all of them the others"


def test_predicted_time_grows_with_heads_once_the_device_is_full():
    tiles = tile_table(cm.full().intervals(16384), (128, 128))
    assert predicted_ms(tiles, heads=32) == pytest.approx(2 * predicted_ms(tiles, heads=16))
