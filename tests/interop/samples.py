"""Masks of every kind, for round trips and exports: name → (mask, q_len, kv_len, q_start)."""

from __future__ import annotations

import numpy as np

import cmask_lab as cm

rng = np.random.default_rng(20)

SAMPLES = {
    "full": (cm.full(), 40, 52, 0),
    "empty": (cm.empty(), 40, 40, 0),
    "causal": (cm.causal(), 100, 100, 0),
    "causal, later queries": (cm.causal(), 17, 100, 83),
    "anticausal": (cm.anticausal(), 40, 52, 0),
    "window": (cm.window(7, 2), 70, 70, 0),
    "window to the end": (cm.window(None, 3), 40, 52, 0),
    "band": (cm.band(-9, -2), 64, 64, 0),
    "rectangle": (cm.rect(q=(3, 20), k=(5, 31)), 40, 40, 0),
    "prefix": (cm.prefix(9) | cm.causal(), 50, 50, 0),
    "sink and window": (cm.sink(4) | cm.window(10), 80, 80, 0),
    "suffix": (cm.suffix(9), 10, 40, 0),
    "global tokens": (cm.global_tokens([(0, 2), (17, 19)]) | cm.window(4, 4), 60, 60, 0),
    "documents": (cm.documents([3, 0, 20, 14]) & cm.causal(), 45, 45, 0),
    "equal documents": (cm.documents([16] * 4), 64, 64, 0),
    "document ids": (cm.documents(ids=[0, 0, 1, 1, -1, 0, 2, 2, 1] * 5), 45, 45, 0),
    "strided": (cm.strided(5, 2) & cm.causal(), 50, 50, 0),
    "tiles": (cm.tiles(["101", "011"], (16, 8)), 32, 24, 0),
    "tree": (cm.tree([-1, 0, 0, 1, 1, 2, 5, 6, -1, 8]), 10, 10, 0),
    "explicit": (cm.from_dense(rng.random((37, 53)) < 0.4), 37, 53, 0),
    "explicit, one interval a row": (cm.explicit([0, 1, 1, 2], [0, 4], [3, 9]), 3, 9, 0),
    "disk": (cm.grid(6, 9).disk(3), 54, 54, 0),
    "ball": (cm.grid(3, 4, 5).disk(2), 60, 60, 0),
    "box": (cm.grid(5, 8).box(1, 2), 40, 40, 0),
    "neighborhood": (cm.grid(4, 6).neighborhood(3), 24, 24, 0),
    "dilated, causal neighborhood": (
        cm.grid(3, 7, 9).neighborhood((2, 3, 4), dilation=(1, 2, 2), causal=(True, False, False)),
        189,
        189,
        0,
    ),
    "axial": (cm.grid(5, 7).axial(), 35, 35, 0),
    "axial in time": (cm.grid(3, 3, 4).axial((0, 2)), 36, 36, 0),
    "causal in time": (cm.grid(3, 2, 4).causal_time(), 24, 24, 0),
    "text and image": (
        cm.rect(k=(0, 11)).named("text keys")
        | cm.rect(q=(0, 11)).named("text rows")
        | cm.grid(5, 8).disk(3).at(q=(11, 51), k=(11, 51)).named("the image's disk"),
        51,
        51,
        0,
    ),
    "difference": (cm.causal() - cm.documents([9, 30]), 39, 39, 0),
    "complement": (~(cm.window(5) | cm.prefix(2)), 40, 40, 0),
    "at": (cm.documents([4, 6]).at(q=(5, 15), k=(20, 30)), 20, 40, 0),
    "repeat": (cm.causal().repeat([3, 0, 12, 7]), 22, 22, 0),
    "repeat, equal sizes": (cm.window(2).repeat([8] * 5), 40, 40, 0),
    "repeat each": (cm.repeat([9, 0, 5, 9], [cm.causal(), cm.full(), cm.full(), cm.window(2)]), 23, 23, 0),
    "take": (cm.causal().take(q=rng.permutation(40), k=rng.permutation(40)), 40, 40, 0),
    "take queries": (cm.window(6).take(q=[31, 2, 2, 19]), 4, 40, 0),
    "transposed": ((cm.documents([9, 13]) & cm.causal()).transposed(), 22, 22, 0),
    "table smaller than the plane": (cm.documents([5, 7]) | cm.causal(), 30, 30, 0),
}

PER_HEAD = cm.per_head([cm.causal(), cm.window(5, 5), cm.causal()])
PER_BATCH = cm.per_batch(
    [cm.per_head([cm.documents([20, 30]), cm.full()]), cm.per_head([cm.documents([9, 41]) & cm.causal(), cm.window(7)])]
)
