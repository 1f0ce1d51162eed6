"""The benchmark's front door: its arguments, checked, and the measurement that they ask for.

:func:`stream` yields a report after each step, so that a page or a progress bar can follow; :func:`benchmark` waits for
the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

import cmask_lab as cm
from cmask_lab.bench import contenders as roster
from cmask_lab.bench.contenders.contender import Setting
from cmask_lab.bench.device import usable_device
from cmask_lab.bench.flops import BACKWARD, DIRECTIONS
from cmask_lab.bench.measurement import Measurement
from cmask_lab.bench.progress import finished
from cmask_lab.bench.report import ITEMSIZE, Report
from cmask_lab.bench.subjects import Subject, plain
from cmask_lab.bench.timing import RULES, Rules
from cmask_lab.masks.mask import Mask, checked_mask


def benchmark(
    mask: Mask | Subject,
    *,
    batch: int = 1,
    heads: int = 16,
    kv_heads: int | None = None,
    head_dim: int = 128,
    seq_len: int | None = None,
    dtype: str = "bfloat16",
    direction: str = "forward",
    baselines: Sequence[str] | None = None,
    ours: Sequence[str] = ("cmask",),
    device: str | torch.device | None = None,
    seconds: float = 120.0,
    rules: Rules | None = None,
) -> Report:
    """Measure attention with a mask: ours and every baseline, checked against the oracle, interleaved in one run.

    Args:
        mask: any mask, for ``seq_len`` queries and keys.
        seq_len: 32,768, or what the mask was made for (:func:`cmask_lab.masks.lengths.own_lengths`), if not given.
        kv_heads: as many as ``heads`` if not given.
        dtype: "bfloat16", "float16" or "float32".
        direction: "forward", "backward" or "both". Forward alone is timed without what training would keep.
        baselines: names, see :func:`cmask_lab.bench.contenders.make`; all that make sense on the device if not given.
        ours: our contenders; the first one is compared with all others.
        device: the first GPU if there is one, else the CPU.
        seconds: what the whole run may take, compilers included. Contenders for which no time is left say so.
        rules: when rounds are warm and when they end; what suits the device if not given.

    >>> import cmask_lab as cm
    >>> from cmask_lab.bench.timing import Rules
    >>> short = Rules(at_least=4, at_most=4, warmup_ms=1)
    >>> report = benchmark(cm.causal(), heads=2, head_dim=32, seq_len=256, dtype="float32", device="cpu",
    ...                    baselines=["sdpa-dense"], rules=short)
    >>> report.case.entry("cmask", "forward").status, report.case.entry("sdpa-dense", "forward").summary.n
    ('ok', 4)
    """
    reports = stream(
        mask,
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        seq_len=seq_len,
        dtype=dtype,
        direction=direction,
        baselines=baselines,
        ours=ours,
        device=device,
        seconds=seconds,
        rules=rules,
    )
    return finished(reports)


def stream(
    mask: Mask | Subject,
    *,
    batch: int = 1,
    heads: int = 16,
    kv_heads: int | None = None,
    head_dim: int = 128,
    seq_len: int | None = None,
    dtype: str = "bfloat16",
    direction: str = "forward",
    baselines: Sequence[str] | None = None,
    ours: Sequence[str] = ("cmask",),
    device: str | torch.device | None = None,
    seconds: float = 120.0,
    rules: Rules | None = None,
) -> Iterator[Report]:
    """The same as :func:`benchmark`, yielding the report again and again as it fills; the last one has ``done``."""
    subject = mask if isinstance(mask, Subject) else plain(checked_mask(mask, "benchmark: mask"), seq_len)
    chosen = usable_device(device)
    directions = _directions(direction)
    names = _names(ours, roster.baselines_for(chosen.type) if baselines is None else baselines)
    if dtype not in ITEMSIZE:
        raise ValueError(f"dtype: {dtype!r} is not one of {', '.join(map(repr, ITEMSIZE))}")
    for name, value in (("batch", batch), ("heads", heads), ("head_dim", head_dim)):
        if value < 1:
            raise ValueError(f"{name}: {value}; give at least 1")
    kv_heads = heads if kv_heads is None else kv_heads
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"kv_heads: {kv_heads}; give a divisor of heads, {heads}")
    setting = Setting(
        subject=subject,
        compiled=cm.compile(subject.mask, subject.seq_len),
        device=chosen,
        dtype=getattr(torch, dtype),
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        needs_grad=BACKWARD in directions,
    )
    yield from Measurement(setting, names, directions, rules or RULES[chosen.type], seconds).reports()


def _directions(direction: str) -> tuple[str, ...]:
    if direction == "both":
        return DIRECTIONS
    if direction in DIRECTIONS:
        return (direction,)
    raise ValueError(f"direction: {direction!r} is not one of 'forward', 'backward', 'both'")


def _names(ours: Sequence[str], baselines: Sequence[str]) -> list[str]:
    if isinstance(ours, str) or isinstance(baselines, str):
        raise TypeError("ours and baselines are lists of names, such as ['flex-triton']")
    if wrong := [name for name in ours if not roster.is_ours(name)]:
        what = "a baseline" if wrong[0] in roster.NAMES else "unknown"
        raise ValueError(f"ours: {wrong[0]!r} is {what}; ours are 'cmask' and its variants, such as 'cmask-portable'")
    if not ours:
        raise ValueError("ours: empty; give 'cmask' or one of its variants")
    return list(dict.fromkeys((*ours, *baselines)))
