"""Target ``triton``: one file with the portable kernels and this mask's descriptor in it; needs torch and triton alone.

The kernels and their launcher are taken from :mod:`cmask_lab.kernels` as they stand, so the file runs what
``cm.attention(..., backend="portable")`` runs, forward and backward. What is added is the descriptor as compressed
text, the few classes that the launcher expects, and an ``attention`` with autograd.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from importlib.resources import files

from cmask_lab.compiler.compile import CompiledMask, compile
from cmask_lab.compiler.descriptor import Descriptor
from cmask_lab.interop.layout import UNPACK, packed
from cmask_lab.interop.plane import Plane

PARTS = (
    ("registry.py", ("Options",)),
    ("device.py", None),
    ("scales.py", ("positive_scale",)),
    ("sinks.py", None),
    ("tensor_maps.py", ("UNIT_BYTES", "tma_ready", "tma_strides")),
    ("mask_lists.py", None),
    ("portable/blocks.py", None),
    ("portable/shares.py", None),
    ("portable/launch.py", None),
    ("portable/tiles.py", None),
    ("portable/forward.py", None),
    ("portable/split_keys.py", None),
    ("portable/row_statistics.py", None),
    ("portable/backward.py", None),
    ("portable/backend.py", None),
)
"""Files of :mod:`cmask_lab.kernels` in the order in which they need one another, and what to take (None: all)."""

LEFT_OUT = {"BACKEND", "unsupported"}
"""Names that only the registry asks for."""


def source(plane: Plane, *, tile: tuple[int, int] | int | None = None) -> str:
    """A module with ``attention(q, k, v)`` for this mask and these lengths.

    Args:
        tile: as for ``cm.compile``.
    """
    compiled = compile(plane.mask, plane.q_len, plane.kv_len, q_start=plane.q_start, tile=tile)
    sources = [_Source(files("cmask_lab.kernels").joinpath(name).read_text(), keep) for name, keep in PARTS]
    imports = _imports([statement for each in sources for statement in each.imports])
    parts = [
        f'"""{plane.title}\n\n{DOCSTRING}"""\n\nfrom __future__ import annotations\n\n{imports}',
        *(each.text for each in sources),
        UNPACK.rstrip(),
        DESCRIPTOR,
        _baked(compiled),
        ATTENTION,
    ]
    return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"


class _Source:
    """One file without its docstring, its imports and what is not to be taken."""

    def __init__(self, text: str, keep: tuple[str, ...] | None):
        tree = ast.parse(text)
        self.imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        if keep is not None:
            # What the few things taken from a file need is imported by the others too.
            self.imports = []
        gone = [node for node in tree.body if not _wanted(node, keep)]
        gone += [
            method
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            for method in node.body
            if getattr(method, "name", "") in LEFT_OUT
        ]
        lines = text.splitlines()
        for node in gone:
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            lines[first - 1 : node.end_lineno] = [None] * (node.end_lineno - first + 1)  # type: ignore[list-item]
        kept = "\n".join(line for line in lines if line is not None)
        # Where something was taken out its blank lines stay behind.
        kept = re.sub(r"\n{3,}(?= )", "\n\n", re.sub(r"\n{4,}", "\n\n\n", kept))
        # One file has one name space, and every tensor of the mask is one of torch here.
        self.text = kept.replace("block_shapes.", "").replace("torch.from_numpy(", "torch.as_tensor(")


def _wanted(node: ast.stmt, keep: tuple[str, ...] | None) -> bool:
    if keep is not None:
        assigned = [ast.unparse(target) for target in node.targets] if isinstance(node, ast.Assign) else []
        return any(name in keep for name in (getattr(node, "name", None), *assigned))
    if isinstance(node, ast.Import | ast.ImportFrom):
        return False
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return False
    if isinstance(node, ast.Assign):
        return not any(isinstance(target, ast.Name) and target.id in LEFT_OUT for target in node.targets)
    # A string alone at the top is a file's docstring if it comes first, else it explains the constant before it.
    return not (isinstance(node, ast.Expr) and node.lineno == 1)


def _imports(statements: Iterable[ast.Import | ast.ImportFrom]) -> str:
    """The import block of all files together, without cmask_lab, sorted as a formatter sorts it."""
    plain = {"base64", "functools", "math", "zlib"}
    names: dict[str, set[str]] = {}
    for node in statements:
        if isinstance(node, ast.Import):
            plain |= {f"{alias.name}{f' as {alias.asname}' if alias.asname else ''}" for alias in node.names}
        elif node.module and node.module.partition(".")[0] not in ("cmask_lab", "__future__"):
            names.setdefault(node.module, set()).update(alias.name for alias in node.names)
    names.get("typing", set()).discard("TYPE_CHECKING")
    lines = [(name, f"import {name}") for name in plain]
    lines += [(module, f"from {module} import {', '.join(sorted(each))}") for module, each in names.items() if each]
    blocks: list[list[str]] = [[], []]
    for module, line in sorted(lines, key=lambda pair: (pair[1].startswith("from"), pair[0])):
        blocks[module.partition(".")[0].partition(" ")[0] not in sys.stdlib_module_names].append(line)
    return "\n\n".join("\n".join(block) for block in blocks)


def _baked(compiled: CompiledMask) -> str:
    """The descriptor and its transpose as text, and how they are cut up."""
    lines = [
        f"TILE = {compiled.tile}",
        f"Q_LEN, KV_LEN = {compiled.q_len}, {compiled.kv_len}",
        f"MASKS = {compiled.masks_count}",
        "# Tiles of the query tile that sees most.",
        f"LONGEST_ROW = {compiled.longest_row}",
        "# Which of the masks a batch entry and head uses.",
        f"MASK_INDEX = {compiled.mask_index.tolist()}",
    ]
    for name, descriptor in (("DESCRIPTOR", compiled.descriptor), ("TRANSPOSED", compiled.transposed)):
        lines += ["", *_shapes(name, descriptor)]
        text = packed(descriptor.buffer)
        lines += (
            [f'{name} = "{text[0]}"'] if len(text) == 1 else [f"{name} = (", *(f'    "{line}"' for line in text), ")"]
        )
    return "\n".join(lines)


def _shapes(name: str, descriptor: Descriptor) -> list[str]:
    shapes = [f'    "{array}": {tuple(values.shape)},' for array, values in descriptor.arrays().items()]
    return [f"{name}_SHAPES = {{", *shapes, "}"]


DOCSTRING = """\
Attention with this mask, for NVIDIA GPUs from sm_80 on; needs torch and triton alone.

    out = attention(q, k, v)

The kernels read the mask from a descriptor: runs of tiles that are wholly visible, and
for every other tile the number of a bit pattern. They are the portable kernels of
cmask_lab (Apache License 2.0).
"""

DESCRIPTOR = '''\
class Descriptor:
    """The mask: a few int32 arrays in one buffer, all that the kernels read of it."""

    def __init__(self, tile, lengths, shapes, buffer):
        self.q_tile, self.kv_tile = tile
        self.q_len, self.kv_len = lengths
        self.q_tiles, self.kv_tiles = -(-self.q_len // tile[0]), -(-self.kv_len // tile[1])
        self.masks = MASKS
        self._arrays, first = {}, 0
        for name, shape in shapes.items():
            size = math.prod(shape)
            self._arrays[name] = buffer[first : first + size].view(shape)
            first += -(-size // 4) * 4  # every array begins at a multiple of 16 bytes
        self.order = self._arrays["order"]

    def arrays(self):
        """The arrays by name."""
        return self._arrays


class CompiledMask:
    """The mask on one device: by query tiles, and by key tiles for the backward pass."""

    def __init__(self, device):
        self.tile, self.longest_row, self.mask_index = TILE, LONGEST_ROW, torch.tensor(MASK_INDEX, dtype=torch.int32)
        lengths = (Q_LEN, KV_LEN)
        self.descriptor = Descriptor(TILE, lengths, DESCRIPTOR_SHAPES, unpacked(DESCRIPTOR).to(device))
        self.transposed = Descriptor(TILE[::-1], lengths[::-1], TRANSPOSED_SHAPES, unpacked(TRANSPOSED).to(device))


@functools.cache
def compiled_on(device):
    """The mask on a device, put there once."""
    return CompiledMask(device)
'''

ATTENTION = '''\
LAUNCHER = Portable()


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, sinks, scale, activation, softcap, normalizer):
        ctx.options = Options(scale, activation, softcap, sinks, normalizer)
        with current(q.device):
            out, lse = LAUNCHER.forward(q, k, v, compiled_on(q.device), ctx.options)
        ctx.save_for_backward(q, k, v, out, lse)
        return out, lse

    @staticmethod
    def backward(ctx, grad_out, grad_lse):
        q, k, v, out, lse = ctx.saved_tensors
        with current(q.device):
            grads = LAUNCHER.backward(grad_out, grad_lse, q, k, v, out, lse, compiled_on(q.device), ctx.options)
        return *grads, None, None, None, None


def attention(
    q,
    k,
    v,
    *,
    scale=None,
    activation="softmax",
    return_lse=False,
    softcap=0.0,
    sinks=None,
    normalizer=1.0,
):
    """Attention of q (B, H, Sq, D) over k and v (B, Hkv, Skv, D).

    activation: "softmax", or "silu" with its divisor, the normalizer. sinks: (H,), for
    every head one more logit in each row's sum. return_lse: also the natural log-sum-exp,
    float32 (B, H, Sq). A query that sees nothing gives 0.
    """
    if (q.shape[2], k.shape[2]) != (Q_LEN, KV_LEN):
        raise ValueError(f"the mask is for {Q_LEN} queries and {KV_LEN} keys, not {q.shape[2]} and {k.shape[2]}")
    if q.dtype not in DTYPES or q.shape[1] % k.shape[1]:
        raise ValueError(f"needs one of {DTYPES} and query heads that are a multiple of the kv heads")
    for side, given, made in zip(("batch entries", "heads"), q.shape, (len(MASK_INDEX), len(MASK_INDEX[0]))):
        if made not in (1, given):
            raise ValueError(f"the mask differs by {side} and is for {made}, not {given}")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out, lse = _Attention.apply(q, k, v, sinks, scale, activation, softcap, normalizer)
    return (out, lse) if return_lse else out
'''
