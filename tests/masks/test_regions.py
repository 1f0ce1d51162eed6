"""Every region against a predicate written here, on square, odd and shifted windows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cmask_lab.masks as cm
from cmask_lab.masks import Mask

Predicate = Callable[[int, int], bool]

LENGTHS = [1, 4, 9, 0, 2]
OWNER = [n for n, length in enumerate(LENGTHS) for _ in range(length)]
IDS = [5, 5, -1, 2, 5, 2, 2, -7, 0, 0, 9, 5]
PARENTS = [-1, 0, 1, 1, 0, 4, 5, -1, 7, 3]
MATRIX = ["1010", "0111", "1000"]


def same_document(i: int, j: int) -> bool:
    return i < len(OWNER) and j < len(OWNER) and OWNER[i] == OWNER[j]


def same_id(i: int, j: int) -> bool:
    return i < len(IDS) and j < len(IDS) and IDS[i] == IDS[j] >= 0


def ancestor(i: int, j: int) -> bool:
    while 0 <= i < len(PARENTS):
        if i == j:
            return True
        i = PARENTS[i]
    return False


def in_grid(shape: tuple[int, ...], rule: Callable[..., bool]) -> Predicate:
    """``rule(mine, theirs)`` on coordinates, False outside the grid."""
    tokens = int(np.prod(shape))

    def coordinates(token: int) -> list[int]:
        parts = []
        for size in reversed(shape):
            token, part = divmod(token, size)
            parts.insert(0, part)
        return parts

    return lambda i, j: i < tokens and j < tokens and rule(coordinates(i), coordinates(j))


def shifted_window(length: int, size: int) -> list[range]:
    """For each position the ``size`` positions nearest to it that exist, one more behind than ahead if even."""
    starts = [min(max(at - size // 2, 0), length - size) for at in range(length)]
    return [range(start, start + size) for start in starts]


CASES: dict[str, tuple[Mask, Predicate]] = {
    "full": (cm.full(), lambda i, j: True),
    "empty": (cm.empty(), lambda i, j: False),
    "causal": (cm.causal(), lambda i, j: j <= i),
    "anticausal": (cm.anticausal(), lambda i, j: j >= i),
    "window": (cm.window(3), lambda i, j: i - 3 <= j <= i),
    "window both ways": (cm.window(2, 5), lambda i, j: i - 2 <= j <= i + 5),
    "window open left": (cm.window(None, 2), lambda i, j: j <= i + 2),
    "window open right": (cm.window(4, None), lambda i, j: j >= i - 4),
    "window open": (cm.window(None, None), lambda i, j: True),
    "band": (cm.band(-4, -1), lambda i, j: -4 <= j - i < -1),
    "band ahead": (cm.band(2, 6), lambda i, j: 2 <= j - i < 6),
    "band open below": (cm.band(None, 3), lambda i, j: j - i < 3),
    "band open above": (cm.band(-2, None), lambda i, j: j - i >= -2),
    "band empty": (cm.band(3, 3), lambda i, j: False),
    "rect": (cm.rect(q=(3, 8), k=(2, 11)), lambda i, j: 3 <= i < 8 and 2 <= j < 11),
    "rect of rows": (cm.rect(q=(3, 8)), lambda i, j: 3 <= i < 8),
    "rect of keys": (cm.rect(k=(2, 11)), lambda i, j: 2 <= j < 11),
    "rect of all": (cm.rect(), lambda i, j: True),
    "rect empty": (cm.rect(q=(5, 5), k=(0, 4)), lambda i, j: False),
    "prefix": (cm.prefix(7), lambda i, j: j < 7),
    "sink": (cm.sink(4), lambda i, j: j < 4 and j <= i),
    "suffix": (cm.suffix(9), lambda i, j: j >= 9),
    "global tokens": (
        cm.global_tokens([(0, 2), (7, 9), (8, 12), (14, 14)]),
        lambda i, j: any(t in (0, 1, 7, 8, 9, 10, 11) for t in (i, j)),
    ),
    "documents": (cm.documents(LENGTHS), same_document),
    "document ids": (cm.documents(ids=IDS), same_id),
    "document ids in runs": (cm.documents(ids=[4, 4, -1, 0, 0, 0]), lambda i, j: [4, 4, -1, 0, 0, 0, -1][min(i, 6)]
                             == [4, 4, -2, 0, 0, 0, -2][min(j, 6)]),
    "padding alone": (cm.documents(ids=[-1, -1]), lambda i, j: False),
    "strided": (cm.strided(3), lambda i, j: (i - j) % 3 == 0),
    "strided with a phase": (cm.strided(5, 2), lambda i, j: (i - j) % 5 == 2),
    "strided by one": (cm.strided(1), lambda i, j: True),
    "tiles": (cm.tiles(MATRIX, (5, 3)), lambda i, j: i < 15 and j < 12 and MATRIX[i // 5][j // 3] == "1"),
    "tree": (cm.tree(PARENTS), ancestor),
    "tree with parents behind": (cm.tree([2, 0, -1]), lambda i, j: (i, j) in
                                 {(0, 0), (0, 2), (1, 1), (1, 0), (1, 2), (2, 2)}),
    "explicit": (
        cm.explicit([0, 2, 2, 5], [8, 1, 0, 2, 1], [9, 4, 1, 5, 3]),
        lambda i, j: j in {0: {8, 1, 2, 3}, 2: {0, 1, 2, 3, 4}}.get(i, set()),
    ),
    "explicit without intervals": (cm.explicit([0, 0, 0], [], []), lambda i, j: False),
    "from_dense": (cm.from_dense(np.eye(5, 9, 2) > 0), lambda i, j: i < 5 and j == i + 2 and j < 9),
    "disk": (
        cm.grid(3, 5).disk(2),
        in_grid((3, 5), lambda a, b: (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 < 4),
    ),
    "disk that wraps rows": (
        cm.grid(4, 3).disk(5),
        in_grid((4, 3), lambda a, b: (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 < 25),
    ),
    "disk is strict": (
        cm.grid(1, 11).disk(3),
        in_grid((1, 11), lambda a, b: abs(a[1] - b[1]) <= 2),
    ),
    "ball": (
        cm.grid(2, 3, 3).disk(2),
        in_grid((2, 3, 3), lambda a, b: sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) < 4),
    ),
    "box": (
        cm.grid(4, 5).box(1, 2),
        in_grid((4, 5), lambda a, b: abs(a[0] - b[0]) <= 1 and abs(a[1] - b[1]) <= 2),
    ),
    "box larger than the grid": (cm.grid(3, 4).box(9), in_grid((3, 4), lambda a, b: True)),
    "box in time": (
        cm.grid(3, 2, 3).box(1, 0, 1),
        in_grid((3, 2, 3), lambda a, b: abs(a[0] - b[0]) <= 1 and a[1] == b[1] and abs(a[2] - b[2]) <= 1),
    ),
    "neighbourhood": (
        cm.grid(4, 6).neighborhood(3),
        in_grid((4, 6), lambda a, b: b[0] in shifted_window(4, 3)[a[0]] and b[1] in shifted_window(6, 3)[a[1]]),
    ),
    "neighbourhood of even size": (
        cm.grid(5, 4).neighborhood((4, 2)),
        in_grid((5, 4), lambda a, b: b[0] in shifted_window(5, 4)[a[0]] and b[1] in shifted_window(4, 2)[a[1]]),
    ),
    "neighbourhood with dilation": (
        cm.grid(1, 11).neighborhood((1, 3), dilation=(1, 3)),
        # Groups 0 3 6 9, 1 4 7 10 and 2 5 8: the last has three members, so each of them sees all three.
        in_grid(
            (1, 11),
            lambda a, b: b[1]
            in {0: (0, 3, 6), 3: (0, 3, 6), 6: (3, 6, 9), 9: (3, 6, 9), 1: (1, 4, 7), 4: (1, 4, 7), 7: (4, 7, 10),
                10: (4, 7, 10), 2: (2, 5, 8), 5: (2, 5, 8), 8: (2, 5, 8)}[a[1]],
        ),
    ),
    "neighbourhood causal in time": (
        cm.grid(4, 2, 3).neighborhood((2, 1, 3), causal=(True, False, False)),
        in_grid((4, 2, 3), lambda a, b: 0 <= a[0] - b[0] <= 1 and a[1] == b[1]),
    ),
    "axial": (
        cm.grid(3, 5).axial(),
        in_grid((3, 5), lambda a, b: a[0] == b[0] or a[1] == b[1]),
    ),
    "axial along rows": (cm.grid(3, 5).axial([1]), in_grid((3, 5), lambda a, b: a[0] == b[0])),
    "axial in 3-D": (
        cm.grid(2, 3, 3).axial([0, 2]),
        in_grid((2, 3, 3), lambda a, b: a[1] == b[1] and (a[0] == b[0] or a[2] == b[2])),
    ),
    "causal in time": (cm.grid(3, 2, 3).causal_time(), in_grid((3, 2, 3), lambda a, b: b[0] <= a[0])),
    "minus": (cm.causal() - cm.window(2), lambda i, j: j <= i and not i - 2 <= j <= i),
    "not": (~cm.window(2, 2), lambda i, j: abs(i - j) > 2),
    "and": (cm.window(9) & cm.strided(4) & cm.suffix(2), lambda i, j: i - 9 <= j <= i and (i - j) % 4 == 0 and j >= 2),
    "or": (cm.window(2) | cm.prefix(3) | cm.strided(7), lambda i, j: i - 2 <= j <= i or j < 3 or (i - j) % 7 == 0),
    "or of many": (
        cm.rect(q=(0, 2), k=(0, 3)) | cm.rect(q=(1, 5), k=(2, 4)) | cm.rect(q=(4, 6), k=(9, 11)) | cm.band(0, 1)
        | cm.rect(q=(5, 5)) | cm.sink(1),
        lambda i, j: (i < 2 and j < 3) or (1 <= i < 5 and 2 <= j < 4) or (4 <= i < 6 and 9 <= j < 11) or i == j
        or j == 0,
    ),
    "at": (cm.causal().at(q=(2, 9), k=(4, 8)), lambda i, j: 2 <= i < 9 and 4 <= j < 8 and j - 4 <= i - 2),
    "at inside other operations": (
        cm.causal().at(q=(2, 9), k=(4, 8)) & cm.suffix(5) | cm.window(1).at(q=(10, 14), k=(3, 6)) | cm.sink(1),
        lambda i, j: (2 <= i < 9 and 5 <= j < 8 and j - 4 <= i - 2)
        or (10 <= i < 14 and 3 <= j < 6 and 0 <= i - 10 - (j - 3) <= 1) or j == 0,
    ),
    "at of a complement": (
        (~cm.causal()).at(q=(2, 9), k=(4, 8)),
        lambda i, j: 2 <= i < 9 and 4 <= j < 8 and j - 4 > i - 2,
    ),
    "repeat": (
        cm.causal().repeat(LENGTHS),
        lambda i, j: same_document(i, j) and j <= i,
    ),
    "repeat cropped to its boxes": (
        (cm.strided(2) | cm.sink(3)).repeat(LENGTHS),
        lambda i, j: same_document(i, j)
        and ((i - j) % 2 == 0 or (j - OWNER.index(OWNER[j]) < 3 and j <= i)),
    ),
    "repeat of different masks": (
        cm.repeat([3, 0, 4], [cm.causal(), cm.full(), cm.anticausal()]),
        lambda i, j: (j <= i < 3) or (3 <= i <= j < 7),
    ),
    "repeat of masks with several intervals": (
        cm.repeat([3, 4], [cm.strided(2), ~cm.causal()]),
        lambda i, j: (i < 3 and j < 3 and (i - j) % 2 == 0) or (3 <= i < j < 7),
    ),
    "take queries": (cm.causal().take(q=[5, 0, 9]), lambda i, j: i < 3 and j <= [5, 0, 9][i]),
    "take keys": (
        cm.causal().take(k=[3, 2, 1, 7, 8, 8, 0]),
        lambda i, j: j < 7 and [3, 2, 1, 7, 8, 8, 0][j] <= i,
    ),
    "take both": (
        cm.window(2).take(q=[9, 8, 7, 3], k=[7, 8, 9, 1, 2, 3]),
        lambda i, j: i < 4 and j < 6 and 0 <= [9, 8, 7, 3][i] - [7, 8, 9, 1, 2, 3][j] <= 2,
    ),
    "take from stretches far apart": (
        cm.strided(2).take(q=[0, 1, 2, 900, 901, 400]),
        lambda i, j: i < 6 and ([0, 1, 2, 900, 901, 400][i] - j) % 2 == 0,
    ),
    "transposed": (cm.window(3, 1).transposed(), lambda i, j: j - 3 <= i <= j + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("q_len", "kv_len", "q_start"),
    [(24, 24, 0), (13, 29, 0), (31, 25, 0), (1, 24, 7), (7, 27, 5), (5, 26, 30), (0, 24, 4)],
)
def test_a_region_is_its_predicate(name: str, q_len: int, kv_len: int, q_start: int) -> None:
    mask, predicate = CASES[name]
    expected = [[bool(predicate(i, j)) for j in range(kv_len)] for i in range(q_start, q_start + q_len)]
    assert np.array_equal(mask.to_dense(q_len, kv_len, q_start), np.array(expected, bool).reshape(q_len, kv_len))


@pytest.mark.parametrize("name", CASES)
def test_intervals_are_sorted_disjoint_and_inside(name: str) -> None:
    table = CASES[name][0].intervals(23, 31)
    assert table.row_ptr[0] == 0
    assert table.row_ptr[-1] == table.count
    for query in range(23):
        edges = table.row(query).reshape(-1)
        assert (np.diff(edges) > 0).all()  # sorted, not empty, and touching neither each other
        assert ((edges >= 0) & (edges <= 31)).all()


def test_natten_keeps_its_size_at_the_border() -> None:
    table = cm.grid(4, 6).neighborhood(3).intervals(24)
    assert (table.to_dense().sum(axis=1) == 9).all()


def test_clear_pairs() -> None:
    # Counted once with an independent program: 512 text tokens, an image of 168 × 192.
    text = cm.rect(q=(0, 512)) | cm.rect(k=(0, 512))
    for radius, pairs in ((8, 39_287_812), (16, 56_975_456), (32, 121_539_980)):
        image = cm.grid(168, 192).disk(radius).at(q=(512, 32768), k=(512, 32768))
        assert (text | image).intervals(32768).visible_pairs == pairs


def test_documents_by_offsets_are_those_by_lengths() -> None:
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)])
    assert cm.documents(offsets=offsets) == cm.documents(LENGTHS)


def test_rows_behind_the_documents_see_nothing() -> None:
    dense = cm.documents([2, 2, 3]).to_dense(8)
    assert not dense[7].any()
    assert not dense[:, 7].any()
    assert dense[4].tolist() == [False] * 4 + [True] * 3 + [False]


def test_tiles_from_bools_and_from_strings_are_equal() -> None:
    cells = np.array([[cell == "1" for cell in row] for row in MATRIX])
    assert cm.tiles(cells, 4) == cm.tiles(MATRIX, (4, 4)) == cm.tiles(cells.astype(int).tolist(), 4)


@given(st.data())
def test_a_tree_in_any_numbering(data: st.DataObject) -> None:
    """Parents before or behind their children: the cells are those of the tree, found by walking up."""
    size = data.draw(st.integers(1, 30))
    place = data.draw(st.permutations(range(size)))
    parents = [-1] * size
    for node in range(1, size):
        above = data.draw(st.sampled_from([-1, node - 1, node - 1, data.draw(st.integers(0, node - 1))]))
        parents[place[node]] = place[above] if above >= 0 else -1
    want = np.zeros((size, size), bool)
    for node in range(size):
        each = node
        while each >= 0:
            want[node, each] = True
            each = parents[each]
    assert np.array_equal(cm.tree(parents).to_dense(size), want)
