"""The suite's masks against their formulas, their predicates against the masks, counts against what was measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import cmask_lab as cm
from cmask_lab.bench import predicates, subjects

CPU = torch.device("cpu")


def evaluate(predicate: predicates.MaskMod, length: int) -> np.ndarray:
    """A mask_mod on every cell, with int32 indices as FlexAttention has them."""
    position, zero = torch.arange(length, dtype=torch.int32), torch.zeros((), dtype=torch.int32)
    return predicate(zero, zero, position[:, None], position[None]).expand(length, length).numpy()


def is_prompt_mask(mask: np.ndarray) -> bool:
    """Causal, every token sees itself, and whoever is seen by a later answer is seen by that answer's whole rest."""
    return bool(mask.diagonal().all() and not np.triu(mask, 1).any())


@pytest.mark.parametrize("name", subjects.PAPER)
@pytest.mark.parametrize("seq_len", [512, 1000, 1024, 2048])
def test_the_handwritten_predicate_is_the_mask(name: str, seq_len: int) -> None:
    subject = subjects.subject(name, seq_len)
    assert subject.predicate is not None
    assert np.array_equal(evaluate(subject.predicate(CPU, None), seq_len), subject.mask.to_dense(seq_len))


@pytest.mark.parametrize("name", subjects.PAPER)
def test_the_predicate_from_intervals_is_the_mask(name: str) -> None:
    subject = subjects.subject(name, 700)
    found = evaluate(predicates.from_intervals(subject.mask.intervals(700), CPU), 700)
    assert np.array_equal(found, subject.mask.to_dense(700))


@pytest.mark.parametrize(
    "mask",
    [
        cm.empty(),
        cm.strided(3),
        cm.window(5) & cm.strided(2),
        cm.documents([0, 40, 0, 24]) - cm.causal(),
        cm.sink(4) | cm.window(9),
    ],
    ids=repr,
)
def test_any_mask_has_a_predicate(mask: cm.Mask) -> None:
    found = evaluate(predicates.from_intervals(mask.intervals(64), CPU), 64)
    assert np.array_equal(found, mask.to_dense(64))


def in_patches(seq_len: int, rows: int, columns: int) -> np.ndarray:
    """The order that walks the image patch by patch, row by row inside each; patches at the edges are cut off."""
    text, height, width = subjects.image_shape(seq_len)
    image = text + np.arange(height * width).reshape(height, width)
    corners = [(y, x) for y in range(0, height, rows) for x in range(0, width, columns)]
    pieces = [image[y : y + rows, x : x + columns].reshape(-1) for y, x in corners]
    return np.concatenate([np.arange(text), *pieces])


@pytest.mark.parametrize(("patch", "regular"), [((7, 16), True), ((6, 4), True), ((42, 1), True), ((8, 16), False)])
def test_clear_with_tokens_in_patches(patch: tuple[int, int], regular: bool) -> None:
    """Patches that divide the image are computed, others looked up; both are the mask of the permuted tokens."""
    subject, order = subjects.clear(2048, 8), in_patches(2048, *patch)
    assert subject.predicate is not None
    predicate = subject.predicate(CPU, order)
    assert predicate.__name__ == ("patch_by_patch" if regular else "looked_up")
    assert np.array_equal(evaluate(predicate, 2048), subject.mask.to_dense(2048)[np.ix_(order, order)])


def test_hstu_is_the_formula_of_its_paper() -> None:
    length, contextual, targets = 1024, 8, 128
    i, j = np.arange(length)[:, None], np.arange(length)[None]
    history = length - targets
    query, key = np.minimum(i, history), np.minimum(j, history)
    expected = (i == j) | (query > key) | ((i < contextual) & (j < history))
    assert np.array_equal(subjects.hstu(length).mask.to_dense(length), expected)


def test_clear_is_text_and_disks() -> None:
    text, _, width = subjects.image_shape(1024)
    token = np.arange(1024) - text
    y, x = token // width, token % width
    near = (y[:, None] - y) ** 2 + (x[:, None] - x) ** 2 < 64
    is_text = token < 0
    expected = is_text[:, None] | is_text[None] | near
    assert np.array_equal(subjects.clear(1024, 8).mask.to_dense(1024), expected)


def test_answers_see_the_prompt_and_themselves() -> None:
    mask = subjects.shared_prompt(512).mask.to_dense(512)
    first_answer, second_answer = 64, 72
    assert is_prompt_mask(mask)
    assert mask[second_answer, :64].all()
    assert not mask[second_answer, first_answer:second_answer].any()
    assert not mask[128:, :128].any(), "the next group sees nothing of this one"


MEASURED = {
    "causal": (0.500, 256, 32640),
    "hstu": (0.494, 479, 32144),
    "shared-prompt": (0.098, 256, 6272),
    "reward": (0.050, 823, 2934),
    "documents": (0.011, 703, 386),
    "window": (0.031, 504, 1764),
    "clear-r8": (0.037, 5664, 2032),
    "clear-r16": (0.053, 11292, 2032),
    "hstu-packed": (0.021, 966, 1038),
}
"""Density, partial and full tiles of 128×128 at 32,768 tokens, counted on a GPU from the predicates alone."""


@pytest.mark.parametrize("name", MEASURED)
def test_full_size_masks_are_the_ones_that_were_measured(name: str) -> None:
    stats = cm.compile(subjects.subject(name, 32768).mask, 32768, tile=(128, 128)).stats
    density, partial, full = MEASURED[name]
    assert (round(stats.density, 3), stats.partial_tiles, stats.full_tiles) == (density, partial, full)


@pytest.mark.parametrize("seq_len", [512, 777, 1024, 4096, 8192, 16384, 32768])
def test_every_mask_fits_its_length(seq_len: int) -> None:
    for subject in subjects.subjects("paper", seq_len):
        assert subject.mask.intervals(seq_len).q_len == seq_len
        assert cm.from_spec(subject.mask.spec()) == subject.mask


def test_native_masks_are_recognised() -> None:
    assert subjects.plain(cm.causal(), 64).native == "causal"
    assert subjects.plain(cm.full(), 64).native == "full"
    assert subjects.plain(cm.window(7), 64).native == ("window", 7)
    assert subjects.plain(cm.window(7, 1), 64).native is None
    assert subjects.plain(cm.causal() & cm.prefix(3), 64).native is None


def test_unknown_names_and_short_sequences_are_errors() -> None:
    with pytest.raises(ValueError, match="'papers' is not one of"):
        subjects.subjects("papers", 1024)
    with pytest.raises(ValueError, match="'casual' is not one of"):
        subjects.subject("casual", 1024)
    with pytest.raises(ValueError, match="at least 512"):
        subjects.subject("hstu", 100)
    assert subjects.subject("causal", 100).seq_len == 100
