"""The fifteen puzzles of ``notebooks/exercises.ipynb``, easy to hard, with model answers and planted wrong answers."""

from __future__ import annotations

import numpy as np

import cmask_lab as cm
from cmask_lab.course.drawing import cells, layers, tiles
from cmask_lab.course.exercises import (
    Course,
    Plane,
    Puzzle,
    close_to,
    good_order,
    good_tile,
    same_cells,
    same_window,
    witness,
)

H200_RATE = 790e12
"""bf16 matrix operations a second, seen on an H200 with large products: the rate that a floor is computed with."""


def _document(lengths: list[int], position: int) -> int:
    """The number of the document that holds a position, counted from 1."""
    return int(np.searchsorted(np.cumsum(lengths), position, side="right")) + 1


def _order(query: int, key: int) -> str:
    return f"key {key} {'comes' if key > query else 'does not come'} after query {query}"


def _causal_documents(lengths: list[int], query: int, key: int) -> str:
    if key > query:
        return _order(query, key)
    ours, theirs = _document(lengths, query), _document(lengths, key)
    if ours == theirs:
        return f"both belong to document {ours}"
    return f"{query} belongs to document {ours}, {key} to document {theirs}"


# 1–5: the language -------------------------------------------------------------------------------------------------

lower_triangle = Puzzle(
    title="No looking ahead",
    task="Write the mask in which every query sees itself and all keys before it, and nothing else, at any length.",
    given=cells(cm.causal(), 8),
    check=same_cells(
        cm.causal(),
        (Plane(8), Plane(1), Plane(37), Plane(5, 9), Plane(3, 40, 37)),
        _order,
        best_regions=1,
    ),
    hints=(
        "The word for it stands in every paper about language models.",
        layers({"key ≤ query": cm.causal()}, 6),
        "cm.c…l()",
    ),
    model="cm.causal()",
    wrong=("cm.anticausal()", "cm.window(None, 1)", "cm.window(30)", "cm.full()", "cm.band(None, 0)"),
)

look_back = Puzzle(
    title="A short memory",
    task="Every query sees exactly four keys: itself and the three before it (fewer at the very start).",
    given=cells(cm.window(3), 12),
    check=same_cells(
        cm.window(3),
        (Plane(12), Plane(2), Plane(100), Plane(4, 64, 60)),
        lambda q, k: (
            f"key {k} is {abs(q - k)} {'after' if k > q else 'before'} query {q}, and the window is 3 back, 0 ahead"
        ),
        best_regions=1,
    ),
    hints=(
        "A window is given by how far it looks back, and the query itself is not counted.",
        layers({"three before": cm.band(-3, 0), "itself": cm.band(0, 1)}, 8),
        "cm.window(…)",
    ),
    model="cm.window(3)",
    wrong=("cm.window(4)", "cm.window(3, 3)", "cm.window(2)", "cm.band(-4, 1)", "cm.window(1, 2)"),
)

two_documents = Puzzle(
    title="Two letters in one envelope",
    task="Two documents, of 5 and 7 tokens, are packed into a sequence of 12. Each is causal; neither sees the other.",
    given=cells(cm.documents([5, 7]) & cm.causal(), 12),
    check=same_cells(
        cm.documents([5, 7]) & cm.causal(),
        (Plane(12),),
        lambda q, k: _causal_documents([5, 7], q, k),
        best_regions=1,
    ),
    hints=(
        "Two conditions hold at once: the same document, and not ahead. Which set operation is that?",
        layers({"same document": cm.documents([5, 7]), "and causal": cm.documents([5, 7]) & cm.causal()}, 12),
        "cm.documents([…, …]) & …",
    ),
    model="cm.documents([5, 7]) & cm.causal()",
    wrong=(
        "cm.documents([5, 7])",
        "cm.documents([7, 5]) & cm.causal()",
        "cm.documents([5, 7]) | cm.causal()",
        "cm.causal()",
        "cm.documents([5, 8]) & cm.causal()",
        "cm.documents([5, 6]) & cm.causal()",
    ),
)

prefix_model = Puzzle(
    title="Read the question first",
    task=(
        "A prefix language model: the first four tokens (the question) see one another in both directions; every "
        "later token sees the question and all tokens up to itself."
    ),
    given=cells(cm.causal() | cm.prefix(4), 10),
    check=same_cells(
        cm.causal() | cm.prefix(4),
        (Plane(10), Plane(4), Plane(33), Plane(2, 12, 10)),
        lambda q, k: (
            f"key {k} is {'in' if k < 4 else 'behind'} the question and {'after' if k > q else 'not after'} query {q}"
        ),
        best_regions=2,
    ),
    hints=(
        "Start from causal. What is missing, and is it a rectangle?",
        layers({"causal": cm.causal(), "what is missing": cm.prefix(4) - cm.causal()}, 10),
        "cm.causal() | cm.prefix(…)",
    ),
    model="cm.causal() | cm.prefix(4)",
    wrong=(
        "cm.causal() & cm.prefix(4)",
        "cm.causal() | cm.prefix(3)",
        "cm.causal() | cm.rect(q=(0, 4), k=(0, 5))",
        "cm.causal() | cm.sink(4)",
        "cm.prefix(4)",
    ),
)

sink_and_window = Puzzle(
    title="Streaming",
    task=(
        "A model that streams for ever keeps the first two tokens (the sink) and a window of the last four, itself "
        "included. Nothing ahead of the query is visible, not even a sink token."
    ),
    given=cells(cm.sink(2) | cm.window(3), 14),
    check=same_cells(
        cm.sink(2) | cm.window(3),
        (Plane(14), Plane(2), Plane(3), Plane(90)),
        lambda q, k: _order(q, k) if k > q else f"key {k} is {q - k} back, and {'a' if k < 2 else 'no'} sink token",
        best_regions=2,
    ),
    hints=(
        "Two sets, put together. One of them must not look ahead: compare cm.prefix and cm.sink at query 0.",
        layers({"sink": cm.sink(2), "window": cm.window(3)}, 10),
        "cm.sink(…) | cm.window(…)",
    ),
    model="cm.sink(2) | cm.window(3)",
    wrong=(
        "cm.prefix(2) | cm.window(3)",
        "cm.sink(2) | cm.window(4)",
        "cm.sink(2) & cm.window(3)",
        "cm.sink(1) | cm.window(3)",
        "cm.sink(2)",
    ),
)

# 6–9: several things at once ---------------------------------------------------------------------------------------

next_tokens = Puzzle(
    title="Four more tokens",
    task=(
        "A model has already read 12 tokens, and their keys are kept. Four new tokens come, at positions 12 to 15. "
        "Compile the causal mask for these four queries and all 16 keys."
    ),
    given=cells(cm.causal().to_dense(4, 16, q_start=12), caption="Rows: the four new queries."),
    check=same_window(cm.causal(), Plane(4, 16, 12), _order),
    hints=(
        "Positions are absolute, so the mask itself does not change; only the window onto its plane does.",
        layers({"causal": cm.causal(), "the rows you want": cm.causal() & cm.rect(q=(12, 16))}, 16),
        "cm.compile(cm.causal(), 4, …, q_start=…)",
    ),
    model="cm.compile(cm.causal(), 4, 16, q_start=12)",
    wrong=(
        "cm.compile(cm.causal(), 4, 16)",
        "cm.compile(cm.causal(), 16)",
        "cm.compile(cm.full(), 4, 16, q_start=12)",
        "cm.compile(cm.causal(), 4, 16, q_start=11)",
        "cm.causal()",
    ),
)


def _why_shared(query: int, key: int) -> str:
    if key > query:
        return _order(query, key)
    if key < 4:
        return f"{key} is in the prompt, which every answer sees"
    if _part(query) == _part(key):
        return f"both are in {_part(query)}"
    return f"{query} is in {_part(query)}, {key} in {_part(key)}"


def _part(position: int) -> str:
    return "the prompt" if position < 4 else f"answer {(position - 4) // 4 + 1}"


shared_prompt = Puzzle(
    title="One prompt, three answers",
    task=(
        "A prompt of 4 tokens and three answers of 4 each stand in one sequence of 16. All is causal; each answer "
        "sees the prompt and itself, never another answer. Use at most three regions."
    ),
    given=cells((cm.documents([4, 4, 4, 4]) | cm.prefix(4)) & cm.causal(), 16),
    check=same_cells(
        (cm.documents([4, 4, 4, 4]) | cm.prefix(4)) & cm.causal(), (Plane(16),), _why_shared, regions=3, best_regions=1
    ),
    hints=(
        "If the prompt were a document of its own, what would be missing?",
        layers({"documents, causal": cm.documents([4] * 4) & cm.causal(), "missing": cm.rect(q=(4, 16), k=(0, 4))}, 16),
        "(cm.documents([…]) | cm.prefix(…)) & cm.causal()",
    ),
    model="(cm.documents([4, 4, 4, 4]) & cm.causal()) | cm.sink(4)",
    wrong=(
        "cm.documents([4, 12]) & cm.causal()",
        "cm.documents([4, 4, 4, 4]) | cm.prefix(4)",
        "cm.documents([4, 4, 4, 4]) & cm.causal()",
        "cm.causal() & cm.prefix(4)",
        "(cm.documents([4, 4, 4, 4]) & cm.causal()) | cm.rect(q=(4, 16), k=(0, 4)) | cm.rect(q=(0, 1), k=(0, 1))",
    ),
)


def _pixel(position: int, width: int = 6) -> str:
    return f"(row {position // width}, column {position % width})"


neighbours = Puzzle(
    title="A picture on a line",
    task=(
        "A picture 4 pixels high and 6 wide is flattened row by row into 24 tokens. Each pixel sees the pixels at "
        "most one row <i>and</i> at most one column away: a 3 × 3 neighbourhood, cut off at the border."
    ),
    given=cells(cm.grid(4, 6).box(1, 1), 24),
    check=same_cells(
        cm.grid(4, 6).box(1, 1),
        (Plane(24),),
        lambda q, k: f"{q} is the pixel {_pixel(q)}, {k} is {_pixel(k)}",
        best_regions=1,
    ),
    hints=(
        "A band around the diagonal is nearly it, but then the last pixel of a row sees the first of the next.",
        layers({"grid": cm.grid(4, 6).box(1, 1), "only in a band": cm.window(1, 1) - cm.grid(4, 6).box(1, 1)}, 24),
        "cm.grid(…, …).box(…, …)",
    ),
    model="cm.grid(4, 6).box(1, 1)",
    wrong=(
        "cm.grid(6, 4).box(1, 1)",
        "cm.window(1, 1) | cm.band(5, 8) | cm.band(-7, -4)",
        "cm.grid(4, 6).box(1, 2)",
        "cm.grid(4, 6).disk(1)",
        "cm.grid(4, 6).box(3, 3)",
    ),
)


def _why_text_image(query: int, key: int) -> str:
    if min(query, key) < 4:
        return f"{query if query < 4 else key} is text, which sees and is seen by all"
    (row_q, column_q), (row_k, column_k) = divmod(query - 4, 6), divmod(key - 4, 6)
    distance = (row_q - row_k) ** 2 + (column_q - column_k) ** 2
    return f"the two pixels are √{distance} apart, and the disk is smaller than 2"


text_and_image = Puzzle(
    title="Words and pixels",
    task=(
        "Four text tokens, then a picture 4 high and 6 wide: 28 tokens. Text sees everything and is seen by "
        "everything. A pixel sees the pixels at a distance of less than 2 (as CLEAR does)."
    ),
    given=cells(cm.global_tokens([(0, 4)]) | cm.grid(4, 6).disk(2).at(q=(4, 28), k=(4, 28)), 28),
    check=same_cells(
        cm.global_tokens([(0, 4)]) | cm.grid(4, 6).disk(2).at(q=(4, 28), k=(4, 28)),
        (Plane(28),),
        _why_text_image,
        best_regions=2,
    ),
    hints=(
        "Two parts: tokens that are global, and a grid that begins at token 4. A mask can be moved with .at(q=…, k=…).",
        layers({"text": cm.global_tokens([(0, 4)]), "picture": cm.grid(4, 6).disk(2).at(q=(4, 28), k=(4, 28))}, 28),
        "cm.global_tokens([(0, 4)]) | cm.grid(4, 6).disk(…).at(q=(…, …), k=(…, …))",
    ),
    model="cm.global_tokens([(0, 4)]) | cm.grid(4, 6).disk(2).at(q=(4, 28), k=(4, 28))",
    wrong=(
        "cm.global_tokens([(0, 4)]) | cm.grid(4, 6).disk(2)",
        "cm.prefix(4) | cm.grid(4, 6).disk(2).at(q=(4, 28), k=(4, 28))",
        "cm.global_tokens([(0, 4)]) | cm.grid(4, 6).disk(3).at(q=(4, 28), k=(4, 28))",
        "cm.global_tokens([(0, 4)]) | cm.grid(6, 4).disk(2).at(q=(4, 28), k=(4, 28))",
        "cm.grid(4, 6).disk(2).at(q=(4, 28), k=(4, 28))",
    ),
)

# 10–11: somebody else's bug ----------------------------------------------------------------------------------------

LEAKING = cm.causal() & cm.documents([6, 5, 5]) | cm.sink(1)
MEANT = cm.causal() & cm.documents([6, 5, 5])

find_the_leak = Puzzle(
    title="Find the leak",
    task=(
        "Three documents of 6, 5 and 5 tokens should be causal and see nothing of one another. Somebody added a sink:"
        " <code>cm.causal() &amp; cm.documents([6, 5, 5]) | cm.sink(1)</code>. Name one cell, as a pair (query, key),"
        " that is visible and must not be."
    ),
    given=cells(LEAKING, 16),
    check=witness(LEAKING, MEANT, 16),
    hints=(
        "In Python, & binds more tightly than |. What does the sink see, then?",
        layers({"meant": MEANT, "the sink": cm.sink(1)}, 16),
        "(a query of the second document, the first token)",
    ),
    model="(7, 0)",
    wrong=("(3, 0)", "(0, 7)", "(7, 6)", "7", "(16, 0)", "(6, 6)"),
)

PADDED = [7, 6]

mend_the_padding = Puzzle(
    title="Mend the padding",
    task=(
        "A sequence of 16 slots holds documents of 7 and 6 tokens; the last three slots are padding, which must see "
        "nothing and be seen by nobody. <code>cm.documents([7, 6, 3]) &amp; cm.causal()</code> is wrong. Mend it."
    ),
    given=cells(cm.documents([7, 6, 3]) & cm.causal(), 16, caption="The wrong one: padding sees padding."),
    check=same_cells(
        cm.documents(PADDED) & cm.causal(),
        (Plane(16),),
        lambda q, k: (
            f"{q} is padding" if q >= 13 else f"{k} is padding" if k >= 13 else _causal_documents(PADDED, q, k)
        ),
        best_regions=1,
    ),
    hints=(
        "Padding is not a document. What if it is not listed at all?",
        layers({"documents": cm.documents(PADDED) & cm.causal(), "padding": cm.rect(q=(13, 16), k=(13, 16))}, 16),
        "cm.documents([7, 6]) …",
    ),
    model="cm.documents([7, 6]) & cm.causal()",
    wrong=(
        "cm.documents([7, 6, 3]) & cm.causal()",
        "cm.documents([7, 9]) & cm.causal()",
        "cm.documents([7, 6, 1, 1, 1]) & cm.causal()",
        "cm.documents([7, 6])",
        "cm.documents([6, 7]) & cm.causal()",
    ),
)

# 12–15: what it costs ----------------------------------------------------------------------------------------------

right_tile = Puzzle(
    title="The right tile",
    task=(
        "A window of 200 keys back over 4096 tokens. Choose a tile, <code>(queries, keys)</code> with sides from 32, "
        "64, 128, 256, with at most 1.45 pairs computed for each visible one and a descriptor of at most 5,500 bytes."
    ),
    given=tiles(cm.compile(cm.window(200), 4096, tile=128), caption="Tiles of 128 × 128."),
    check=good_tile(cm.window(200), 4096, waste=1.45, descriptor_bytes=5_500),
    hints=(
        "Small tiles waste little work, but there are many of them to list. The two sides need not be equal.",
        tiles(cm.compile(cm.window(200), 4096, tile=64), caption="Tiles of 64 × 64."),
        "(64, …)",
    ),
    model="(64, 32)",
    wrong=("(128, 128)", "(64, 64)", "256", "(32, 32)", "(64, 48)", "'small'"),
)

DEALT = cm.documents(ids=np.arange(1024) % 4) & cm.causal()

sort_the_cards = Puzzle(
    title="Sort the cards",
    task=(
        "Four documents of 256 tokens were dealt like cards: token i belongs to document i mod 4, and each document "
        "is causal. With 64 × 64 tiles the kernel visits 136. Give a token order, an array that names each of the "
        "1024 tokens once in the order in which they should stand, that brings this down to 40."
    ),
    given=tiles(cm.compile(DEALT, 1024, tile=64)),
    check=good_order(DEALT, tile=64, limit=40, best=40),
    hints=(
        "Bring together what belongs together, and keep each document in its own order.",
        tiles(cm.compile(cm.documents([256] * 4) & cm.causal(), 1024, tile=64), caption="Where it should go."),
        "np.argsort(np.arange(1024) % 4, kind=…)",
    ),
    model="np.argsort(np.arange(1024) % 4, kind='stable')",
    wrong=("np.arange(1024)", "np.arange(1024) % 4", "np.arange(1024)[::-1]", "np.arange(256)", "np.arange(1024) // 4"),
)

PICTURE = cm.grid(32, 128).disk(8)

cut_into_patches = Puzzle(
    title="Cut into patches",
    task=(
        "A picture 32 pixels high and 128 wide, each of which sees a disk of radius 8, is flattened row by row; tiles"
        " are 64 × 64, and 1696 of them are visited. Give a token order, an array that names each of the 4096 pixels "
        "once, with at most 480."
    ),
    given=tiles(cm.compile(PICTURE, 4096, tile=64)),
    check=good_order(PICTURE, tile=64, limit=480, best=460),
    hints=(
        "A tile holds 64 tokens. Which 64 pixels lie closest together?",
        cells(np.kron(np.indices((4, 16)).sum(0) % 2 == 0, np.ones((8, 8), np.bool_)), caption="A picture in squares."),
        "np.arange(4096).reshape(4, 8, 16, 8).swapaxes(…, …).reshape(-1)",
    ),
    model="np.arange(4096).reshape(4, 8, 16, 8).swapaxes(1, 2).reshape(-1)",
    wrong=(
        "np.arange(4096)",
        "np.arange(4096).reshape(32, 128).T.reshape(-1)",
        "np.arange(4096).reshape(4, 8, 16, 8).swapaxes(0, 1).reshape(-1)",
        "np.arange(4096) // 64",
        "np.arange(4096).reshape(4, 8, 16, 8).swapaxes(1, 2)",
    ),
)

CLEAR_PAIRS = 56_975_456

predict_the_floor = Puzzle(
    title="How fast can it be?",
    task=(
        "CLEAR with r = 16 on 512 text tokens and an image of 168 × 192 has 56,975,456 visible pairs. Each pair costs"
        " 4·D operations in the forward pass; D = 128, and there are 16 heads. An H200 does 790 · 10<sup>12</sup> "
        "operations a second with bf16 matrices. How many milliseconds must the forward pass take at least?"
    ),
    check=close_to(
        4 * CLEAR_PAIRS * 128 * 16 / H200_RATE * 1e3, "ms", "4 · 56,975,456 pairs · 128 · 16 heads / 790e12 per second"
    ),
    hints=(
        "Operations over operations a second; then mind the unit.",
        layers({"q·k: 2·D operations a cell": cm.grid(3, 4).disk(2)}, 12),
        "4 * 56_975_456 * 128 * … / 790e12 * 1e3",
    ),
    model="4 * 56_975_456 * 128 * 16 / 790e12 * 1e3",
    wrong=(
        "2 * 56_975_456 * 128 * 16 / 790e12 * 1e3",
        "4 * 56_975_456 * 128 * 16 / 790e12",
        "4 * 32768 * 32768 * 128 * 16 / 790e12 * 1e3",
        "4 * 56_975_456 * 128 / 790e12 * 1e3",
        "0",
        "'0.6 ms'",
    ),
)

COURSE = Course(
    (
        lower_triangle,
        look_back,
        two_documents,
        prefix_model,
        sink_and_window,
        next_tokens,
        shared_prompt,
        neighbours,
        text_and_image,
        find_the_leak,
        mend_the_padding,
        right_tile,
        sort_the_cards,
        cut_into_patches,
        predict_the_floor,
    )
)
"""All puzzles in their order: ``COURSE.show(1)``, ``COURSE.check(1, answer)``, ``COURSE.hint(1)``."""
