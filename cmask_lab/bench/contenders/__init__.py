"""The contenders of a benchmark by name: ours, and the baselines."""

from __future__ import annotations

from cmask_lab.bench.contenders.contender import Contender
from cmask_lab.bench.contenders.flex import Flex
from cmask_lab.bench.contenders.native import DenseSdpa, FlashAttention4, Sdpa
from cmask_lab.bench.contenders.ours import VARIANTS, Ours

CUDA_BASELINES = ("flex-fa4", "flex-triton", "fa4", "sdpa-cudnn", "sdpa-flash", "sdpa-dense")
CPU_BASELINES = ("sdpa-dense", "flex-cpu")
NAMES = tuple(dict.fromkeys((*CUDA_BASELINES, *CPU_BASELINES)))
"""All baselines."""


def make(name: str) -> Contender:
    """The contender of that name.

    Names: "cmask", "cmask-BACKEND", each with "+order", "+kept" or "+silu"; "flex-fa4", "flex-triton", "flex-cpu", each
    with "+kept"; "fa4", "sdpa-cudnn", "sdpa-flash", "sdpa-dense".

    Raises:
        ValueError: there is none.

    >>> make("cmask-reference+silu").name
    'cmask-reference+silu'
    """
    base = name.partition("+")[0]
    if base == "cmask" or base.startswith("cmask-"):
        return Ours(name)
    if base in ("flex-fa4", "flex-triton", "flex-cpu"):
        return Flex(name)
    if name == "fa4":
        return FlashAttention4()
    if name in Sdpa.BACKENDS:
        return Sdpa(name)
    if name == "sdpa-dense":
        return DenseSdpa()
    raise ValueError(
        f"contender: {name!r} is unknown; there are 'cmask' and 'cmask-BACKEND', each with "
        f"{', '.join('+' + v for v in VARIANTS)}, and the baselines {', '.join(map(repr, NAMES))}"
    )


def is_ours(name: str) -> bool:
    """Whether a name is that of our operator.

    >>> is_ours("cmask+order"), is_ours("flex-fa4+kept")
    (True, False)
    """
    return name.partition("+")[0].partition("-")[0] == "cmask"


def baselines_for(device_type: str) -> tuple[str, ...]:
    """The baselines worth asking for on a device: all on a GPU, on the CPU those that can run there."""
    return CUDA_BASELINES if device_type == "cuda" else CPU_BASELINES
