"""Kernels without free masks: FlashAttention-4 itself, and what ``scaled_dot_product_attention`` offers."""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from cmask_lab.bench.contenders.contender import Natural, Setting, Tensors


class FlashAttention4(Natural):
    """``flash_attn.cute.flash_attn_func``: causal, full and window masks; tensors as ``(B, S, H, D)``."""

    name = "fa4"

    def absent(self, setting: Setting) -> str | None:
        """It needs a Hopper GPU or newer, its package, and a mask that it can express."""
        if setting.device.type != "cuda":
            return "needs a CUDA GPU"
        if torch.cuda.get_device_capability(setting.device) < (9, 0):
            return "needs an sm_90 GPU or newer"
        if setting.subject.native is None:
            return "can't express this mask: it knows causal, full and window"
        if setting.q_len != setting.kv_len:
            return "aligns its masks to the last query; ours are absolute"
        if importlib.util.find_spec("flash_attn") is None or importlib.util.find_spec("flash_attn.cute") is None:
            return "needs the package flash-attn-4 (pip install --pre flash-attn-4)"
        return None

    def plan(self, setting: Setting) -> None:
        """Only its arguments."""
        native = setting.subject.native
        self._options: dict[str, Any] = {"softmax_scale": setting.scale, "causal": native == "causal"}
        if isinstance(native, tuple):
            self._options["window_size"] = (native[1], 0)
            self._options["causal"] = True

    def prepare(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
        """``(B, S, H, D)``, contiguous."""
        q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
        return q, k, v

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """The kernel."""
        from flash_attn.cute import flash_attn_func  # pyright: ignore[reportMissingImports]

        out = flash_attn_func(q, k, v, **self._options)
        return out[0] if isinstance(out, tuple) else out

    def restore(self, out: torch.Tensor) -> torch.Tensor:
        """Back to ``(B, H, S, D)``."""
        return out.transpose(1, 2)


class Sdpa(Natural):
    """``scaled_dot_product_attention`` with cuDNN or FlashAttention-2, for causal and full masks."""

    BACKENDS: ClassVar = {"sdpa-cudnn": SDPBackend.CUDNN_ATTENTION, "sdpa-flash": SDPBackend.FLASH_ATTENTION}

    def __init__(self, name: str) -> None:
        self.name = name

    def absent(self, setting: Setting) -> str | None:
        """It needs a GPU, half precision, and a mask that is causal or full."""
        if setting.device.type != "cuda":
            return "needs a CUDA GPU"
        if setting.subject.native not in ("causal", "full"):
            return "can't express this mask: it knows causal and full"
        if setting.subject.native == "causal" and setting.q_len != setting.kv_len:
            return "its causal mask needs as many queries as keys"
        if setting.dtype == torch.float32:
            return "runs float16 and bfloat16 alone"
        return None

    def plan(self, setting: Setting) -> None:
        """Only its arguments."""
        self._options: dict[str, Any] = _sdpa_options(setting) | {"is_causal": setting.subject.native == "causal"}

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """The kernel, and no other in its place."""
        with sdpa_kernel(self.BACKENDS[self.name]):
            return scaled_dot_product_attention(q, k, v, **self._options)


class DenseSdpa(Natural):
    """``scaled_dot_product_attention`` with the whole mask as a bool matrix: what people do without a sparse kernel."""

    name = "sdpa-dense"
    dense: torch.Tensor | None = None
    _rows_without_keys: torch.Tensor | None = None

    MOST_MASK_BYTES = 2**33

    def absent(self, setting: Setting) -> str | None:
        """The mask must fit."""
        masks = len(setting.compiled.interval_tables)
        size = masks * setting.q_len * setting.kv_len
        # On a GPU the kernel turns the bool matrix into one of the inputs' dtype.
        size *= 3 if setting.device.type == "cuda" else 1
        if size > self.MOST_MASK_BYTES:
            return f"the dense mask would take {size / 2**30:.0f} GiB"
        return None

    def plan(self, setting: Setting) -> None:
        """The dense mask, on the device."""
        index = setting.compiled.mask_index
        tables = [torch.from_numpy(table.to_dense()) for table in setting.compiled.interval_tables]
        dense = torch.stack([tables[number] for number in index.reshape(-1)])
        dense = dense.reshape(*index.shape, setting.q_len, setting.kv_len).to(setting.device)
        self._options = _sdpa_options(setting)
        # A row that sees nothing is NaN in the mathematics of softmax and 0 in ours.
        without_keys = ~dense.any(-1, keepdim=True)
        self.dense = dense
        self._rows_without_keys = without_keys if bool(without_keys.any()) else None

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """The operator, and zeros where a row sees nothing."""
        on_cuda = q.device.type == "cuda"
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]) if on_cuda else nullcontext():
            out = scaled_dot_product_attention(q, k, v, attn_mask=self.dense, **self._options)
        return out if self._rows_without_keys is None else out.masked_fill(self._rows_without_keys, 0)

    def visited_pairs(self, setting: Setting) -> int | None:
        """All there are."""
        return setting.batch * setting.heads * setting.q_len * setting.kv_len


def _sdpa_options(setting: Setting) -> dict[str, Any]:
    return {"scale": setting.scale, "enable_gqa": setting.heads != setting.kv_heads}
