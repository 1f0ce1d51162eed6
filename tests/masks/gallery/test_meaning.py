"""Every entry shows exactly what its definition says, at every size, and no more intervals than it promises."""

from __future__ import annotations

import numpy as np
import pytest

import cmask_lab.masks as cm
from cmask_lab.masks import gallery
from tests.masks.gallery.cases import CASES, SEEDED, all_cases, views
from tests.masks.gallery.predicates import MEANING, hstu_distances


def cell_by_cell(name: str, params: dict, q_len: int, kv_len: int, q_start: int) -> np.ndarray:
    meaning = MEANING[name]
    rows = range(q_start, q_start + q_len)
    return np.array([[bool(meaning(i, j, **params)) for j in range(kv_len)] for i in rows], bool)


def test_every_entry_is_checked() -> None:
    assert set(CASES) | set(SEEDED) == set(gallery.names())
    assert set(CASES) == set(MEANING)


@pytest.mark.parametrize("name", CASES)
def test_cells(name: str) -> None:
    for params in CASES[name]:
        mask = gallery.get(name, **params)
        for view in views(mask):
            shown = mask.to_dense(*view)
            wrong = np.argwhere(shown != cell_by_cell(name, params, *view))
            assert not len(wrong), f"{params}, {view}: {len(wrong)} cells, the first at {wrong[0]}"


@pytest.mark.parametrize("name", gallery.names())
def test_intervals_per_row_stay_below_a_bound_that_is_reached(name: str) -> None:
    reached = False
    for params in all_cases()[name]:
        mask = gallery.get(name, **params)
        bound = gallery.entry(name).intervals_per_row(**params)
        most = max(int(np.diff(mask.intervals(*view).row_ptr).max(initial=0)) for view in views(mask))
        assert most <= bound, params
        reached |= most == bound
    assert reached


@pytest.mark.parametrize("name", gallery.names())
def test_defaults_and_specs_round_trip(name: str) -> None:
    mask = gallery.get(name)
    assert cm.from_spec(mask.spec()) == mask
    queries, keys = mask.extent
    table = mask.intervals(queries or 700, keys or 700)
    assert table.visible_pairs > 0
    assert int(np.diff(table.row_ptr).max()) <= gallery.entry(name).intervals_per_row()


def test_hstu_agrees_with_distances_of_positions() -> None:
    for params in CASES["hstu"]:
        length, contextual, targets = (params[key] for key in ("length", "contextual", "targets"))
        if params["target_group_size"] > 1 or length - targets < contextual:
            continue
        others = {key: params[key] for key in ("window", "full_tail")}
        expected = [
            [hstu_distances(i, j, length, contextual, targets, **others) for j in range(length)] for i in range(length)
        ]
        assert np.array_equal(gallery.get("hstu", **params).to_dense(length), expected), params


def test_natten_on_six_by_four_sees_nine_everywhere() -> None:
    mask = gallery.get("natten_2d", shape=[4, 6], kernel=[3])
    assert (mask.to_dense(24).sum(axis=1) == 9).all()


def test_random_tiles_have_their_density() -> None:
    for params in SEEDED["random_tiles"]:
        length, tile = params["length"], params["tile"]
        cells = gallery.get("random_tiles", **params).to_dense(length)
        causal = np.tril(np.ones((length, length), bool))
        if params["causal"]:
            assert not (cells & ~causal).any()
        side = -(-length // tile)
        shown = np.add.reduceat(np.add.reduceat(cells, range(0, length, tile), 0, int), range(0, length, tile), 1) > 0
        assert shown[np.arange(side), np.arange(side)].all()
        total = side * (side + 1) // 2 if params["causal"] else side * side
        assert shown.sum() == max(round(params["density"] * total), side)
        whole = np.kron(shown, np.ones((tile, tile), bool))[:length, :length]
        assert np.array_equal(cells, whole & causal if params["causal"] else whole)


def test_bigbird_has_its_random_tiles() -> None:
    for params in SEEDED["bigbird"]:
        length, tile = params["length"], params["tile"]
        cells = gallery.get("bigbird", **params).to_dense(length)
        side = -(-length // tile)
        shown = cells[::tile, ::tile]
        assert np.array_equal(cells, np.kron(shown, np.ones((tile, tile), bool))[:length, :length])
        number = np.arange(side)
        fixed = np.abs(number[:, None] - number) <= params["window"] // 2
        fixed |= (number < params["globals"])[:, None] | (number < params["globals"])
        assert shown[fixed].all()
        free = (~fixed).sum(axis=1)
        assert ((shown & ~fixed).sum(axis=1) == np.minimum(free, params["random"])).all()


def test_random_eviction_never_brings_a_key_back() -> None:
    for params in SEEDED["random_eviction"]:
        length, recent = params["length"], params["recent"]
        cells = gallery.get("random_eviction", **params).to_dense(length)
        for key in range(length):
            seen = np.flatnonzero(cells[:, key])
            assert seen[0] == key
            assert np.array_equal(seen, np.arange(key, seen[-1] + 1))
            assert seen[-1] + 1 >= min(key + recent, length)


@pytest.mark.parametrize("name", SEEDED)
def test_seeds_choose(name: str) -> None:
    tables = [gallery.get(name, length=2000, seed=seed).intervals(2000) for seed in (0, 0, 1)]
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]
