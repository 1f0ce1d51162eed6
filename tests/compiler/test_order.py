"""Token orders: the same mask seen through permuted tokens, chosen where that makes fewer tiles."""

import tracemalloc

import numpy as np
import pytest

import cmask_lab as cm
from cmask_lab.compiler.order import candidate_orders, choose_order

from .test_descriptor import decoded

IMAGE = cm.rect(q=(0, 32)) | cm.rect(k=(0, 32)) | cm.grid(32, 48).disk(5).at(q=(32, 1568), k=(32, 1568))


def test_an_image_is_cut_into_patches_and_the_text_before_it_stays():
    compiled = cm.compile(IMAGE, 1568, tile=32, order="auto")
    natural = cm.compile(IMAGE, 1568, tile=32)
    order = compiled.token_order
    assert compiled.order.endswith("patches")
    assert order is not None
    assert np.array_equal(np.sort(order), np.arange(1568))
    assert order[:32].tolist() == list(range(32))
    assert compiled.stats.visited_pairs < 0.8 * natural.stats.visited_pairs
    assert compiled.stats.visible_pairs == natural.stats.visible_pairs


def test_the_compiled_mask_is_the_natural_one_with_rows_and_columns_permuted():
    compiled = cm.compile(IMAGE, 1568, tile=32, order="auto")
    dense = IMAGE.to_dense(1568)
    assert np.array_equal(decoded(compiled.descriptor), dense[np.ix_(compiled.token_order, compiled.token_order)])


@pytest.mark.parametrize("mask", [cm.causal(), cm.full(), cm.window(50)])
def test_the_natural_order_stays_where_nothing_is_won(mask):
    compiled = cm.compile(mask, 512, order="auto")
    assert compiled.token_order is None
    assert compiled.order == "natural"


def test_interleaved_documents_are_gathered():
    mask = cm.documents(ids=np.arange(512) % 4)
    compiled = cm.compile(mask, 512, tile=128, order="auto")
    assert compiled.order == "documents by id"
    assert compiled.stats.full_tiles == 4
    assert compiled.stats.partial_tiles == 0


def test_a_tree_is_walked_depth_first():
    parents = [-1, 0, 0, 1, 2, 1, 4, 0]
    (found,) = candidate_orders(cm.tree(parents).at(q=(2, 10), k=(2, 10)), 12, 128)
    assert found[0] == "a tree, depth first"
    assert found[1].tolist() == [0, 1, *(2 + node for node in [0, 1, 3, 5, 2, 4, 6, 7]), 10, 11]


def test_a_parent_may_come_after_its_children():
    (found,) = candidate_orders(cm.tree([3, 3, 1, 4, -1, -1]), 6, 128)
    assert found[1].tolist() == [4, 3, 0, 1, 2, 5]


def test_a_tree_that_grew_in_random_order_has_fewer_tiles_depth_first():
    generator = np.random.default_rng(0)
    parents = [-1, *(int(generator.integers(0, node)) for node in range(1, 4096))]
    natural, auto = (cm.compile(cm.tree(parents), 4096, tile=128, order=order) for order in ("natural", "auto"))
    assert auto.order == "a tree, depth first"
    assert auto.stats.visited_pairs < natural.stats.visited_pairs / 4
    assert auto.stats.visible_pairs == natural.stats.visible_pairs


@pytest.mark.parametrize(
    "composed", [lambda m: m, lambda m: m & cm.causal(), lambda m: ~(~m | cm.prefix(4))], ids="abc"
)
def test_documents_by_id_never_make_the_natural_table(composed):
    """Its intervals grow with the square of the length; those of the order that is chosen do not."""
    rng = np.random.default_rng(0)
    small = composed(cm.documents(ids=rng.integers(0, 4, 256)))
    compiled = cm.compile(small, 256, tile=32, order="auto")
    assert compiled.order == "documents by id"
    order = compiled.token_order
    assert np.array_equal(decoded(compiled.descriptor), small.to_dense(256)[np.ix_(order, order)])


def test_many_interleaved_tokens_are_ordered_in_proportion_to_their_number():
    mask = cm.documents(ids=np.random.default_rng(0).integers(0, 64, 1 << 17))
    tracemalloc.start()
    compiled = cm.compile(mask, 1 << 17, tile=128, order="auto")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert compiled.order == "documents by id"
    assert compiled.stats.intervals == 1 << 17
    assert peak < 300e6


def test_no_tokens_have_an_order_too():
    assert cm.compile(cm.causal(), 0, order=np.empty(0, int)).order == "natural"


def test_a_permutation_may_be_given():
    order = np.arange(100)[::-1]
    compiled = cm.compile(cm.causal(), 100, tile=32, order=order)
    assert compiled.order == "given"
    assert np.array_equal(decoded(compiled.descriptor), cm.anticausal().to_dense(100))


def test_a_grid_longer_than_the_sequence_is_no_candidate():
    assert list(candidate_orders(cm.grid(8, 8).disk(2), 32, 16)) == []


def test_video_is_cut_into_boxes():
    names = [name for name, _ in candidate_orders(cm.grid(4, 8, 8).box(1, 2, 2), 256, 32)]
    assert "2×4×4 patches" in names


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("best", "order is 'best'; give 'natural', 'auto' or a permutation of the tokens"),
        (np.zeros(8, int), "holds every number from 0 to 7 once; this one does not"),
        (np.arange(7), r"an integer array of shape \(8,\), got int64 of shape \(7,\)"),
        (np.arange(8.0), r"an integer array of shape \(8,\), got float64 of shape \(8,\)"),
    ],
)
def test_what_is_no_order_is_refused(order, message):
    with pytest.raises(ValueError, match=message):
        choose_order([cm.causal()], 8, order, (32, 32))


def test_a_token_order_needs_a_square_problem():
    with pytest.raises(ValueError, match="a token order needs a square problem, got q_len=1, kv_len=None, q_start=7"):
        cm.compile(cm.causal(), 1, q_start=7, order="auto")


def test_an_order_does_not_hide_that_a_mask_does_not_fit():
    with pytest.raises(ValueError, match="made for 128"):
        cm.compile(cm.documents([64, 64]), 100, order=np.arange(100))
