"""Laws of the algebra, and compositions against the cell-by-cell oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cmask_lab.masks as cm
from cmask_lab.masks import Mask
from tests.masks.oracle import dense
from tests.masks.samples import SIDE, WINDOWS, Draw, composition, masks, views

View = tuple[int, int, int]


@settings(max_examples=400)
@given(masks(), views())
def test_a_composition_is_what_its_spec_says(mask: Mask, view: View) -> None:
    q_len, kv_len, q_start = view
    assert np.array_equal(mask.to_dense(q_len, kv_len, q_start), dense(mask.node, q_len, kv_len, q_start))


@pytest.mark.parametrize("seed", range(200))
def test_a_seeded_composition_is_what_its_spec_says(seed: int) -> None:
    mask = composition(Draw.seeded(seed), depth=4)
    for q_len, kv_len, q_start in WINDOWS:
        assert np.array_equal(mask.to_dense(q_len, kv_len, q_start), dense(mask.node, q_len, kv_len, q_start))


@settings(max_examples=100)
@given(masks(depth=2), masks(depth=2), masks(depth=1), views())
def test_set_laws(a: Mask, b: Mask, c: Mask, view: View) -> None:
    def same(left: Mask, right: Mask) -> bool:
        q_len, kv_len, q_start = view
        return left.intervals(q_len, kv_len, q_start) == right.intervals(q_len, kv_len, q_start)

    assert same(a & b, b & a)
    assert same(a | b, b | a)
    assert same(a & (b | c), (a & b) | (a & c))
    assert same(~(a | b), ~a & ~b)
    assert same(a - b, a & ~b)
    assert same(~~a, a)
    assert same(a | ~a, cm.full())
    assert same(a & ~a, cm.empty())
    assert same(a & cm.full(), a)
    assert same(a | cm.empty(), a)


@settings(max_examples=100)
@given(masks(depth=2), masks(depth=1), st.permutations(range(SIDE)))
def test_moves_and_set_operations_commute(a: Mask, b: Mask, order: list[int]) -> None:
    def same(left: Mask, right: Mask) -> bool:
        return left.intervals(SIDE) == right.intervals(SIDE)

    back = np.argsort(order)
    whole = cm.rect(q=(0, SIDE), k=(0, SIDE))
    assert same(a.transposed().transposed(), a)
    assert same((a & b).transposed(), a.transposed() & b.transposed())
    assert same(a.take(q=order, k=order).take(q=back, k=back), a)
    assert same((a | b).take(k=order), a.take(k=order) | b.take(k=order))
    assert same((~a).take(q=order), ~a.take(q=order) & whole)
    assert same(a.repeat([9, 0, 15]), cm.repeat([9, 0, 15], [a, a, a]))
    assert same(a.repeat([SIDE]), a & whole)


@settings(max_examples=100)
@given(masks(), views())
def test_a_window_is_a_part_of_the_plane(mask: Mask, view: View) -> None:
    q_len, kv_len, q_start = view
    whole = mask.to_dense(q_start + q_len, 45)
    assert np.array_equal(mask.to_dense(q_len, kv_len, q_start), whole[q_start:, :kv_len])


def test_equality_is_by_meaning_of_the_spec() -> None:
    a, b = cm.causal(), cm.documents([2, 3])
    assert a & b == b & a
    assert hash(a & b) == hash(b & a)
    assert a | b | a == b | a
    assert a - b != b - a
    assert a & b != a | b
    assert a != cm.window(None, 0)  # the same cells, another spec
    assert cm.documents(np.array([2, 3], np.int32)) == b
    assert cm.documents([2, 3]) != cm.documents(ids=[2, 3])
    assert len({a, cm.causal(), a.named("first"), cm.anticausal()}) == 2
    assert a != "causal"


def test_names_have_no_meaning() -> None:
    named = (cm.causal() & cm.prefix(3)).named("text rows")
    assert named == cm.causal() & cm.prefix(3)
    assert hash(named) == hash(cm.prefix(3) & cm.causal())
    assert named.named(None).name is None
    assert named.spec()["mask"]["name"] == "text rows"
    assert named.name == "text rows"


def test_operands_of_one_kind_join_unless_they_are_named() -> None:
    a, b, c = cm.causal(), cm.prefix(1), cm.suffix(2)
    assert len((a & b & c).children) == 3
    assert len((a | (b | c)).children) == 3
    assert len(((a & b).named("pair") & c).children) == 2


def test_masks_are_immutable() -> None:
    mask = cm.documents([2, 3])
    with pytest.raises(AttributeError):
        mask.lengths = np.array([1])  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        mask.lengths[0] = 7
    given_lengths = np.array([2, 3])
    mask = cm.documents(given_lengths)
    given_lengths[0] = 100
    assert mask == cm.documents([2, 3])


def test_tensors_are_taken_like_arrays() -> None:
    torch = pytest.importorskip("torch")
    assert cm.documents(torch.tensor([2, 3])) == cm.documents([2, 3])
    assert cm.documents(ids=torch.tensor([1, 0], dtype=torch.int32)) == cm.documents(ids=[1, 0])
    assert cm.from_dense(torch.eye(3, dtype=torch.bool)) == cm.from_dense(np.eye(3) > 0)
    assert cm.prefix(torch.tensor(3)) == cm.prefix(3)
    assert cm.causal().take(q=torch.tensor([1, 0])) == cm.causal().take(q=[1, 0])


@pytest.mark.parametrize(
    ("mask", "extent"),
    [
        (cm.causal(), (None, None)),
        (cm.rect(q=(1, 4)), (4, None)),
        (cm.prefix(5), (None, 5)),
        (cm.sink(5), (None, None)),
        (cm.global_tokens([(0, 3), (7, 9)]), (9, 9)),
        (cm.documents([2, 3]) & cm.causal(), (5, 5)),
        (cm.prefix(9) | cm.rect(q=(0, 2), k=(0, 3)), (2, 9)),
        (~cm.documents(ids=[0, 1, 1]), (3, 3)),
        (cm.tiles(["10", "01", "11"], (4, 8)), (9, 9)),
        (cm.tree([-1, 0]), (2, 2)),
        (cm.from_dense([[0, 1, 0], [1, 0, 0]]), (2, 2)),
        (cm.grid(3, 4).disk(2), (12, 12)),
        (cm.causal().at(q=(2, 5), k=(1, 9)), (5, 9)),
        (cm.causal().repeat([3, 4]), (7, 7)),
        (cm.documents([4]).take(q=[3, 3, 0]), (3, 4)),
        (cm.prefix(3).transposed(), (3, None)),
        (cm.per_head([cm.prefix(3), cm.prefix(8)]), (None, 8)),
    ],
)
def test_extent(mask: Mask, extent: tuple[int | None, int | None]) -> None:
    assert mask.extent == extent


def test_a_name_around_operands_of_the_same_kind_has_no_meaning() -> None:
    a, b, c = cm.causal(), cm.prefix(3), cm.window(2)
    for join in (lambda x, y: x & y, lambda x, y: x | y):
        assert join(join(a, b).named("x"), c) == join(join(a, b), c) == join(a, join(b, c).named("y"))
        assert hash(join(join(a, b).named("x"), c)) == hash(join(join(a, b), c))
    assert (a & b).named("x") | c != a & b & c
