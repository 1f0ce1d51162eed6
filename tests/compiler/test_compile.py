"""The compiled mask: windows onto the plane, tiles, distinct masks, token orders, devices, and what is refused."""

import copy
import dataclasses
import pickle
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cmask_lab as cm

from .test_descriptor import decoded


@st.composite
def masks(draw):
    """A composition of regions on a plane of about a hundred tokens."""
    region = st.sampled_from(
        [
            cm.causal(),
            cm.window(7, 3),
            cm.documents([20, 0, 31, 9]),
            cm.strided(3),
            cm.rect(q=(5, 40), k=(0, 60)),
            cm.prefix(9),
            cm.grid(6, 9).disk(3),
            cm.empty(),
            cm.full(),
        ]
    )
    mask = draw(region)
    for operation in draw(st.lists(st.sampled_from("&|-~"), max_size=3)):
        other = draw(region)
        mask = {"&": mask & other, "|": mask | other, "-": mask - other, "~": ~mask}[operation]
    return mask


@given(masks(), st.integers(60, 130), st.sampled_from([32, (64, 32), 128, None]))
def test_the_descriptor_of_a_composed_mask_is_its_dense_form(mask, length, tile):
    compiled = cm.compile(mask, length, tile=tile)
    dense = mask.to_dense(length)
    assert np.array_equal(decoded(compiled.descriptor), dense)
    assert compiled.stats.visible_pairs == dense.sum()
    assert compiled.stats.density == pytest.approx(dense.mean())


@given(masks(), st.integers(0, 40), st.integers(0, 70))
def test_a_window_shows_the_rows_of_the_whole_plane(mask, q_len, q_start):
    compiled = cm.compile(mask, q_len, 120, q_start=q_start, tile=32)
    assert np.array_equal(decoded(compiled.descriptor), mask.to_dense(120)[q_start : q_start + q_len])


def test_without_kv_len_the_keys_end_with_the_last_query():
    assert cm.compile(cm.causal(), 1, q_start=99).kv_len == 100


@pytest.mark.parametrize(("q_len", "kv_len"), [(0, 0), (0, 10), (10, 0), (1, 1), (1, 1000)])
def test_the_smallest_planes_compile(q_len, kv_len):
    stats = cm.compile(cm.full(), q_len, kv_len).stats
    assert stats.visible_pairs == q_len * kv_len
    assert stats.waste >= 1


def test_nothing_visible_is_nothing_visited():
    stats = cm.compile(cm.empty(), 1000).stats
    assert (stats.visited_pairs, stats.waste, stats.empty_tiles) == (0, 1.0, 64)


def test_stats_of_causal_at_32k():
    stats = cm.compile(cm.causal(), 32768, tile=128).stats
    assert stats.visible_pairs == 536_887_296
    assert (stats.full_tiles, stats.partial_tiles, stats.empty_tiles) == (32640, 256, 32640)
    assert (stats.runs, stats.patterns, stats.intervals, stats.max_intervals_per_row) == (255, 1, 32768, 1)
    assert stats.visited_pairs == 32896 * 128 * 128
    assert stats.waste == stats.visited_pairs / stats.visible_pairs
    assert stats.compile_ms > 0


CLEAR = cm.rect(q=(0, 512)) | cm.rect(k=(0, 512)) | cm.grid(168, 192).disk(16).at(q=(512, 32768), k=(512, 32768))
SHARED_PROMPT = cm.repeat(
    [8192] * 4, cm.causal() & (cm.rect(q=(0, 8192), k=(0, 4096)) | cm.documents([4096] + [512] * 8))
)


@pytest.mark.parametrize(
    ("mask", "most"),
    [
        (cm.causal(), 16 << 10),
        (cm.causal() & cm.window(1023), 16 << 10),
        (SHARED_PROMPT, 16 << 10),
        (CLEAR, 512 << 10),
    ],
    ids=["causal", "window", "shared prompt", "CLEAR"],
)
def test_descriptors_are_small_and_their_bytes_are_those_on_the_device(mask, most):
    compiled = cm.compile(mask, 32768, tile=128)
    assert compiled.stats.descriptor_bytes <= most
    buffer = compiled.to("cpu").descriptor.buffer
    assert buffer.numel() * buffer.element_size() == compiled.stats.descriptor_bytes


def test_clear_has_the_tiles_that_were_counted():
    stats = cm.compile(CLEAR, 32768, tile=128).stats
    assert (stats.visible_pairs, stats.full_tiles, stats.partial_tiles) == (56_975_456, 2032, 11292)


def test_masks_that_differ_by_batch_entry_and_head_are_stored_once_each():
    per_head = cm.per_head([cm.causal(), cm.full()])
    compiled = cm.compile(cm.per_batch([per_head, cm.full()]), 70, tile=32)
    assert (compiled.batch, compiled.heads, compiled.masks_count) == (2, 2, 2)
    assert compiled.mask_index.tolist() == [[0, 1], [1, 1]]
    assert np.array_equal(decoded(compiled.descriptor, 0), cm.causal().to_dense(70))
    assert np.array_equal(decoded(compiled.descriptor, 1), cm.full().to_dense(70))
    assert compiled.tile_map(1).shape == compiled.tile_density(1).shape == (3, 3)


def test_one_mask_for_all_tells_no_batch_or_head_apart():
    compiled = cm.compile(cm.causal(), 8)
    assert (compiled.batch, compiled.heads, compiled.mask_index.tolist()) == (None, None, [[0]])


def test_heads_must_agree_between_batch_entries():
    two, three = (cm.per_head([cm.full()] * n) for n in (2, 3))
    with pytest.raises(ValueError, match=r"the entries have masks for \[2, 3\] heads; the number must be the same"):
        cm.compile(cm.per_batch([two, three]), 8)


def test_a_device_copy_is_made_once_and_knows_its_transpose():
    compiled = cm.compile(cm.causal(), 100, tile=32)
    there = compiled.to("cpu")
    assert compiled.to("cpu") is there
    assert there.to("cpu") is there
    assert (compiled.device, there.device) == (None, "cpu")
    assert np.array_equal(there.transposed.run_start.numpy(), compiled.transposed.run_start)


def test_a_compiled_mask_is_a_value_that_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        cm.compile(cm.causal(), 8).q_len = 9  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((cm.causal(), -1), ValueError, "q_len is -1; a length is at least 0"),
        ((cm.causal(), 2.5), TypeError, "q_len is 2.5; give an integer number of tokens"),
        ((cm.causal(), True), TypeError, "q_len is True; give an integer number of tokens"),
        ((cm.causal(), float("nan")), TypeError, "q_len is nan"),
        (("causal", 8), TypeError, r"mask is str; give a cmask_lab mask, such as cm.causal\(\)"),
        ((cm.documents([4, 4]), 6), ValueError, "made for 8 keys"),
        ((cm.rect(q=(0, 9)), 6), ValueError, "made for 9 queries"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        cm.compile(*arguments)


@pytest.mark.parametrize(
    "tile", [100, (128, 48), (128,), 0, (512, 128), True, 64.0, float("nan"), "64", np.array(48), {64: 64}]
)
def test_unknown_tiles_are_refused_with_the_ones_there_are(tile):
    with pytest.raises(ValueError, match=r"with sides from \(32, 64, 128, 256\)"):
        cm.compile(cm.causal(), 8, tile=tile)


def test_a_million_tokens_of_documents_compile_in_proportion_to_the_intervals():
    random = np.random.default_rng(0)
    lengths = random.integers(128, 1025, 1900)
    lengths = lengths[np.cumsum(lengths) <= 1 << 20]
    lengths = np.append(lengths, (1 << 20) - lengths.sum())
    stats = cm.compile(cm.documents(lengths) & cm.causal(), 1 << 20, tile=128).stats
    assert stats.intervals == 1 << 20
    assert stats.visible_pairs == (lengths * (lengths + 1) // 2).sum()


def test_a_tile_side_may_be_any_integer():
    assert cm.compile(cm.causal(), 8, tile=np.int64(64)).tile == (64, 64)  # type: ignore[arg-type]


def test_a_device_copy_outlives_what_it_was_made_of():
    pytest.importorskip("torch")
    compiled = cm.compile(cm.window(5), 40, tile=32)
    wanted = compiled.transposed.buffer
    copied, gone = compiled.to("cpu"), weakref.ref(compiled)
    assert compiled.to("cpu") is copied is copied.to("cpu")
    del compiled
    assert gone() is None, "without a collection: they don't hold each other"
    assert np.array_equal(copied.transposed.buffer.numpy(), wanted)
    assert copied.to("meta").device == "meta"


def test_copies_start_without_what_was_remembered():
    """A copy for another process must not bring tensors of devices that may not be there."""
    torch = pytest.importorskip("torch")
    compiled = cm.compile(cm.causal(), 40, tile=32)
    compiled.to("meta")
    for twin in (pickle.loads(pickle.dumps(compiled)), copy.copy(compiled), copy.deepcopy(compiled)):
        assert not twin._on_device
        assert twin.stats == compiled.stats
        assert twin.to(torch.device("cpu")).descriptor.buffer.device.type == "cpu"
