"""Work lists, merged tile rows, patterns and TMA descriptors of the Hopper kernels: what of them runs without a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton has wheels for Linux only")

from cmask_lab.kernels.hopper import BACKEND, schedule
from cmask_lab.kernels.hopper.launch import score_scales, tile_descriptor
from cmask_lab.kernels.hopper.schedule import (
    BACKWARD_TILE,
    FORWARD_TILES,
    LONG_ROWS,
    THREE_CONSUMERS,
    Schedule,
    backward_schedule,
    forward_schedule,
    in_accumulator_order,
    three_consumers,
)
from cmask_lab.kernels.registry import Options, Problem
from hypothesis import given, settings
from hypothesis import strategies as st

import cmask_lab as cm
from tests.kernels.masks import compositions, families

SENTINEL = -7


def plain_order(patterns: torch.Tensor, columns: int) -> np.ndarray:
    """bool (n, rows, columns): the inverse of the accumulator order, one bit at a time."""
    words = patterns.numpy().view(np.uint32)
    cells = np.zeros((*words.shape[:2], columns), bool)
    for column in range(columns):
        word, bit = column % 8 // 2, 2 * (column // 8) + column % 2
        cells[:, :, column] = words[:, :, word] >> bit & 1
    return cells


def walk(work: Schedule, batch: int, heads: int, members: int = 1) -> np.ndarray:
    """bool (batch * heads, positions, other positions): what the programs visit, walked as by a kernel."""
    rows, columns = work.tile
    numbers = work.partial_pattern.numel() // work.partial_tile.numel()
    cells = plain_order(work.patterns, columns)
    items, pattern = work.items.numpy(), work.partial_pattern.view(-1, numbers).numpy()
    height = items[:, 0].max() + rows
    width = columns * (1 + max(int(work.partial_tile.max()), int(work.run_stop.max())))
    seen = np.full((batch * heads, height, width), SENTINEL)
    per_program = np.diff(work.program_items.numpy())
    assert per_program.sum() * members == len(items)
    first_full = len(work.patterns) - 1
    for record in items:
        start, head, partial, partials, run, runs, full_left, *first_pattern = record
        full = 0
        for t in range(partial, partial + partials):
            at = columns * int(work.partial_tile[t])
            tile = seen[head, start : start + rows, at : at + columns]
            assert (tile == SENTINEL).all()
            tile[:] = np.concatenate([cells[number] for number in pattern[t]])
        for r in range(run, run + runs):
            for t in range(int(work.run_start[r]), int(work.run_stop[r])):
                tile = seen[head, start : start + rows, columns * t : columns * (t + 1)]
                assert (tile == SENTINEL).all()
                tile[:] = 1
                full += 1
        # What the forward kernel is told of its first tile.
        assert first_pattern[:numbers] == (pattern[partial].tolist() if partials else [first_full] * numbers)
        assert full_left == full - (not partials)
    return seen == 1


def dense(compiled: cm.CompiledMask, batch: int, heads: int) -> np.ndarray:
    each = np.stack([table.to_dense() for table in compiled.interval_tables])
    return each[np.broadcast_to(compiled.mask_index, (batch, heads)).reshape(-1)]


def cropped(visited: np.ndarray, rows: int, columns: int) -> np.ndarray:
    assert not visited[:, :, columns:].any()
    result = np.zeros((len(visited), rows, columns), bool)
    part = visited[:, :rows, :columns]
    result[:, : part.shape[1], : part.shape[2]] = part
    return result


@pytest.mark.parametrize(
    "tiles", [FORWARD_TILES, (BACKWARD_TILE,), (THREE_CONSUMERS,)], ids=["two", "one size", "three"]
)
@pytest.mark.parametrize("mask", families().values(), ids=families().keys())
def test_forward_visits_what_the_mask_shows(mask, tiles):
    compiled = cm.compile(mask, 150, 600, tile=(64, 128)).to("cpu")
    work = forward_schedule(compiled, 1, 2, 5, tiles=tiles)
    visited = cropped(walk(work, 1, 2), 150, 600)
    assert (visited == dense(compiled, 1, 2)).all()


@settings(max_examples=25)
@given(mask=compositions(), q_len=st.integers(1, 500), kv_len=st.integers(1, 500))
def test_three_rows_of_any_mask(mask, q_len, kv_len):
    compiled = cm.compile(mask, q_len, kv_len, tile=(128, 128)).to("cpu")
    visited = walk(forward_schedule(compiled, 1, 1, 3, tiles=(THREE_CONSUMERS,)), 1, 1)
    assert (cropped(visited, q_len, kv_len) == dense(compiled, 1, 1)).all()


@pytest.mark.parametrize("tile", [(128, 128), (64, 128)], ids=str)
def test_backward_visits_the_transposed_mask_with_the_query_heads_of_a_key_head_side_by_side(tile):
    one, two = cm.window(40), cm.causal() - cm.rect(k=(128, 256))
    compiled = cm.compile(cm.per_head([one, two, two, one]), 300, 400, tile=tile).to("cpu")
    work = backward_schedule(compiled, 2, 4, 2, 3)
    # An item without tiles has none here: the kernel writes zeros for it all the same.
    records = work.items.numpy().reshape(-1, 2, work.items.shape[1])
    assert (records[:, 0, 1] % 2 == 0).all()
    assert (records[:, 1, 1] == records[:, 0, 1] + 1).all()
    assert (records[:, 0, 0] == records[:, 1, 0]).all()
    seen = np.zeros((8, 512, 384), bool)
    cells = plain_order(work.patterns, 128)
    for start, head, partial, partials, run, runs, *_ in work.items.numpy():
        for t in range(partial, partial + partials):
            at = 128 * int(work.partial_tile[t])
            seen[head, start : start + 128, at : at + 128] = cells[int(work.partial_pattern[t])]
        for r in range(run, run + runs):
            seen[head, start : start + 128, 128 * int(work.run_start[r]) : 128 * int(work.run_stop[r])] = True
    # In a full tile also query rows that there are not; the kernel gives them no weight.
    assert (seen[:, :400, :300] == dense(compiled, 2, 4).transpose(0, 2, 1)).all()


def test_rows_that_see_nothing_visit_one_tile_with_an_empty_pattern():
    compiled = cm.compile(cm.empty(), 300, tile=(128, 128)).to("cpu")
    work = forward_schedule(compiled, 1, 1, 2)
    assert work.items[:, 3].tolist() == [1, 1, 1]
    assert not walk(work, 1, 1).any()
    assert backward_schedule(compiled, 1, 1, 1, 2).items[:, 3].tolist() == [0, 0, 0]


def test_no_program_has_much_more_to_do_than_another():
    compiled = cm.compile(cm.causal(), 16384, tile=(128, 128)).to("cpu")
    work = forward_schedule(compiled, 1, 16, 132)
    tiles = (work.items[:, 3] + work.items[:, 6]).numpy()
    program_items = work.program_items.numpy()
    each = np.add.reduceat(tiles, program_items[:-1])
    assert each.max() <= each.mean() + tiles.max() / 8
    # More items than are dealt one by one: back and forth over the programs.
    few = forward_schedule(compiled, 1, 16, 7)
    assert len(few.items) == len(work.items)
    each = np.add.reduceat((few.items[:, 3] + few.items[:, 6]).numpy(), few.program_items.numpy()[:-1])
    assert each.max() <= 1.01 * each.mean()


def test_the_heaviest_items_of_a_head_come_first(monkeypatch):
    compiled = cm.compile(cm.causal(), 4096, tile=(128, 128)).to("cpu")
    monkeypatch.setattr(schedule, "GROUP_ITEMS", 32)
    work = forward_schedule(compiled, 1, 2, 1)
    assert work.items[:, 1].tolist() == [0] * 32 + [1] * 32
    assert work.items[:32, 0].tolist() == [128 * row for row in reversed(range(32))]
    monkeypatch.setattr(schedule, "GROUP_ITEMS", 64)
    together = forward_schedule(cm.compile(cm.causal(), 4096, tile=(128, 128)).to("cpu"), 1, 2, 1)
    assert together.items[:4, :2].tolist() == [[31 * 128, 0], [31 * 128, 1], [30 * 128, 0], [30 * 128, 1]]


def test_a_schedule_is_made_once():
    compiled = cm.compile(cm.causal(), 256, tile=(128, 128)).to("cpu")
    assert forward_schedule(compiled, 1, 2, 3) is forward_schedule(compiled, 1, 2, 3)
    assert forward_schedule(compiled, 1, 2, 3) is not forward_schedule(compiled, 1, 2, 4)
    assert backward_schedule(compiled, 1, 2, 2, 3) is backward_schedule(compiled, 1, 2, 2, 3)


def test_three_consumers_only_for_small_heads_and_long_rows():
    long, short = (cm.compile(mask, 8192, tile=(128, 128)).to("cpu") for mask in (cm.causal(), cm.window(512)))
    assert sum(tiles.full_tiles + tiles.partial_tiles for tiles in long.tile_maps) >= LONG_ROWS * 64
    assert three_consumers(long, 64)
    assert not three_consumers(long, 128)
    assert not three_consumers(short, 64)


@pytest.mark.parametrize("words", [1, 2, 4])
def test_accumulator_order_holds_every_bit(words):
    random = torch.from_numpy(
        np.random.default_rng(words).integers(-(2**31), 2**31, (5, 8, words), dtype=np.int64)
    ).int()
    ordered = in_accumulator_order(random)
    bytes_ = np.ascontiguousarray(random.numpy()).view(np.uint8)
    wanted = np.unpackbits(bytes_, axis=2, bitorder="little").astype(bool)
    cells = plain_order(ordered, 32 * words)
    assert (cells[:5] == wanted).all()
    assert not cells[5].any()
    assert cells[6].all()
    assert (ordered[5] == 0).all()
    assert (ordered[6] == -1).all()


def test_patterns_wider_than_an_accumulator():
    with pytest.raises(ValueError, match="patterns have 256 columns; the kernels take at most 128"):
        in_accumulator_order(torch.zeros(1, 64, 8, dtype=torch.int32))


def test_descriptors_keep_heads_apart_and_pad_the_head_dimension():
    tensor = torch.randn(2, 10, 4, 80, dtype=torch.float16).transpose(1, 2)
    descriptor = tile_descriptor(tensor, 64)
    assert descriptor.shape == [2, 4, 10, 80]
    assert descriptor.strides == [3200, 80, 320, 1]
    assert descriptor.block_shape == [1, 1, 64, 128]
    again = tile_descriptor(tensor.clone(), 64)
    assert again is not descriptor
    assert again.base is not tensor
    # Strides of single entries mean nothing; TMA must get some that are allowed.
    single = torch.randn(5, 64).to(torch.float16).as_strided((1, 1, 5, 64), (1, 3, 64, 1))
    assert tile_descriptor(single, 64).strides == [8, 8, 64, 1]


def test_scores_in_the_base_of_the_kernels():
    assert score_scales(Options(scale=0.5)) == pytest.approx((0.5 * np.log2(np.e), 0.0))
    assert score_scales(Options(scale=0.5, softcap=4.0)) == pytest.approx((4 * np.log2(np.e), 0.125))
    assert score_scales(Options(scale=0.5, activation="silu")) == pytest.approx((0.25, 0.0))


H200 = Problem("cuda", (9, 0), torch.bfloat16, 128, 128, 1, 16, 16, 4096, 4096, (128, 128))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": torch.float32}, "takes bfloat16 and float16, not float32"),
        ({"value_dim": 64}, "needs equal head dimensions of keys and values, got 128 and 64"),
        ({"head_dim": 256, "value_dim": 256}, "at most 128 that is a multiple of 8, got 256"),
        ({"head_dim": 20, "value_dim": 20}, "at most 128 that is a multiple of 8, got 20"),
    ],
)
def test_says_what_it_cannot_run(change, reason):
    assert BACKEND.unsupported(H200) is None
    assert reason in BACKEND.unsupported(Problem(**{**vars(H200), **change}))


@pytest.mark.parametrize("tile", [(32, 32), (256, 256), (64, 128)], ids=str)
def test_runs_every_tile_size(tile):
    assert BACKEND.unsupported(Problem(**{**vars(H200), "tile": tile})) is None
    compiled = cm.compile(cm.window(100), 500, tile=tile).to("cpu")
    work = forward_schedule(compiled, 1, 1, 2)
    assert work.tile in FORWARD_TILES
    assert (cropped(walk(work, 1, 1), 500, 500) == dense(compiled, 1, 1)).all()
