"""An interval table is a set of cells: every operation is held against the same one on a bool array."""

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cmask_lab.compiler.intervals import POSITION_LIMIT, IntervalTable, ragged_range

planes = st.tuples(st.integers(0, 12), st.integers(0, 12))
dense_masks = planes.flatmap(lambda shape: hnp.arrays(np.bool_, shape))
pairs = planes.flatmap(lambda shape: st.tuples(hnp.arrays(np.bool_, shape), hnp.arrays(np.bool_, shape)))


@given(dense_masks)
def test_a_table_holds_exactly_the_cells_it_was_made_from(dense):
    table = IntervalTable.from_dense(dense)
    assert np.array_equal(table.to_dense(), dense)
    assert table.visible_pairs == dense.sum()
    assert table.density == pytest.approx(dense.mean() if dense.size else 0)


@given(dense_masks)
def test_intervals_of_a_row_are_sorted_disjoint_and_do_not_touch(dense):
    table = IntervalTable.from_dense(dense)
    assert table.row_ptr[0] == 0
    assert table.row_ptr[-1] == table.count
    for query in range(table.q_len):
        row = table.row(query)
        flat = row.reshape(-1)
        assert (np.diff(flat) > 0).all()
        own = slice(table.row_ptr[query], table.row_ptr[query + 1])
        assert np.array_equal(row, np.stack([table.start[own], table.stop[own]], axis=1))
        assert (table.rows_per_interval()[own] == query).all()


@pytest.mark.parametrize("operation", [operator.and_, operator.or_, operator.xor])
@given(pairs)
def test_set_operations_are_those_of_bool_arrays(operation, two):
    a, b = two
    result = operation(IntervalTable.from_dense(a), IntervalTable.from_dense(b))
    assert result == IntervalTable.from_dense(operation(a, b))


@given(pairs)
def test_difference_and_complement(two):
    a, b = two
    assert IntervalTable.from_dense(a) - IntervalTable.from_dense(b) == IntervalTable.from_dense(a & ~b)
    assert ~IntervalTable.from_dense(a) == IntervalTable.from_dense(~a)


@given(dense_masks)
def test_transposing_is_transposing_the_array_and_twice_is_nothing(dense):
    table = IntervalTable.from_dense(dense)
    assert table.transpose() == IntervalTable.from_dense(dense.T)
    assert table.transpose().transpose() == table


@given(dense_masks, st.data())
def test_rows_can_be_taken_in_any_order_and_more_than_once(dense, data):
    count = data.draw(st.integers(0, 20)) if len(dense) else 0
    index = data.draw(hnp.arrays(np.int64, count, elements=st.integers(0, max(len(dense) - 1, 0))))
    assert IntervalTable.from_dense(dense).take_rows(index) == IntervalTable.from_dense(dense[index])


@given(dense_masks, st.data())
def test_clipping_keeps_what_lies_between_the_bounds(dense, data):
    q_len, kv_len = dense.shape
    bound = hnp.arrays(np.int64, q_len, elements=st.integers(-3, kv_len + 3))
    lo, hi = data.draw(bound), data.draw(bound)
    keys = np.arange(kv_len)
    inside = (keys >= lo[:, None]) & (keys < hi[:, None])
    assert IntervalTable.from_dense(dense).clip(lo, hi) == IntervalTable.from_dense(dense & inside)


@given(dense_masks, st.data())
def test_shifting_moves_every_row_and_drops_what_leaves_the_plane(dense, data):
    q_len = len(dense)
    keys = data.draw(hnp.arrays(np.int64, q_len, elements=st.integers(-15, 15)))
    new_len = data.draw(st.integers(0, 15))
    expected = np.zeros((q_len, new_len), bool)
    for i, j in np.argwhere(dense):
        if 0 <= j + keys[i] < new_len:
            expected[i, j + keys[i]] = True
    assert IntervalTable.from_dense(dense).shift(keys, new_len) == IntervalTable.from_dense(expected)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-4, 12), st.integers(-4, 12)), max_size=30))
def test_pieces_in_any_order_overlapping_or_touching_give_their_union(pieces):
    expected = np.zeros((6, 9), bool)
    for row, start, stop in pieces:
        expected[row, max(start, 0) : max(stop, 0)] = True
    row, start, stop = (
        (np.array(part, int) for part in zip(*pieces, strict=True)) if pieces else (np.empty(0, int),) * 3
    )
    assert IntervalTable.from_intervals(row, start, stop, 6, 9) == IntervalTable.from_dense(expected)


@given(dense_masks)
def test_the_compressed_row_form_rebuilds_the_table(dense):
    table = IntervalTable.from_dense(dense)
    assert IntervalTable.from_row_ptr(table.row_ptr, table.start, table.stop, table.kv_len) == table


@given(dense_masks)
def test_bounds_enclose_what_a_row_sees(dense):
    lo, hi = IntervalTable.from_dense(dense).bounds()
    for row, first, last in zip(dense, lo, hi, strict=True):
        seen = np.flatnonzero(row)
        assert (first, last) == ((seen[0], seen[-1] + 1) if len(seen) else (0, 0))


def test_tables_stack_row_under_row():
    top, bottom = IntervalTable.full(2, 3), IntervalTable.empty(1, 3)
    assert IntervalTable.concatenate([top, bottom]).to_dense().tolist() == [[True] * 3] * 2 + [[False] * 3]


def test_a_long_plane_does_not_overflow():
    far = IntervalTable.from_row_bounds([POSITION_LIMIT - 1] * 3, [POSITION_LIMIT] * 3, POSITION_LIMIT)
    assert far.start.tolist() == [POSITION_LIMIT - 1] * 3
    assert (far | ~far).visible_pairs == 3 * POSITION_LIMIT


def test_ragged_ranges_of_nothing_are_empty():
    assert ragged_range(np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []


def test_tables_cannot_be_changed_in_place():
    with pytest.raises(ValueError, match="read-only"):
        IntervalTable.full(2, 2).line[0] = 1


def test_equality_needs_the_same_plane_and_other_things_are_never_equal():
    assert IntervalTable.empty(2, 3) != IntervalTable.empty(3, 2)
    assert IntervalTable.empty(2, 3) != "a table"
    assert repr(IntervalTable.full(2, 3)) == "IntervalTable(q_len=2, kv_len=3, 2 intervals)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: IntervalTable.empty(-1, 2), "q_len is -1; it must lie between 0 and 2147483647"),
        (lambda: IntervalTable.full(2, 2**31), "kv_len is 2147483648; it must lie between 0 and 2147483647"),
        (lambda: IntervalTable.full(2, 2) & IntervalTable.full(2, 3), "2×2 and 2×3 have no common plane"),
        (lambda: IntervalTable.from_intervals([2], [0], [1], 2, 2), "row 2 is outside the 2 rows of the table"),
        (lambda: IntervalTable.from_intervals([[0]], [0], [1], 2, 2), "must be one-dimensional and equally long"),
        (
            lambda: IntervalTable.from_row_ptr([0, 2], [0], [1], 2),
            "must rise from 0 to the number of intervals, 1",
        ),
        (lambda: IntervalTable.concatenate([IntervalTable.full(1, 2), IntervalTable.full(1, 3)]), "no common plane"),
    ],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_rows_outside_the_table_are_index_errors():
    with pytest.raises(IndexError, match="row 2 is outside the 2 rows of the table"):
        IntervalTable.full(2, 2).row(2)
    with pytest.raises(IndexError, match=r"rows to take must lie in \[0, 2\), got 0 … 2"):
        IntervalTable.full(2, 2).take_rows([0, 2])


def test_only_bool_arrays_are_dense_masks():
    with pytest.raises(TypeError, match=r"a bool array \(q_len, kv_len\), got int64 of shape \(2,\)"):
        IntervalTable.from_dense(np.array([0, 1]))
