"""Masks of every family at small odd sizes, and hypothesis strategies for compositions of them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import cmask_lab as cm
from cmask_lab.masks.mask import Mask

Q_LEN = 150
"""More than two tiles of 64 and not a multiple of anything; the families below are made for it."""


def families() -> dict[str, Mask]:
    """One mask of each family for ``Q_LEN`` positions."""
    random = np.random.default_rng(7)
    text = cm.rect(q=(0, 22)) | cm.rect(k=(0, 22))
    clear = text | cm.grid(8, 16).disk(3).at(q=(22, 150), k=(22, 150))
    return {
        "full": cm.full(),
        "empty": cm.empty(),
        "causal": cm.causal(),
        "anticausal": cm.anticausal(),
        "window": cm.window(17, 5),
        "band": cm.band(-70, -3),
        "prefix": cm.prefix(40) | cm.causal(),
        "sink": cm.sink(4) | (cm.window(20) & cm.causal()),
        "rows without keys": cm.causal() - cm.rect(q=(60, 75)),
        "documents": cm.documents([0, 1, 40, 64, 0, 45]) & cm.causal(),
        "padding": cm.documents(ids=[-1] * 10 + [3] * 60 + [1] * 40 + [3] * 40),
        "strided": cm.strided(3) & cm.causal(),
        "tree": cm.tree([-1, *(int(random.integers(0, n)) for n in range(1, 150))]),
        "grid": clear,
        "random": cm.from_dense(random.random((150, 150)) < 0.2),
    }


def compositions() -> st.SearchStrategy[Mask]:
    """Set algebra on regions; all have no extent, so they fit any lengths."""
    number = st.integers(-90, 90)
    span = st.tuples(st.integers(0, 150), st.integers(0, 150)).map(lambda ends: (min(ends), max(ends)))
    regions = st.one_of(
        st.sampled_from([cm.full(), cm.causal(), cm.anticausal()]),
        st.builds(lambda a, b: cm.band(min(a, b), max(a, b)), number, number),
        st.builds(lambda a, b: cm.window(a, b), st.integers(0, 80), st.integers(0, 80)),
        st.builds(lambda n: cm.strided(n), st.integers(1, 9)),
        st.builds(lambda q, k: cm.rect(q=q, k=k), span, span),
    )
    return st.recursive(
        regions,
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a, b: a - b, inner, inner),
            inner.map(lambda a: ~a),
        ),
        max_leaves=4,
    )
