"""Parameters to check every entry with: small, odd, at the edges of their ranges, and not square."""

from __future__ import annotations

from itertools import product
from typing import Any

from cmask_lab.masks import gallery

Case = dict[str, Any]


def every(**values: list[Any]) -> list[Case]:
    """All combinations."""
    return [dict(zip(values, choice, strict=True)) for choice in product(*values.values())]


FREE = [(13, 13, 0), (7, 19, 0), (19, 7, 0), (5, 23, 18), (1, 17, 16)]
"""Views ``(q_len, kv_len, q_start)`` of masks without an end."""

CASES: dict[str, list[Case]] = {
    "full": [{}],
    "causal": [{}],
    "sliding_window": every(window=[1, 3, 40]),
    "bidirectional_window": every(left=[0, 2, 40], right=[0, 3]),
    "sink_window": every(sinks=[0, 1, 5], window=[1, 4]),
    "prefix_lm": every(prefix=[0, 5, 7]),
    "chunked_causal": every(length=[1, 13, 24], chunk=[1, 5, 24, 30]),
    "documents_full": every(lengths=[[1], [3, 1, 7], [0, 4, 0, 2]]),
    "documents_causal": every(lengths=[[1], [3, 1, 7], [1, 4, 9, 16]]),
    "documents_prefix": every(parts=[[[0, 3], [3, 3]], [[2, 5], [1, 1], [4, 9]]]),
    "causal_blockwise": every(lengths=[[3], [2, 5, 3], [4, 1, 1, 6]]),
    "shared_prompt": every(prompt=[0, 1, 6], answers=[[3], [1, 4, 2], [0, 5]]),
    "shared_prompts": every(groups=[[[3, 2, 2]], [[1, 4, 1], [5, 0, 3], [0, 2]], [[4]]]),
    "image_in_text": every(images=[[], [(1, 4)], [(0, 3), (3, 6), (9, 9)]]),
    "image_prefix": every(image=[0, 3], prompt=[0, 4]),
    "flamingo": [*every(text=[11], places=[[0], [2, 5, 5, 10]], image=[1, 3]), {"text": 4, "places": [4], "image": 2}],
    "longformer": every(reach=[0, 2], tokens=[[(0, 1)], [(3, 5), (6, 7)], [(2, 2)]]),
    "dilated_window": every(window=[1, 3, 8], dilation=[1, 2, 5]),
    "sparse_strided": every(length=[1, 17, 24], stride=[1, 3, 6, 30]),
    "sparse_fixed": [
        case
        for case in every(length=[1, 17, 24], stride=[1, 4, 6], summary=[0, 1, 4])
        if case["summary"] <= case["stride"]
    ],
    "qk_sparse": every(spans=[[], [(2, 6)], [(0, 3), (5, 9), (9, 9)]]),
    "clear": every(text=[0, 3], height=[3, 7], width=[5, 4], radius=[1, 2, 4]),
    "clear_pooled": every(text=[0, 3], height=[5], width=[7], radius=[1, 3], factor=[1, 2, 6]),
    "swin": every(height=[4, 7], width=[6, 5], window=[1, 2, 3, 9]),
    "swin_shifted": [
        *every(height=[4, 8], width=[4, 12], window=[4], shift=[0, 1, 2, 3]),
        *every(height=[5, 2], width=[7], window=[3], shift=[1]),
    ],
    "axial": every(height=[1, 4], width=[3, 5], axis=["both", "row", "column"]),
    "natten_1d": [
        *every(length=[13], kernel=[1, 4, 5, 13], dilation=[1], stride=[1, 2, 3], causal=[False, True]),
        *every(length=[17], kernel=[3, 4], dilation=[2, 4], stride=[1, 3], causal=[False, True]),
    ],
    "natten_2d": [
        *every(shape=[[4, 6], [7, 5]], kernel=[[3], [2, 4]], dilation=[[1]], stride=[[1], [2]], causal=[[0], [1, 0]]),
        *every(shape=[[6, 9]], kernel=[[3]], dilation=[[2, 3]], stride=[[1], [2, 3]], causal=[[0], [0, 1], [1]]),
    ],
    "natten_3d": every(
        shape=[[3, 4, 5]],
        kernel=[[2], [3, 3, 2]],
        dilation=[[1], [1, 1, 2]],
        stride=[[1], [2, 1, 2]],
        causal=[[0], [1, 0, 0]],
    ),
    "sta_2d": every(
        shape=[[4, 6]], tile=[[2, 2], [1, 3]], window=[[1, 1], [2, 3], [9, 9]], text=[0, 3], order=["tiles", "rows"]
    ),
    "sta_3d": every(
        shape=[[3, 2, 4]], tile=[[1, 2, 2]], window=[[3, 1, 1], [1, 1, 2]], text=[0, 2], order=["tiles", "rows"]
    ),
    "svg_spatial": every(frames=[1, 5], frame=[1, 4], reach=[0, 1, 9], text=[0, 3]),
    "svg_temporal": every(frames=[1, 5], frame=[1, 4], reach=[0, 1, 9], text=[0, 3]),
    "block_causal_video": every(frames=[1, 5], frame=[1, 3], chunk=[1, 2, 8]),
    "hstu": [
        *every(
            length=[13],
            contextual=[0, 1, 4],
            targets=[0, 1, 5],
            window=[0, 1, 3, 20],
            full_tail=[0, 2, 30],
            target_group_size=[1],
        ),
        *every(length=[16], contextual=[0, 3], targets=[7], window=[0, 4], full_tail=[0], target_group_size=[2, 3, 7]),
        *every(length=[6], contextual=[0, 6], targets=[6, 4], window=[0, 2], full_tail=[0, 1], target_group_size=[1]),
    ],
    "hstu_packed": [
        *every(
            lengths=[[7, 7, 7], [5, 9, 12]],
            contextual=[0, 2],
            targets=[[3]],
            window=[0, 3],
            full_tail=[0, 1],
            target_group_size=[1, 2],
        ),
        {"lengths": [4, 9], "contextual": 1, "targets": [0, 5], "window": 0, "full_tail": 0, "target_group_size": 1},
    ],
    "eagle3_training": every(length=[1, 7], steps=[1, 4], valid=[0, 1]) + every(length=[9], steps=[3], valid=[5, 9]),
    "dflash_training": every(context=[1, 9], anchors=[[0], [1, 0, 1]], draft=[1, 3])
    + every(context=[12], anchors=[[3, 3, 12, 7]], draft=[4]),
    "jetspec_training": every(context=[0, 5], drafts=[1, 4], draft=[1, 3]),
    "block_diffusion": every(length=[1, 8, 11], block=[1, 3, 16], order=["noisy first", "clean first"]),
    "multi_token": every(length=[1, 7], ahead=[1, 3], every=[1, 3]),
    "context_parallel": [
        case
        for case in every(
            length=[16, 13], ranks=[1, 3, 4], rank=[0, 1, 3], layout=["zigzag", "contiguous", "striped"], window=[0, 5]
        )
        if case["rank"] < case["ranks"]
    ],
    "decode": every(cached=[0, 11], new=[1, 3], window=[0, 4, 40]),
    "chunked_prefill": every(cached=[0, 11], chunk=[1, 6], window=[0, 4]),
    "continuous_batching": [
        {"cached": [5], "new": [1]},
        {"cached": [3, 0, 7], "new": [1, 6, 2]},
    ],
    "tree_attention": every(context=[0, 5], parents=[[-1], [-1, 0, 0, 2, 3, -1, 5], [1, 2, -1]]),
    "medusa_tree": every(context=[0, 3], branching=[[1], [3], [2, 3, 1]]),
}

SEEDED = {
    "random_tiles": every(length=[1, 40, 37], tile=[1, 8], density=[0.0, 0.3, 1.0], causal=[True, False], seed=[0, 5]),
    "bigbird": every(length=[1, 40, 37], tile=[1, 5], window=[1, 3], random=[0, 2], globals=[0, 1], seed=[0, 5]),
    "random_eviction": every(length=[1, 33], recent=[1, 6, 50], seed=[0, 5]),
}
"""Entries with random choices: checked by their properties."""


def views(mask: Any) -> list[tuple[int, int, int]]:
    """Windows ``(q_len, kv_len, q_start)`` that show the mask: what it was made for, and parts of it."""
    queries, keys = mask.extent
    if queries is None:
        return [view for view in FREE if keys is None or view[1] >= keys]
    whole = (queries, keys, 0)
    return [whole] if queries < 4 else [whole, (queries - 3, keys, 2), (1, keys, queries - 1)]


def all_cases() -> dict[str, list[Case]]:
    """Every entry's cases, and its defaults left out: they are larger than a cell by cell check likes."""
    return {name: (CASES | SEEDED)[name] for name in gallery.names()}
