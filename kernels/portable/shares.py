"""The rule of the split-key forward: which rows one program takes, and into how many shares their keys are split.

With few queries (decoding: 1 to 16 against long keys) there are fewer query tiles than multiprocessors, and most of the
device would have nothing to do. Then the tiles of a query tile are divided among several programs. The query heads of
one kv head are rows of the same program, which reads their keys once; unless their masks differ, since a program walks
the tiles of one mask.

The rule counts programs. It has not been measured on a chip yet, nor have the two numbers in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from cmask_lab.kernels.portable.blocks import Blocks

KEYS_A_SHARE = 256
"""A share has at least about so many keys: for fewer the second kernel, which merges, would not pay. Assumed."""

ROWS = (16, 64)
"""Fewest and most rows of a program: what a matrix instruction takes, and what leaves room for long keys. Assumed."""


@dataclass(frozen=True)
class Split:
    """How a launch of the split-key forward is cut up.

    Attributes:
        blocks: block shapes; ``blocks.queries`` rows are ``heads * queries``.
        heads, queries: query heads of one kv head, and queries of each, that one program takes.
        shares: programs among which the keys of these rows are divided; 1: the plain forward kernel is to run.
    """

    blocks: Blocks
    heads: int
    queries: int
    shares: int


def share_count(items: int, row_keys: int, multiprocessors: int) -> int:
    """Into how many shares the keys of every item are split: as many as give each multiprocessor at most one program.

    Args:
        items: programs that there would be without splitting: query blocks times (packs of) heads times batch entries.
        row_keys: keys that the longest item visits.
        multiprocessors: of the device.

    One query, 8 kv heads, 8,192 keys, 132 multiprocessors; the same with 100 items; and with 500 keys:

    >>> share_count(8, 8192, 132), share_count(100, 8192, 132), share_count(8, 500, 132)
    (16, 1, 1)
    """
    return max(1, min(multiprocessors // max(items, 1), row_keys // KEYS_A_SHARE))


def rows_wanted(q_len: int, heads: int, q_tile: int) -> int:
    """Rows that a program would take at most: all queries of a tile for ``heads`` heads, within :data:`ROWS`.

    >>> rows_wanted(1, 1, 64), rows_wanted(3, 8, 64), rows_wanted(500, 4, 128)
    (16, 32, 64)
    """
    return min(max(_queries(q_len, q_tile) * _power_of_two(heads), ROWS[0]), ROWS[1])


def rows_shape(rows: int, q_len: int, heads: int, q_tile: int) -> tuple[int, int]:
    """``(heads, queries)`` of the rows of a program, powers of two: all queries of a tile before more heads.

    >>> rows_shape(16, 1, 4, 64), rows_shape(64, 16, 7, 64), rows_shape(32, 500, 4, 64)
    ((4, 4), (4, 16), (1, 32))
    """
    packed = min(_power_of_two(heads), max(rows // _queries(q_len, q_tile), 1))
    return packed, rows // packed


def _queries(q_len: int, q_tile: int) -> int:
    return min(_power_of_two(q_len), q_tile)


def _power_of_two(number: int) -> int:
    """The least power of two from ``number`` on."""
    return 1 << (number - 1).bit_length()
