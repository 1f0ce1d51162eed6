"""What a throughput panel measures: the settings, checked, and the request that they make of a benchmark process."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from cmask_lab.masks import Mask
from cmask_lab.short_text import shortened, shown

DTYPES = ("bfloat16", "float16", "float32")
DIRECTIONS = ("forward", "backward", "both")
CPU_TOKENS = 2048
"""Tokens measured on a CPU unless another number is chosen: all contenders are done within a minute."""
TOKENS_LIMIT = 1 << 20
TITLE_LIMIT = 90


class SettingsError(ValueError):
    """A setting that is not understood or not possible; the text names it and says what is."""


@dataclass(frozen=True)
class Settings:
    """What is measured, and what is shown.

    Attributes:
        device: "cpu" or "cuda:N".
        contenders: names; at least one of ours ("cmask" or a variant).
        baseline: the contender that all others are compared with.
        batch, heads, kv_heads, head_dim: shape of the tensors.
        tokens: only the first so many queries and keys of the mask; None measures all.
        dtype, direction: as in ``cm.benchmark``.
        seconds: what a run may take in all.
        auto: measure again when the mask has settled.
        recorded: name of a recorded report to show in place of what was measured here; "" for none.
        case: which mask of that report.

    >>> Settings().device, Settings().tokens
    ('cpu', 2048)
    >>> Settings.read({"heads": 0})
    Traceback (most recent call last):
    cmask_lab.widgets.throughput_settings.SettingsError: settings: heads is 0; an integer in 1 … 4096 is expected
    """

    device: str = "cpu"
    contenders: tuple[str, ...] = ("cmask", "sdpa-dense", "flex-cpu")
    baseline: str = "sdpa-dense"
    batch: int = 1
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 64
    tokens: int | None = CPU_TOKENS
    dtype: str = "float32"
    direction: str = "forward"
    seconds: float = 120.0
    auto: bool = False
    recorded: str = ""
    case: int = 0

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            if wrong := check(getattr(self, name)):
                raise SettingsError(f"settings: {name} is {shown(getattr(self, name))}; {wrong} is expected")
        if self.heads % self.kv_heads:
            raise SettingsError(f"settings: kv_heads is {self.kv_heads}; a divisor of heads, {self.heads}, is expected")
        if not any(is_ours(name) for name in self.contenders):
            raise SettingsError("settings: contenders has none of ours; add cmask or one of its variants")

    @classmethod
    def read(cls, message: Any) -> Settings:
        """The settings in a message from the browser.

        Raises:
            SettingsError: names the field that is unknown or out of range.
        """
        if not isinstance(message, Mapping):
            raise SettingsError(f"settings: {shown(message)} is given; an object is expected")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(map(str, set(message) - known)):
            raise SettingsError(
                f"settings: unknown field {shown(unknown[0])}; the fields are {', '.join(sorted(known))}"
            )
        given = dict(message)
        if isinstance(given.get("contenders"), list):
            given["contenders"] = tuple(given["contenders"])
        return cls(**given)

    def message(self) -> dict[str, Any]:
        """JSON for the browser."""
        return {**asdict(self), "contenders": list(self.contenders)}

    def on(self, device: str, *, heads: int = 16, head_dim: int = 128) -> Settings:
        """The settings that suit a device; direction, baseline's meaning and what is shown stay.

        >>> gpu = Settings().on("cuda:0")
        >>> gpu.baseline, gpu.dtype, gpu.tokens
        ('flex-fa4', 'bfloat16', None)
        """
        if device == self.device:
            return self
        same_kind = device.partition(":")[0] == self.device.partition(":")[0]
        if same_kind:
            return replace(self, device=device)
        kept = {"device": device, "direction": self.direction, "auto": self.auto, "recorded": self.recorded}
        if device == "cpu":
            return Settings(**kept, case=self.case)
        return Settings(
            **kept,
            case=self.case,
            contenders=("cmask", "flex-fa4", "flex-triton"),
            baseline="flex-fa4",
            heads=heads,
            kv_heads=heads,
            head_dim=head_dim,
            tokens=None,
            dtype="bfloat16",
        )

    def request(self, mask: Mask, q_len: int, kv_len: int, q_start: int = 0) -> dict[str, Any]:
        """The request for :class:`cmask_lab.bench.process.BenchmarkProcess`.

        Raises:
            SettingsError: the plane is one that the benchmark can't measure.
        """
        tokens = min(self.tokens or q_len, q_len)
        if q_start or tokens > kv_len or (tokens == q_len and q_len != kv_len):
            raise SettingsError(
                f"throughput: a benchmark takes as many queries as keys, from position 0; this plane has {q_len:,} "
                f"queries from {q_start:,} and {kv_len:,} keys. Make it square, or measure only its first tokens."
            )
        return {
            "mask": titled(mask, tokens).spec(),
            "seq_len": tokens,
            "ours": [name for name in self.contenders if is_ours(name)],
            "baselines": [name for name in self.contenders if not is_ours(name)],
            "device": self.device,
            **{name: getattr(self, name) for name in ("batch", "heads", "kv_heads", "head_dim", "dtype")},
            **{name: getattr(self, name) for name in ("direction", "seconds")},
        }


def first(mask: Mask, tokens: int) -> Mask:
    """The first queries and keys of a mask, one made for no length in particular as it is.

    >>> import cmask_lab as cm
    >>> first(cm.causal(), 4)
    cm.causal()
    >>> first(cm.documents([2, 4]), 3).to_dense(3).astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    if all(length is None or length <= tokens for length in mask.extent):
        return mask
    positions = np.arange(tokens)
    return mask.take(q=positions, k=positions)


def titled(mask: Mask, tokens: int) -> Mask:
    """The first queries and keys of a mask, with a name for the report: the mask's own, or what it is in Python.

    >>> import cmask_lab as cm
    >>> titled(cm.documents([2, 4]), 3).name
    'cm.documents([2, 4]), first 3 tokens'
    """
    part = first(mask, tokens)
    name = mask.name or shortened(repr(mask), TITLE_LIMIT)
    return part.named(name if part is mask else f"{name}, first {tokens:,} tokens")


def is_ours(name: str) -> bool:
    """Whether a contender is our operator; the benchmark's own function for it needs PyTorch.

    >>> is_ours("cmask+order"), is_ours("flex-fa4")
    (True, False)
    """
    return re.split(r"[-+]", name)[0] == "cmask"


def _integer(least: int, most: int) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        return "" if type(value) is int and least <= value <= most else f"an integer in {least} … {most}"

    return check


def _choice(allowed: tuple[str, ...]) -> Callable[[Any], str]:
    return lambda value: "" if value in allowed else f"one of {', '.join(allowed)}"


def _matching(pattern: str, what: str) -> Callable[[Any], str]:
    return lambda value: "" if isinstance(value, str) and re.fullmatch(pattern, value) else what


def _contenders(value: Any) -> str:
    names = isinstance(value, tuple) and 1 <= len(value) <= 16 and not any(map(_name, value))
    return "" if names and len(set(value)) == len(value) else "1 to 16 different names"


def _tokens(value: Any) -> str:
    return "" if value is None else _integer(1, TOKENS_LIMIT)(value)


def _seconds(value: Any) -> str:
    return "" if type(value) in (int, float) and 1 <= value <= 3600 else "a number in 1 … 3600"


_name = _matching(r"[a-z0-9][a-z0-9+-]{0,39}", "the name of a contender")

CHECKS: dict[str, Callable[[Any], str]] = {
    "device": _matching(r"cpu|cuda:\d{1,3}", '"cpu" or "cuda:N"'),
    "contenders": _contenders,
    "baseline": _name,
    "batch": _integer(1, 1024),
    "heads": _integer(1, 4096),
    "kv_heads": _integer(1, 4096),
    "head_dim": _integer(1, 1024),
    "tokens": _tokens,
    "dtype": _choice(DTYPES),
    "direction": _choice(DIRECTIONS),
    "seconds": _seconds,
    "auto": lambda value: "" if isinstance(value, bool) else "true or false",
    "recorded": _matching(r"[\w.+-]{0,100}", "the name of a recorded report"),
    "case": _integer(0, 10_000),
}
"""By field: what is expected in its place, or "" if the value will do."""
