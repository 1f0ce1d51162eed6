"""``make demo``: the whole job without a browser, on whatever device is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import cmask_lab as cm
from cmask_lab.bench.contenders import baselines_for
from cmask_lab.bench.device import describe, usable_device
from cmask_lab.bench.html import page
from cmask_lab.bench.progress import finished
from cmask_lab.bench.report import Case, Report
from cmask_lab.bench.run import stream
from cmask_lab.bench.subjects import FOUR, Subject, subject
from cmask_lab.bench.suite import line_up
from cmask_lab.bench.timing import Rules
from cmask_lab.short_text import shortened

EXPORTS = {"python": "py", "json": "json", "flex": "flex.py"}
"""What the demo exports each mask as, and how the files' names end."""


@dataclass(frozen=True)
class Size:
    """What the demo measures on one kind of device."""

    seq_len: int
    heads: int
    head_dim: int
    dtype: str
    direction: str
    seconds_a_mask: float
    rules: Rules


SIZES = {
    "cuda": Size(32768, 16, 128, "bfloat16", "both", 90.0, Rules(at_most=60, seconds=4.0)),
    "cpu": Size(2048, 4, 64, "float32", "forward", 40.0, Rules(at_least=8, at_most=40, target=0.02, seconds=3.0)),
}
"""On a GPU the size at which the paper's figures are given; on a CPU one that is done in about a minute."""


def run(
    out: Path,
    *,
    device: str | None = None,
    seq_len: int | None = None,
    say: Callable[[str], None] = print,
) -> Report:
    """Design, compile, run, check, compare, export, report.

    Args:
        out: folder for ``report.html``, ``report.json`` and ``exported/``.
        device: the best one there is, if not given.
        seq_len: tokens; what suits the device, if not given.
    """
    chosen = usable_device(device)
    size = SIZES[chosen.type]
    size = replace(size, seq_len=size.seq_len if seq_len is None else seq_len)
    about = describe(chosen)
    shape = f"{size.seq_len:,} tokens, {size.heads} heads, D={size.head_dim}, {size.dtype}"
    say(f"Device: {about['name']} ({chosen.type}). Masks of {shape}.")
    masks = [subject(name, size.seq_len) for name in FOUR]
    say("\n1. Design and compile")
    for each in masks:
        say(_compiled(each))
    say("\n2. Run, check against the oracle, compare")
    report = finished(_reports(masks, size, chosen))
    say(report.table())
    say("\n3. Export")
    code = {each.name: _exported(each, out / "exported") for each in masks}
    for each in masks:
        say(
            f"  {each.title}: {', '.join(str(Path('exported') / f'{each.name}.{EXPORTS[t]}') for t in code[each.name])}"
        )
    report.save(out / "report.json")
    (out / "report.html").write_text(page(report, code), encoding="utf-8")
    say(f"\nWrote {out / 'report.html'} (open it in a browser) and {out / 'report.json'}.")
    say("Next: make lab — opens JupyterLab on notebooks/studio.ipynb, with the same set-up.")
    return report


def _compiled(each: Subject) -> str:
    began = time.perf_counter()
    compiled = cm.compile(each.mask, each.seq_len)
    spent = (time.perf_counter() - began) * 1e3
    stats = compiled.stats
    patterns = f"{stats.patterns} pattern{'' if stats.patterns == 1 else 's'}"
    return (
        f"  {each.title}: density {stats.density:.4g}, {stats.full_tiles:,} full and {stats.partial_tiles:,} partial "
        f"tiles of {compiled.tile[0]}×{compiled.tile[1]}, {patterns}, descriptor "
        f"{stats.descriptor_bytes / 1024:.1f} KiB, compiled in {spent:.1f} ms\n    {shortened(repr(each.mask), 150)}"
    )


def _reports(masks: list[Subject], size: Size, device: torch.device) -> Iterator[Report]:
    """All masks in one report, as far as it is."""
    cases: tuple[Case, ...] = ()
    for number, each in enumerate(masks):
        ours, baselines = line_up(each, ["cmask"], baselines_for(device.type))
        for part in stream(
            each,
            heads=size.heads,
            head_dim=size.head_dim,
            dtype=size.dtype,
            direction=size.direction,
            ours=ours,
            baselines=baselines,
            device=device,
            seconds=size.seconds_a_mask,
            rules=size.rules,
        ):
            made = (*cases, part.case)
            if part.done:
                cases = made
            yield replace(
                part,
                cases=made,
                done=part.done and len(made) == len(masks),
                progress=(number + part.progress) / len(masks),
                doing=f"{part.case.title}, {part.doing}",
            )


def _exported(each: Subject, folder: Path) -> dict[str, str]:
    """Source by target, also written into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = {target: cm.export(each.mask, target, q_len=each.seq_len) for target in EXPORTS}
    for target, source in sources.items():
        (folder / f"{each.name}.{EXPORTS[target]}").write_text(source, encoding="utf-8")
    return sources
