"""A descriptor, decoded tile by tile as a kernel would, gives back the dense mask; so does its transpose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmask_lab.compiler.descriptor import ALIGNMENT, Descriptor, encode
from cmask_lab.compiler.intervals import IntervalTable
from cmask_lab.compiler.patterns import tile_patterns, transposed_patterns
from cmask_lab.compiler.tiles import tile_table

from .test_tiles import TILES, dense_masks, grouping  # noqa: F401 - a fixture


def described(*masks: np.ndarray, tile: tuple[int, int]) -> Descriptor:
    tables = [IntervalTable.from_dense(dense) for dense in masks]
    return encode(tables, [tile_table(table, tile) for table in tables])


def decoded(descriptor: Descriptor, mask: int = 0) -> np.ndarray:
    """Paint what the arrays say; a tile that is named twice, or a cell beyond the last key, fails."""
    d = descriptor
    plane = np.zeros((d.q_tiles * d.q_tile, d.kv_tiles * d.kv_tile), bool)
    for tile in range(d.q_tiles):
        row = mask * d.q_tiles + tile
        rows = plane[tile * d.q_tile : (tile + 1) * d.q_tile]
        for run in range(d.run_ptr[row], d.run_ptr[row + 1]):
            cells = rows[:, d.run_start[run] * d.kv_tile : d.run_stop[run] * d.kv_tile]
            assert cells.size
            assert not cells.any()
            cells[...] = True
        for part in range(d.partial_ptr[row], d.partial_ptr[row + 1]):
            bits = d.patterns[d.partial_pattern[part]].astype("<i4").view(np.uint8).reshape(d.q_tile, -1)
            cells = rows[:, d.partial_tile[part] * d.kv_tile : (d.partial_tile[part] + 1) * d.kv_tile]
            assert not cells.any()
            cells[...] = np.unpackbits(bits, axis=1, bitorder="little")
    assert not plane[:, d.kv_len :].any()
    return plane[: d.q_len, : d.kv_len]


@pytest.mark.parametrize("tile", TILES)
def test_the_arrays_say_what_the_mask_says(tile, grouping):  # noqa: F811
    @given(dense_masks())
    def check(dense):
        assert np.array_equal(decoded(described(dense, tile=tile)), dense)

    check()


@pytest.mark.parametrize("tile", TILES)
@given(dense_masks())
def test_the_transposed_descriptor_says_what_the_transposed_mask_says(tile, dense):
    transposed = described(dense, tile=tile).transposed()
    assert (transposed.q_tile, transposed.kv_tile) == (tile[1], tile[0])
    plane = np.zeros((transposed.q_tiles * tile[1], transposed.kv_tiles * tile[0]), bool)
    # Full tiles of a ragged last query tile stay full there: those queries do not exist, and have no gradients.
    for row in range(transposed.q_tiles):
        for run in range(transposed.run_ptr[row], transposed.run_ptr[row + 1]):
            columns = slice(transposed.run_start[run] * tile[0], transposed.run_stop[run] * tile[0])
            plane[row * tile[1] : (row + 1) * tile[1], columns] = True
        for part in range(transposed.partial_ptr[row], transposed.partial_ptr[row + 1]):
            bits = transposed.patterns[transposed.partial_pattern[part]].astype("<i4").view(np.uint8)
            column = transposed.partial_tile[part]
            cells = plane[row * tile[1] : (row + 1) * tile[1], column * tile[0] : (column + 1) * tile[0]]
            cells[...] = np.unpackbits(bits.reshape(tile[1], -1), axis=1, bitorder="little")
    assert np.array_equal(plane[: transposed.q_len, : transposed.kv_len], dense.T)


@given(st.lists(st.integers(0, 2**32), min_size=2, max_size=4), st.integers(1, 90), st.integers(1, 90))
def test_several_masks_share_one_descriptor(seeds, q_len, kv_len):
    masks = [np.random.default_rng(seed).random((q_len, kv_len)) < 0.5 for seed in seeds]
    masks += [np.arange(kv_len) <= np.arange(q_len)[:, None]] * 2
    descriptor = described(*masks, tile=(32, 32))
    for number, dense in enumerate(masks):
        assert np.array_equal(decoded(descriptor, number), dense)
    flat = descriptor.patterns.reshape(len(descriptor.patterns), -1)
    assert len(np.unique(flat, axis=0)) == len(flat)


def test_several_masks_without_any_partial_tile():
    descriptor = described(np.ones((32, 64), bool), np.zeros((32, 64), bool), tile=(32, 32))
    assert descriptor.patterns.shape == (0, 32, 1)
    assert decoded(descriptor, 0).all()
    assert not decoded(descriptor, 1).any()


def test_equal_partial_tiles_share_a_pattern():
    causal = np.arange(512) <= np.arange(512)[:, None]
    assert len(described(causal, tile=(128, 128)).patterns) == 1


def test_tile_rows_come_heaviest_first():
    causal = np.arange(256) <= np.arange(256)[:, None]
    assert described(causal, tile=(32, 32)).order.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def test_every_array_is_an_aligned_view_of_the_buffer():
    descriptor = described(np.random.default_rng(1).random((100, 70)) < 0.5, tile=(32, 32))
    assert descriptor.nbytes == descriptor.buffer.nbytes
    for array in descriptor.arrays().values():
        assert array.dtype == np.int32
        assert np.shares_memory(array, descriptor.buffer) or not array.size
        assert (array.ctypes.data - descriptor.buffer.ctypes.data) % (4 * ALIGNMENT) == 0


def test_tensors_on_a_device_hold_the_same_numbers_in_one_buffer():
    torch = pytest.importorskip("torch")
    descriptor = described(np.random.default_rng(2).random((100, 70)) < 0.5, tile=(32, 32))
    tensors = descriptor.to("cpu")
    for name, array in descriptor.arrays().items():
        tensor = getattr(tensors, name)
        assert tensor.dtype == torch.int32
        assert np.array_equal(tensor.numpy(), array)
        assert tensor.untyped_storage().data_ptr() == tensors.buffer.untyped_storage().data_ptr()
    assert tensors.nbytes == descriptor.nbytes
    assert tensors.to("cpu").q_tiles == descriptor.q_tiles


def test_patterns_are_numbered_by_first_appearance():
    random = np.random.default_rng(3)
    kinds = [random.random((32, 32)) < 0.5 for _ in range(3)]
    dense = np.concatenate([kinds[n] for n in (2, 0, 2, 1, 0)], axis=1)
    _, number = tile_patterns(IntervalTable.from_dense(dense), (32, 32), np.zeros(5, int), np.arange(5))
    assert number.tolist() == [0, 1, 0, 2, 1]


@given(st.integers(0, 2**32))
def test_transposing_patterns_twice_gives_them_back(seed):
    patterns = np.random.default_rng(seed).integers(-(2**31), 2**31, (3, 64, 1), dtype=np.int64).astype(np.int32)
    assert np.array_equal(transposed_patterns(transposed_patterns(patterns)), patterns)
