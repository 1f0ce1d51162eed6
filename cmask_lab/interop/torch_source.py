"""What exported sources that use PyTorch have in common: their tables, and the mask as a function of positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cmask_lab.interop.formula import Formula, Place, Table
from cmask_lab.interop.layout import LITERAL_VALUES, UNPACK, UNPACK_NUMPY, int_table, is_packed, number_list
from cmask_lab.interop.plane import Plane
from cmask_lab.masks.mask import Mask

INSIDE = '''\
def inside(x, n):
    """A position as an index of a table: n, its last entry, for all outside [0, n)."""
    return torch.where((x >= 0) & (x < n), x, n)
'''

NUMBERED = '''\
def numbered(sizes):
    """0 for the first sizes[0] positions, 1 for the next sizes[1] …; behind the last: len(sizes)."""
    sizes = torch.as_tensor([*sizes, 1])
    return torch.repeat_interleave(torch.arange(len(sizes)), sizes).int()
'''

RESERVED = ("mask_mod", "make_mask_mod", "numbered", "unpacked", "device", "mask", "base64", "zlib")


@dataclass(frozen=True)
class MaskFunction:
    """The parts of a source that says which query sees which key.

    Attributes:
        tables: lines of module-level tables, upper-case names, on the CPU.
        to_device: lines that give the tables their lower-case names on ``device``.
        body: lines of a function body of ``(b, h, q, k)``.
    """

    tables: list[str]
    to_device: list[str]
    body: list[str]

    @classmethod
    def of(cls, plane: Plane, margin: int = 4) -> MaskFunction:
        """The function for the rows of a plane, counted from its first query; keys beyond it are never asked for.

        Args:
            margin: spaces in front of the body, where the source puts it.
        """
        place = Place("q", "k", plane.q_start + plane.q_len, plane.kv_len)
        function = cls.over(plane.masks, plane.index, place, margin)
        return replace(function, body=[f"q = q + {plane.q_start}", *function.body]) if plane.q_start else function

    @classmethod
    def over(cls, masks: Sequence[Mask], index: np.ndarray, place: Place, margin: int = 4) -> MaskFunction:
        """The function of absolute positions; a batch entry and head pick their mask by ``index[b, h]``."""
        formula = Formula(taken=RESERVED, margin=margin)
        body = formula.any_of(masks, index, place)
        tables = [line for name, table in formula.tables.items() for line in table_lines(name.upper(), table)]
        return cls(tables, [f"{name} = {name.upper()}.to(device)" for name in formula.tables], body)

    def factory(self) -> str:
        """The source of ``make_mask_mod(device)``, which returns ``mask_mod(b, h, q, k)``; made with ``margin=8``."""
        to_device = f"{indented(self.to_device)}\n\n" if self.to_device else "\n"
        return (
            f'def make_mask_mod(device):\n    """The mask, its tables on a device."""\n{to_device}'
            f'    def mask_mod(b, h, q, k):\n        """Whether query q sees key k."""\n{indented(self.body, 8)}\n\n'
            f"    return mask_mod\n"
        )


def table_lines(name: str, table: Table) -> list[str]:
    """Lines of a formula's table; one that numbers consecutive pieces is made from their sizes."""
    if table.sizes is None:
        return int_table(name, table.values)
    if len(table.sizes) <= LITERAL_VALUES:
        return number_list(f"{name} = numbered(", table.sizes, ")")
    return int_table(name, table.values)


def module(docstring: str, imports: list[str], tables: list[str], functions: list[str]) -> str:
    """A whole source: docstring, imports, the helpers that the rest calls for, tables, functions.

    Args:
        tables: lines.
        functions: source texts, each a function.
    """
    text = "\n".join([*tables, *functions])
    helpers = [
        helper
        for name, helper in (("inside", INSIDE), ("numbered", NUMBERED))
        if f"{name}(" in text and f"def {name}(" not in text
    ]
    if is_packed(tables):
        standard = [line for line in imports if line == "import functools"]
        imports = ["import base64", *standard, "import zlib", "", *(line for line in imports if line not in standard)]
        imports = [line for n, line in enumerate(imports) if line or imports[n - 1]]
        helpers.append(UNPACK if "import torch" in imports else UNPACK_NUMPY)
    head = f'"""{docstring}"""\n\n' + "\n".join(imports) + "\n"
    constants = "\n".join(tables) + "\n"
    if not tables:
        return "\n\n".join([head, *helpers, *functions])
    if not helpers:
        return "\n\n".join([f"{head}\n{constants}", *functions])
    return "\n\n".join([head, *helpers, constants, *functions])


def indented(lines: list[str], spaces: int = 4) -> str:
    """Lines moved to the right; empty ones stay empty."""
    return "\n".join(f"{' ' * spaces}{line}" if line else line for line in lines)


def index_table(name: str, index: np.ndarray) -> list[str]:
    """Lines of an int64 table of mask numbers, ``(batch or 1, heads or 1)``."""
    return [f"{name} = torch.tensor({index.tolist()})"]
