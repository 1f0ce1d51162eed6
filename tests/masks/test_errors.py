"""Bad input is refused at the call, by a message that says what was given and what is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cmask_lab.masks as cm

LIMIT = 2**31 - 1

REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    # numbers
    (lambda: cm.prefix(-1), ValueError, "prefix: n is -1; it must be at least 0"),
    (lambda: cm.prefix(2.5), TypeError, "prefix: n is 2.5; it must be an integer"),
    (lambda: cm.prefix(float("nan")), TypeError, "prefix: n is nan; it must be an integer"),
    (lambda: cm.prefix(True), TypeError, "prefix: n is True; it must be an integer"),
    (lambda: cm.prefix(np.True_), TypeError, "prefix: n is np.True_; it must be an integer"),
    (lambda: cm.prefix("4"), TypeError, "prefix: n is '4'; it must be an integer"),
    (lambda: cm.prefix(None), TypeError, "prefix: n is None; it must be an integer"),
    (lambda: cm.prefix(2**31), ValueError, f"prefix: n is {2**31}; it must be at most {LIMIT}"),
    (lambda: cm.sink([4]), TypeError, "sink: n is [4]; it must be an integer"),
    (lambda: cm.suffix(-2), ValueError, "suffix: start is -2; it must be at least 0"),
    (lambda: cm.window(-1), ValueError, "window: left is -1; it must be at least 0"),
    (lambda: cm.window(1, 0.5), TypeError, "window: right is 0.5; it must be an integer"),
    (lambda: cm.band(3, 1), ValueError, "band: lo is 3 and hi is 1; a range [lo, hi) needs lo <= hi"),
    (lambda: cm.band("a", 1), TypeError, "band: lo is 'a'; it must be an integer"),
    (lambda: cm.strided(0), ValueError, "strided: step is 0; it must be at least 1"),
    (lambda: cm.strided(3, 3), ValueError, "strided: phase is 3; it must be at most 2"),
    # ranges
    (lambda: cm.rect(q=(5, 2)), ValueError, "rect: q is (5, 2); a range [start, stop) needs start <= stop"),
    (lambda: cm.rect(k=(-1, 2)), ValueError, "rect: k start is -1; it must be at least 0"),
    (lambda: cm.rect(q=4), TypeError, "rect: q is 4; it must be a pair (start, stop)"),
    (lambda: cm.rect(q=(1, 2, 3)), TypeError, "rect: q is (1, 2, 3); it must be a pair (start, stop)"),
    (lambda: cm.rect(q=np.array(3)), TypeError, "rect: q is array(3); it must be a pair (start, stop)"),
    (lambda: cm.full().at(q=(0, 1), k=np.array(3)), TypeError, "at: k is array(3); it must be a pair (start, stop)"),
    (lambda: cm.repeat([2], np.array(3)), TypeError, "repeat: masks is array(3); it must be a mask or a list of masks"),
    (lambda: cm.per_head(np.array(3)), TypeError, "per_head: entry 0 is array(3); every entry must be a mask"),
    (
        lambda: cm.global_tokens(np.array(3)),
        TypeError,
        "global_tokens: ranges is array(3); it must be a list of pairs (start, stop)",
    ),
    (lambda: cm.rect(q="ab"), TypeError, "rect: q is 'ab'; it must be a pair (start, stop)"),
    (lambda: cm.rect(q=(0, 2.0)), TypeError, "rect: q stop is 2.0; it must be an integer"),
    (
        lambda: cm.global_tokens([]),
        ValueError,
        "global_tokens: the list of ranges is empty; give at least one pair (start, stop)",
    ),
    (
        lambda: cm.global_tokens(4),
        TypeError,
        "global_tokens: ranges is 4; it must be a list of pairs (start, stop)",
    ),
    (
        lambda: cm.global_tokens([(0, 2), (5, 4)]),
        ValueError,
        "global_tokens: range 1 is (5, 4); a range [start, stop) needs start <= stop",
    ),
    # documents
    (
        lambda: cm.documents([512, -3]),
        ValueError,
        "documents: length 1 is -3; every document needs a length of at least 0",
    ),
    (
        lambda: cm.documents(np.array([512, -3])),
        ValueError,
        "documents: length 1 is -3; every document needs a length of at least 0",
    ),
    (lambda: cm.documents([]), ValueError, "documents: the list of lengths is empty; give at least one"),
    (lambda: cm.documents([2, 1.5]), TypeError, "documents: length 1 is 1.5; every length must be an integer"),
    (lambda: cm.documents([2, float("nan")]), TypeError, "documents: length 1 is nan; every length must be an integer"),
    (lambda: cm.documents([True, 2]), TypeError, "documents: length 0 is True; every length must be an integer"),
    (lambda: cm.documents([2, None]), TypeError, "documents: length 1 is None; every length must be an integer"),
    (lambda: cm.documents([[2, 3]]), TypeError, "documents: length 0 is [2, 3]; every length must be an integer"),
    (lambda: cm.documents("23"), TypeError, "documents: expected a list of integers, one length each, got '23'"),
    (lambda: cm.documents(7), TypeError, "documents: expected a list of integers, one length each, got 7"),
    (
        lambda: cm.documents(np.array([2.0, np.nan])),
        TypeError,
        "documents: the lengths must be integers, got an array of float64",
    ),
    (
        lambda: cm.documents(np.array([True, False])),
        TypeError,
        "documents: the lengths must be integers, got an array of bool",
    ),
    (
        lambda: cm.documents(np.ones((2, 2), int)),
        TypeError,
        "documents: the lengths must be one-dimensional, got shape (2, 2)",
    ),
    (lambda: cm.documents([2**40]), ValueError, f"documents: length 0 is {2**40}; it must be at most {LIMIT}"),
    (lambda: cm.documents([10**30]), ValueError, f"documents: length 0 is {10**30}; it must be at most {LIMIT}"),
    (
        lambda: cm.documents([LIMIT, 1]),
        ValueError,
        f"documents: the sum of the lengths is {2**31}; it must be at most {LIMIT}",
    ),
    (
        lambda: cm.documents([2], ids=[0]),
        TypeError,
        "documents: give exactly one of lengths, offsets and ids, got lengths and ids",
    ),
    (lambda: cm.documents(), TypeError, "documents: give exactly one of lengths, offsets and ids, got none"),
    (
        lambda: cm.documents(offsets=[1, 4]),
        ValueError,
        "documents: offset 0 is 1; the first document starts at 0",
    ),
    (
        lambda: cm.documents(offsets=[0]),
        ValueError,
        "documents: only one offset given; offsets name the start of each document and the end",
    ),
    (
        lambda: cm.documents(offsets=[0, 4, 3]),
        ValueError,
        "documents: offset 2 is 3, below 4 before it; offsets never fall",
    ),
    # tables
    (
        lambda: cm.tiles(["10", "2"], 4),
        ValueError,
        "tiles: row 1 is '2'; rows are strings of 0 and 1, all of one length",
    ),
    (lambda: cm.tiles([[1, 0]], 0), ValueError, "tiles: size is 0; it must be at least 1"),
    (lambda: cm.tiles([[1, 0]], (4, 2, 1)), TypeError, "tiles: size is (4, 2, 1); it must be an integer"),
    (
        lambda: cm.tiles([[1, 2]], 4),
        TypeError,
        "tiles: matrix has values of int64; it must hold bools, or integers that are all 0 or 1",
    ),
    (
        lambda: cm.tiles([1, 0], 4),
        ValueError,
        "tiles: matrix has shape (2,); it must be two-dimensional, (queries, keys)",
    ),
    (
        lambda: cm.tiles(np.ones((0, 3), bool), 4),
        ValueError,
        "tiles: the matrix has shape (0, 3); it needs at least one row and one column",
    ),
    (
        lambda: cm.tiles(["1" * 3], 2**30),
        ValueError,
        f"tiles: the side of the mask is {3 * 2**30}; it must be at most {LIMIT}",
    ),
    (lambda: cm.from_dense(3), TypeError, "from_dense: array is 3; it must be a two-dimensional array of bools"),
    (
        lambda: cm.from_dense(np.ones((2, 2))),
        TypeError,
        "from_dense: array has values of float64; it must hold bools, or integers that are all 0 or 1",
    ),
    (lambda: cm.tree([]), ValueError, "tree: the list of parents is empty; give at least one"),
    (lambda: cm.tree([-2]), ValueError, "tree: parent 0 is -2; a parent is a node number, or -1 for a root"),
    (lambda: cm.tree([-1, 2]), ValueError, "tree: parent 1 is 2; there are only 2 nodes"),
    (
        lambda: cm.tree([-1, 2, 1, 0]),
        ValueError,
        "tree: node 1 is or hangs below its own ancestor; the parents must lead to a root, -1",
    ),
    (
        lambda: cm.tree([0]),
        ValueError,
        "tree: node 0 is or hangs below its own ancestor; the parents must lead to a root, -1",
    ),
    (
        lambda: cm.explicit([0, 2], [0, 3], [1]),
        ValueError,
        "explicit: 2 starts and 1 stops; every interval has one of each",
    ),
    (
        lambda: cm.explicit([0, 1], [0, 3], [1, 4]),
        ValueError,
        "explicit: row_ptr must rise from 0 to the number of intervals, 2; got [0, 1], ending in 1",
    ),
    (
        lambda: cm.explicit([0, 1], [3], [2]),
        ValueError,
        "explicit: interval 0 is [3, 2); an interval needs start <= stop",
    ),
    (lambda: cm.explicit([0, 1], 3, [4]), TypeError, "explicit: expected a list of integers, one start each, got 3"),
    # grids
    (lambda: cm.grid(4), ValueError, "grid: 1 sizes given; a grid is grid(h, w) or grid(t, h, w)"),
    (lambda: cm.grid(4, 0), ValueError, "grid: size 1 is 0; it must be at least 1"),
    (lambda: cm.grid(2**16, 2**16), ValueError, f"grid: the number of tokens is {2**32}; it must be at most {LIMIT}"),
    (lambda: cm.grid(4, 4).disk(0), ValueError, "disk: radius is 0; it must be at least 1"),
    (lambda: cm.grid(4, 4).disk(1.5), TypeError, "disk: radius is 1.5; it must be an integer"),
    (lambda: cm.grid(4, 4).box(1, -1), ValueError, "box: radius 1 is -1; it must be at least 0"),
    (
        lambda: cm.grid(4, 4).box(1, 2, 3),
        ValueError,
        "box: 3 values of radius for cm.grid(4, 4); give one for each of its 2 axes, or one for all",
    ),
    (
        lambda: cm.grid(4, 6).neighborhood(5),
        ValueError,
        "neighborhood: size 5 with dilation 1 spans 5 positions of axis y, which has 4; "
        "size * dilation must not be more",
    ),
    (
        lambda: cm.grid(4, 4, 6).neighborhood(3, dilation=(1, 1, 3)),
        ValueError,
        "neighborhood: size 3 with dilation 3 spans 9 positions of axis x, which has 6; "
        "size * dilation must not be more",
    ),
    (
        lambda: cm.grid(4, 6).neighborhood(3, causal=1),
        TypeError,
        "neighborhood: causal 0 is 1; it must be True or False",
    ),
    (
        lambda: cm.grid(4, 6).neighborhood(3, causal=(True, False, True)),
        ValueError,
        "neighborhood: 3 values of causal for cm.grid(4, 6); give one for each of its 2 axes, or one for all",
    ),
    (lambda: cm.grid(4, 6).axial(2), ValueError, "axial: axis is 2; it must be at most 1"),
    (lambda: cm.grid(4, 6).axial([]), ValueError, "axial: the list of axes is empty; give at least one"),
    (
        lambda: cm.grid(4, 6).causal_time(),
        ValueError,
        "causal_time: cm.grid(4, 6) has no time axis; make it with cm.grid(t, h, w)",
    ),
    # placement
    (
        lambda: cm.grid(2, 4).disk(2).at(q=(0, 8), k=(2, 9)),
        ValueError,
        "at: the mask was made for 8 keys and does not fit [2, 9), which holds 7; "
        "make the box larger or build the mask for it",
    ),
    (
        lambda: cm.rect(q=(0, 4)).at(q=(0, 3), k=(0, 3)),
        ValueError,
        "at: the mask was made for 4 queries and does not fit [0, 3), which holds 3; "
        "make the box larger or build the mask for it",
    ),
    (
        lambda: cm.causal().at(q=(3, 1), k=(0, 2)),
        ValueError,
        "at: q is (3, 1); a range [start, stop) needs start <= stop",
    ),
    (lambda: cm.causal().repeat([]), ValueError, "repeat: the list of sizes is empty; give at least one"),
    (lambda: cm.causal().repeat([3, -1]), ValueError, "repeat: size 1 is -1; every size must be at least 0"),
    (
        lambda: cm.repeat([3, 1], [cm.causal()]),
        ValueError,
        "repeat: 2 sizes and 1 masks; give one for each box, or one mask for all",
    ),
    (lambda: cm.repeat([3], ["causal"]), TypeError, "repeat: mask 0 is 'causal'; it must be a mask"),
    (lambda: cm.repeat([3], 3), TypeError, "repeat: masks is 3; it must be a mask or a list of masks"),
    (
        lambda: cm.causal().take(),
        TypeError,
        "take: neither q nor k given; give the positions to gather for at least one of them",
    ),
    (lambda: cm.causal().take(q=[0, -1]), ValueError, "take: q: position 1 is -1; every position must be at least 0"),
    (lambda: cm.causal().take(k=[]), ValueError, "take: k: the list of positions is empty; give at least one"),
    # heads and batch entries
    (lambda: cm.per_head([]), ValueError, "per_head: the list of masks is empty; give at least one"),
    (
        lambda: cm.per_head([cm.causal(), 3]),
        TypeError,
        "per_head: entry 1 is 3; every entry must be a mask",
    ),
    (lambda: cm.per_batch("causal"), TypeError, "per_batch: entry 0 is 'causal'; every entry must be a mask"),
    (lambda: cm.per_batch(7), TypeError, "per_batch: entry 0 is 7; every entry must be a mask"),
    (
        lambda: cm.per_batch([cm.per_head([cm.causal()]), cm.per_head([cm.causal(), cm.full()])]),
        ValueError,
        "per_batch: the entries have masks for [1, 2] heads; the number must be the same",
    ),
    (
        lambda: cm.per_head([cm.per_batch([cm.causal()])]),
        ValueError,
        "per_head: a per_batch mask stands at the top only; apply the operation to each of its masks",
    ),
    (
        lambda: cm.per_head([cm.causal()]) & cm.prefix(3),
        ValueError,
        "and: a per_head mask stands at the top only; apply the operation to each of its masks",
    ),
    (
        lambda: cm.per_head([cm.causal(), cm.full()]).intervals(3),
        ValueError,
        "per_head: there is one table of intervals for each of the 2 masks; ask one of .masks, or cm.compile the whole",
    ),
    # lengths
    (
        lambda: cm.documents([2, 3]).intervals(4),
        ValueError,
        "cm.documents([2, 3]): the mask was made for 5 keys and does not fit kv_len 4; "
        "give it 5 keys or more, or build it for 4",
    ),
    (
        lambda: (cm.causal() & cm.grid(2, 3).disk(2)).intervals(6, 5),
        ValueError,
        "cm.causal() & cm.grid(2, 3).disk(2): the mask was made for 6 keys and does not fit kv_len 5; "
        "give it 6 keys or more, or build it for 5",
    ),
    (
        lambda: cm.rect(q=(0, 9), k=(0, 2)).intervals(4),
        ValueError,
        "cm.rect(q=(0, 9), k=(0, 2)): the mask was made for 9 queries and does not fit q_len 4; "
        "give it 9 queries or more, or pass kv_len too if these rows are meant to be a part of it",
    ),
    (lambda: cm.causal().intervals(-1), ValueError, "q_len is -1; it must be at least 0"),
    (lambda: cm.causal().intervals(4, kv_len=2.0), TypeError, "kv_len is 2.0; it must be an integer"),
    (lambda: cm.causal().to_dense(4, q_start=-1), ValueError, "q_start is -1; it must be at least 0"),
    # operators
    (
        lambda: cm.causal() and cm.full(),
        TypeError,
        "a mask is neither true nor false; combine masks with & | - ~ instead of and, or, not",
    ),
    (lambda: cm.causal().named(3), TypeError, "named: the name is 3; it must be a string or None"),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED, ids=[message[:70] for _, _, message in REFUSED])
def test_bad_input_is_refused(call: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize("other", [3, None, "causal", np.ones((2, 2), bool)])
def test_operators_take_masks_only(other: Any) -> None:
    for operation in (
        lambda a: a & other,
        lambda a: a | other,
        lambda a: a - other,
        lambda a: other & a,
        lambda a: other | a,
        lambda a: other - a,
    ):
        with pytest.raises(TypeError, match=r"^[&|-]: an operand is (int|NoneType|str|ndarray); (give|turn it)"):
            operation(cm.causal())


def test_a_tensor_that_numpy_cannot_read_is_refused_with_advice() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"^documents: the lengths can't be read \(.*\); pass them from the CPU$"):
        cm.documents(torch.ones(3, dtype=torch.int64, device="meta"))
    with pytest.raises(TypeError, match=r"^from_dense: array can't be read as a two-dimensional array: "):
        cm.from_dense(torch.ones(3, 3, dtype=torch.bool, device="meta"))


def test_part_of_a_mask_is_allowed_when_the_keys_are_given() -> None:
    mask = cm.documents([2, 3])
    assert np.array_equal(mask.to_dense(2, 5), mask.to_dense(5)[:2])
    assert np.array_equal(mask.to_dense(2, 5, q_start=3), mask.to_dense(5)[3:])
