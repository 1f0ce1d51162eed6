"""Which kernels there are, what each can run, and which one a call gets.

A backend is a module with an object ``BACKEND`` that fulfils :class:`Backend`. It is imported when it is first asked
for, so a missing Triton, or a kernel for a chip that is not there, costs nothing.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from cmask_lab.compiler.compile import CompiledMask

ACTIVATIONS = ("softmax", "silu")


@dataclass(frozen=True)
class Problem:
    """What a backend needs to know to say whether it can run a call; no tensors, only facts about them.

    Attributes:
        device_type: "cuda" or "cpu", as in ``torch.device.type``.
        capability: compute capability of a CUDA device, such as (9, 0); None elsewhere.
        dtype: of q, k and v.
        head_dim, value_dim: last dimension of q and k, and of v.
        batch, heads, kv_heads: heads is a multiple of kv_heads.
        q_len, kv_len: sequence lengths in positions.
        tile: ``(q_tile, kv_tile)`` of the compiled mask.
        masks: number of distinct masks in the descriptor.
        activation: "softmax" or "silu".
        softcap, sinks: whether they are used.
        needs_grad: whether a gradient of q, k, v or sinks is wanted.
        deterministic: whether results must be equal bit for bit from run to run.
    """

    device_type: str
    capability: tuple[int, int] | None
    dtype: torch.dtype
    head_dim: int
    value_dim: int
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    tile: tuple[int, int]
    masks: int = 1
    activation: str = "softmax"
    softcap: bool = False
    sinks: bool = False
    needs_grad: bool = False
    deterministic: bool = False


@dataclass(frozen=True)
class Options:
    """Numbers of a call as a backend gets them: what ``attention`` was not given has its value here.

    Attributes:
        scale: the factor on ``q @ k.T``.
        activation: "softmax" or "silu".
        softcap: scores become ``softcap * tanh(score / softcap)``; 0.0 is off.
        sinks: ``(heads,)``, one more logit in the softmax sum of every row; or None. On q's device, any float dtype.
        normalizer: the divisor of "silu"; 1.0 for softmax.
        deterministic: as in :class:`Problem`.
    """

    scale: float
    activation: str = "softmax"
    softcap: float = 0.0
    sinks: torch.Tensor | None = None
    normalizer: float = 1.0
    deterministic: bool = False


class Backend(Protocol):
    """What a kernel module offers as ``BACKEND``.

    Shapes: q ``(B, H, Sq, D)``, k ``(B, Hkv, Skv, D)``, v ``(B, Hkv, Skv, Dv)``, any strides, none of the tensors on
    another device than q; out ``(B, H, Sq, Dv)`` in q's dtype; lse ``(B, H, Sq)`` float32 (float64 for float64 inputs),
    natural logarithm, -inf for a row that sees nothing. ``compiled`` has its descriptor on q's device. A batch entry
    ``b`` and query head ``h`` use mask ``compiled.mask_index[b % len, h % len]``, where each axis is 1 or the whole
    size.
    """

    name: str

    def unsupported(self, problem: Problem) -> str | None:
        """Why this backend can't run the problem, as the end of a sentence; None if it can."""
        ...

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, compiled: CompiledMask, options: Options
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """out and lse; lse is None for "silu"."""
        ...

    def backward(
        self,
        grad_out: torch.Tensor,
        grad_lse: torch.Tensor | None,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor | None,
        compiled: CompiledMask,
        options: Options,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Gradients of q, k, v in their dtypes, and of sinks (float32, or float64 for float64 inputs) if there are any.

        ``grad_out`` may have any strides, also 0; ``grad_lse`` is None if nobody used the lse.
        """
        ...


@dataclass(frozen=True)
class Entry:
    """A backend by name: where its module is and which devices it is meant for."""

    name: str
    module: str
    device_types: tuple[str, ...]
    capabilities: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (99, 9))
    """First and last compute capability."""

    def wrong_device(self, problem: Problem) -> str | None:
        """Why the device is not one that the backend is meant for; None if it is."""
        if problem.device_type not in self.device_types:
            return f"runs on {' or '.join(self.device_types)} tensors, these are on {problem.device_type}"
        if problem.capability is not None:
            first, last = self.capabilities
            if not first <= problem.capability <= last:
                needed = f"{_chip(first)} or newer" if last == (99, 9) else f"{_chip(first)} to {_chip(last)}"
                return f"needs {needed}, this device is {_chip(problem.capability)}"
        return None


ENTRIES = (
    Entry("hopper", "cmask_lab.kernels.hopper", ("cuda",), ((9, 0), (9, 0))),
    Entry("blackwell", "cmask_lab.kernels.blackwell", ("cuda",), ((10, 0), (10, 3))),
    Entry("portable", "cmask_lab.kernels.portable", ("cuda",), ((8, 0), (99, 9))),
    Entry("cpu", "cmask_lab.kernels.cpu", ("cpu",)),
    Entry("reference", "cmask_lab.kernels.reference", ("cuda", "cpu")),
)
"""All backends; on its device the first one that can run a case gets it."""


@dataclass(frozen=True)
class Choice:
    """The backend that a call gets, and why not the ones before it.

    Attributes:
        name: of the backend taken.
        skipped: reason for every backend that stands before it in :data:`ENTRIES`.
        expected: the first backend that is meant for this device.
    """

    name: str
    skipped: Mapping[str, str] = field(default_factory=dict)
    expected: str = ""

    def __str__(self) -> str:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self.skipped.items())
        return f"{self.name} ({reasons})" if reasons else self.name


def names() -> tuple[str, ...]:
    """Names of all backends, in order of preference.

    >>> names()
    ('hopper', 'blackwell', 'portable', 'cpu', 'reference')
    """
    return tuple(entry.name for entry in ENTRIES)


@cache
def _imported(name: str) -> Backend | str:
    """The backend, or why its module can't be imported."""
    entry = ENTRIES[names().index(name)]
    try:
        return importlib.import_module(entry.module).BACKEND
    except ModuleNotFoundError as error:
        if error.name == entry.module:
            return "is not part of this version"
        return f"needs the package {error.name} (pip install 'cmask-lab[gpu]')"
    except ImportError as error:
        return f"can't be imported: {error}"


def load(name: str) -> Backend:
    """The backend of that name.

    Raises:
        ValueError: no backend has that name, or its module can't be imported here.

    >>> load("reference").name
    'reference'
    """
    if name not in names():
        raise ValueError(f"backend: {name!r} is not one of 'auto', {', '.join(map(repr, names()))}")
    backend = _imported(name)
    if isinstance(backend, str):
        raise ValueError(f"backend: {name} {backend}")
    return backend


def reason_against(name: str, problem: Problem) -> str | None:
    """Why backend ``name`` can't run the problem; None if it can."""
    if name not in names():
        raise ValueError(f"backend: {name!r} is not one of 'auto', {', '.join(map(repr, names()))}")
    wrong_device = ENTRIES[names().index(name)].wrong_device(problem)
    if wrong_device:
        return wrong_device
    backend = _imported(name)
    return backend if isinstance(backend, str) else backend.unsupported(problem)


def choose(problem: Problem, backend: str = "auto") -> Choice:
    """The backend for a problem: the one named, or with "auto" the first that is meant for the device and can run it.

    Where "auto" can't take the backend that the device deserves, one line of warning says why (once for each reason).

    Raises:
        ValueError: the backend that was named can't run the problem, or (auto) none can.

    >>> float32_on_cpu = Problem("cpu", None, torch.float32, 64, 64, 1, 2, 2, 128, 128, (64, 64))
    >>> choose(float32_on_cpu).name
    'cpu'
    """
    if backend != "auto":
        reason = reason_against(backend, problem)
        if reason:
            raise ValueError(f"attention: backend {backend!r} can't run this: it {reason}; use backend='auto'")
        return Choice(backend, {}, backend)
    skipped: dict[str, str] = {}
    expected = ""
    for entry in ENTRIES:
        reason = entry.wrong_device(problem)
        if not reason:
            expected = expected or entry.name
            reason = reason_against(entry.name, problem)
        if not reason:
            if entry.name != expected:
                warnings.warn(
                    f"attention: backend {expected} {skipped[expected]}; {entry.name} runs instead", stacklevel=2
                )
            return Choice(entry.name, skipped, expected)
        skipped[entry.name] = reason
    reasons = "; ".join(f"{name} {reason}" for name, reason in skipped.items())
    raise ValueError(f"attention: no backend can run this: {reasons}")


def device_capability(device: torch.device) -> tuple[int, int] | None:
    """Compute capability of a CUDA device; None for any other.

    >>> device_capability(torch.device("cpu")) is None
    True
    """
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def _chip(capability: tuple[int, int]) -> str:
    return f"sm_{capability[0]}{capability[1]}"
