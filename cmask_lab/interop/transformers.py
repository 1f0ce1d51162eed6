"""Target ``transformers``, and the ways in: Hugging Face models.

Format: ``AttentionMaskInterface`` and ``AttentionInterface`` of ``transformers`` 5 (``huggingface/transformers``,
``masking_utils.py``, ``modeling_utils.py``). A mask function gets lengths and offsets and returns bool
``(batch, 1, q_length, kv_length)``; an attention function gets ``(B, H, S, D)`` tensors and returns ``(B, S, H, D)``.
After both are registered under one name, ``model.set_attn_implementation(name)`` makes every layer use them. The mask
takes the place of the model's own; padding (a 2-D ``attention_mask``) still applies.

Positions are places in the cache, so the same mask serves a forward pass, and each step of ``generate``.

A sliding window of W there is W keys, the query's own among them: ``cm.window(W - 1)``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from cmask_lab.compiler.compile import CompiledMask, compile, distinct_masks
from cmask_lab.interop.formula import Place
from cmask_lab.interop.plane import TITLE_LIMIT, assembled
from cmask_lab.interop.torch_source import MaskFunction, module
from cmask_lab.masks import documents, from_dense, rect
from cmask_lab.masks.combinators import And, Or, PerBatch
from cmask_lab.masks.mask import OPEN, Mask
from cmask_lab.short_text import shortened

if TYPE_CHECKING:
    import torch


def obstacle(mask: Mask) -> str | None:
    """Why a model can't take the mask; None if it can."""
    _, index = distinct_masks(mask)
    if index.shape[1] > 1:
        return "transformers makes one mask for all heads and this one differs by head; export each of its masks alone"
    return None


def source(mask: Mask, *, name: str = "cmask_lab") -> str:
    """A module that registers the mask as the attention implementation ``name`` when it is imported.

    It needs PyTorch and transformers alone. :func:`register` does the same with cmask_lab's own kernels.

    Raises:
        ValueError: a name with other characters than letters, digits and ``_ - . /``.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[\w./-]+", name):
        raise ValueError(f"export: name is {name!r}; give letters, digits and _ - . / for an attention implementation")
    masks, index = distinct_masks(mask)
    function = MaskFunction.over(masks, index, Place("q", "k", OPEN, OPEN), margin=8)
    imports = [
        "import torch",
        "from transformers import AttentionInterface, AttentionMaskInterface",
        "from transformers.integrations.sdpa_attention import sdpa_attention_forward",
        "from transformers.masking_utils import sdpa_mask",
    ]
    title = f'{shortened(mask.formula, TITLE_LIMIT)}\n\nImport it, then model.set_attn_implementation("{name}").\n'
    register = REGISTER.replace("NAME", name)
    return module(title, imports, function.tables, [function.factory(), MASK, ATTENTION, register])


def register(mask: Mask, name: str = "cmask_lab") -> None:
    """Make ``model.set_attn_implementation(name)`` use this mask and cmask_lab's kernels, in this process.

    The mask is compiled once for each combination of lengths. Dropout is not supported, neither are static caches.

    >>> import cmask_lab as cm
    >>> register(cm.window(1023), "window_1024")
    """
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface

    import cmask_lab

    compiled: dict[tuple[int, int, int], CompiledMask] = {}

    def mask_function(
        batch_size: int,
        q_length: int,
        kv_length: int,
        q_offset: int = 0,
        kv_offset: int = 0,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> CompiledMask:
        """The compiled mask, which transformers hands on to every layer."""
        if kv_offset:
            raise ValueError(f"{name}: the cache begins at position {kv_offset}; use a cache that keeps all positions")
        lengths = (q_length, kv_length, int(q_offset))
        if attention_mask is not None and not bool(attention_mask.all()):
            padded = _with_padding(mask, attention_mask[:, :kv_length].bool().cpu().numpy())
            return compile(padded, q_length, kv_length, q_start=int(q_offset))
        if lengths not in compiled:
            compiled[lengths] = compile(mask, q_length, kv_length, q_start=int(q_offset))
        return compiled[lengths]

    def attention_function(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: CompiledMask,
        dropout: float = 0.0,
        scaling: float | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """Attention as transformers calls it."""
        if dropout:
            raise ValueError(f"{name}: dropout is {dropout}; set the model's attention dropout to 0")
        out = cmask_lab.attention(query, key, value, attention_mask, scale=scaling)
        assert isinstance(out, torch.Tensor)
        return out.transpose(1, 2).contiguous(), None

    AttentionMaskInterface.register(name, mask_function)
    AttentionInterface.register(name, attention_function)


def _with_padding(mask: Mask, seen: np.ndarray) -> Mask:
    """The mask of every batch entry without the keys that are padding; ``seen`` is bool ``(batch, kv_length)``."""
    entries = mask.masks if isinstance(mask, PerBatch) else (mask,) * len(seen)
    padded = []
    for entry, keys in zip(entries, seen, strict=True):
        edges = np.flatnonzero(np.diff(keys.astype(np.int8), prepend=0, append=0)).reshape(-1, 2).tolist()
        runs = [rect(k=(start, stop)) for start, stop in edges] or [rect(k=(0, 0))]
        padded.append(And.of(entry, Or.of(*runs) if len(runs) > 1 else runs[0]))
    return assembled([[entry] for entry in padded])


def from_transformers(attention_mask: Any) -> Mask:
    """The mask of a 4-D ``attention_mask``: bool, or floats that are added to the scores.

    Args:
        attention_mask: tensor or array ``(batch, heads or 1, q_len, kv_len)``. bool (or 0 and 1): True where a query
            sees a key. Floats: 0 where it does, the most negative number of the type or -inf where it doesn't.

    Raises:
        ValueError: another shape, or floats that are neither: such a bias is no mask.

    >>> import numpy as np
    >>> from_transformers(np.tri(3, dtype=bool)[None, None]).to_dense(3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    values = attention_mask.detach().cpu() if hasattr(attention_mask, "detach") else attention_mask
    if str(getattr(values, "dtype", "")) == "torch.bfloat16":
        values = values.float()  # NumPy has no bfloat16
    array = np.asarray(values)
    if array.ndim != 4:
        raise ValueError(f"from_transformers: shape {array.shape}; expected (batch, heads or 1, q_len, kv_len)")
    if array.dtype.kind == "f":
        hidden = array <= np.finfo(np.float16).min  # what "most negative" is in any of the types
        other = ~hidden & (array != 0)
        if other.any():
            place = tuple(int(n) for n in np.argwhere(other)[0])
            raise ValueError(
                f"from_transformers: the value at {place} is {array[place]}; "
                f"a mask holds 0 and the most negative number only"
            )
        array = ~hidden
    elif array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
        raise ValueError(f"from_transformers: {array.dtype} with other values than 0 and 1; give bool or floats")
    return assembled([[from_dense(head) for head in entry] for entry in array.astype(np.bool_)])


def from_huggingface_position_ids(position_ids: Any, *, causal: bool = True) -> Mask:
    """The mask of packed sequences: a new one begins wherever the position does not go on by one.

    Args:
        position_ids: integers ``(seq_len,)`` or ``(batch, seq_len)``, as a data collator for padding-free batches
            makes them: 0, 1, 2, 0, 1, ….
        causal: whether a query sees keys before it only, as in a decoder.

    >>> from_huggingface_position_ids([0, 1, 0, 1, 2])
    cm.documents([2, 3]) & cm.causal()
    """
    from cmask_lab.masks import causal as causal_mask

    rows = np.atleast_2d(np.asarray(position_ids))
    if rows.ndim != 2 or rows.dtype.kind not in "iu" or not rows.shape[1]:
        raise ValueError(
            f"from_huggingface_position_ids: expected integers (seq_len,) or (batch, seq_len), "
            f"got {rows.dtype} of shape {np.shape(position_ids)}"
        )
    masks = []
    for row in rows.astype(np.int64):
        starts = np.append(0, np.flatnonzero(np.diff(row) != 1) + 1)
        packed = documents(np.diff(np.append(starts, len(row))))
        masks.append([packed & causal_mask() if causal else packed])
    return assembled(masks)


MASK = '''\
def mask_function(
    batch_size,
    q_length,
    kv_length,
    q_offset=0,
    kv_offset=0,
    attention_mask=None,
    device="cpu",
    **kwargs,
):
    """bool (batch, 1, q_length, kv_length): True where a query sees a key."""
    return sdpa_mask(
        batch_size,
        q_length,
        kv_length,
        q_offset,
        kv_offset,
        mask_function=make_mask_mod(device),
        attention_mask=attention_mask,
        allow_is_causal_skip=False,
        device=device,
    )
'''

ATTENTION = '''\
def attention_function(module, query, key, value, attention_mask, **kwargs):
    """Attention as the layers call it; a query that sees nothing has the output 0."""
    kwargs["is_causal"] = False
    out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    if attention_mask is not None:
        sees = attention_mask.any(-1).transpose(1, 2)[..., None]
        out = torch.where(sees, out, 0)
    return out, None
'''

REGISTER = """\
AttentionMaskInterface.register("NAME", mask_function)
AttentionInterface.register("NAME", attention_function)
"""
