"""Laying out generated Python: expressions broken as ruff and black break them, and tables of integers as text.

Exported sources are meant to be read, so a formatter must find nothing to change in them. Only a few shapes of
statement ever occur: an expression on one line, a chain of operators with one operand a line, a list with one item a
line, and tables of numbers between ``# fmt: off`` and ``# fmt: on``.
"""

from __future__ import annotations

import ast
import base64
import keyword
import re
import textwrap
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

WIDTH = 88
"""Characters a line: the default of ruff and black."""

LITERAL_VALUES = 256
"""Longer tables are compressed: nobody reads more numbers than this."""


@dataclass(frozen=True)
class Term:
    """A piece of an expression that is never broken."""

    text: str
    loose: bool = False
    """Whether it has to stand in parentheses as an operand (a comparison does, a call does not)."""


@dataclass(frozen=True)
class Chain:
    """Operands joined by one binary operator."""

    symbol: str
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Inverted:
    """``~`` of an expression."""

    part: Expression


Expression = Term | Chain | Inverted


def chain(symbol: str, parts: Iterable[Expression]) -> Expression:
    """The operands joined; chains of the same operator are taken apart, and one operand alone stays itself.

    >>> inline(chain("&", [Term("a"), Term("b < c", loose=True)]))
    'a & (b < c)'
    """
    flat: list[Expression] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Chain) and part.symbol == symbol else [part])
    return flat[0] if len(flat) == 1 else Chain(symbol, tuple(flat))


def compared(text: str) -> Term:
    """A comparison."""
    return Term(text, loose=True)


def inline(expression: Expression) -> str:
    """The expression on one line."""
    match expression:
        case Term(text, _):
            return text
        case Inverted(part):
            return f"~{operand(part)}"
        case Chain(symbol, parts):
            return f" {symbol} ".join(operand(part) for part in parts)


def operand(expression: Expression) -> str:
    """The expression on one line, in parentheses where an operator needs them."""
    loose = expression.loose if isinstance(expression, Term) else isinstance(expression, Chain)
    return f"({inline(expression)})" if loose else inline(expression)


def statement(head: str, expression: Expression, indent: int = 0, margin: int = 0) -> list[str]:
    """Lines of ``head expression``, such as ``mask = a | b`` or ``return a``.

    Args:
        indent: spaces in front.
        margin: spaces that the lines will be moved to the right later on.

    >>> for line in statement("mask =", chain("|", [Term("a" * 60), Term("b" * 40)])):
    ...     print(line[:20])
    mask = (
        aaaaaaaaaaaaaaaa
        | bbbbbbbbbbbbbb
    )
    """
    return _broken(f"{' ' * indent}{head} ", expression, indent, WIDTH - margin)


def _broken(opening: str, expression: Expression, indent: int, width: int) -> list[str]:
    """``opening expression``, on as few lines as a formatter makes of it."""
    if len(opening) + len(inline(expression)) <= width:
        return [opening + inline(expression)]
    if isinstance(expression, Term):
        return _broken_call(opening, expression.text, indent, width)
    if isinstance(expression, Inverted):
        return _bracketed(f"{opening}~", expression.part, indent, width)
    if len(expression.parts) == 2 and operand(expression.parts[1]).startswith("("):
        # One operator, and behind it a pair of brackets that can be opened.
        first = f"{opening}{operand(expression.parts[0])} {expression.symbol} "
        if len(first) < width:
            return _bracketed(first, expression.parts[1], indent, width)
    return _bracketed(opening, expression, indent, width)


def _broken_call(opening: str, text: str, indent: int, width: int) -> list[str]:
    """A call that is too long for one line: in parentheses if it is a chain of calls, else its arguments on a line."""
    inner, closing = " " * (indent + 4), f"{' ' * indent})"
    if text.count(").") >= 2 and len(inner) + len(text) <= width:
        return [f"{opening}(", inner + text, closing]
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call):
        return [opening + text]
    end = len(text.encode()[: call.func.end_col_offset].decode()) + 1
    return [opening + text[:end], inner + text[end:-1], closing]


def _bracketed(opening: str, expression: Expression, indent: int, width: int) -> list[str]:
    """``opening`` and the expression in parentheses: on one line of its own, or one operand a line."""
    inner = " " * (indent + 4)
    lines = [f"{opening}("]
    if not isinstance(expression, Chain) or len(inner) + len(inline(expression)) <= width:
        return [*lines, inner + inline(expression), f"{' ' * indent})"]
    for number, part in enumerate(expression.parts):
        start = inner + (f"{expression.symbol} " if number else "")
        if len(start) + len(operand(part)) <= width or isinstance(part, Term):
            lines.append(start + operand(part))
        elif isinstance(part, Inverted):
            lines += _bracketed(f"{start}~", part.part, indent + 4, width)
        else:
            lines += _bracketed(start, part, indent + 4, width)
    return [*lines, f"{' ' * indent})"]


def identifier(name: str, taken: set[str]) -> str:
    """A Python name made from a layer's name, not yet in ``taken``, which it joins.

    >>> identifier("Text rows!", {"text_rows"})
    'text_rows_2'
    """
    base = re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_") or "region"
    if base[0].isdigit() or keyword.iskeyword(base):
        base = f"region_{base}"
    candidate, number = base, 1
    while candidate in taken:
        number += 1
        candidate = f"{base}_{number}"
    taken.add(candidate)
    return candidate


def number_list(head: str, values: Sequence[int] | np.ndarray, tail: str = "") -> list[str]:
    """Lines of ``head [values] tail``; a list too long for one line is filled, out of the formatter's reach.

    >>> number_list("lengths = ", [2, 3])
    ['lengths = [2, 3]']
    """
    text = ", ".join(map(str, np.asarray(values).tolist()))
    line = f"{head}[{text}]{tail}"
    if len(line) <= WIDTH:
        return [line]
    body = textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
    return ["# fmt: off", f"{head}[", *body, f"]{tail}", "# fmt: on"]


def packed(values: np.ndarray) -> list[str]:
    """int32 values as lines of text that ``UNPACK`` reads: differences, compressed, in base 85."""
    values = np.asarray(values, np.int64).reshape(-1)
    steps = np.diff(values, prepend=0).astype("<i4")
    text = base64.b85encode(zlib.compress(steps.tobytes(), 9)).decode()
    return [text[at : at + WIDTH - 6] for at in range(0, len(text), WIDTH - 6)]


UNPACK = '''\
def unpacked(text):
    """int32 values from a compressed table: base 85, zlib, differences."""
    steps = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(steps, dtype=torch.int32).cumsum(0, dtype=torch.int32)
'''
"""The function that reads ``packed`` text, for sources that use PyTorch; needs ``base64``, ``zlib`` and ``torch``."""

UNPACK_NUMPY = (
    UNPACK.replace("bytearray(", "")
    .replace("(text)))", "(text))")
    .replace(
        "return torch.frombuffer(steps, dtype=torch.int32).cumsum(0, dtype=torch.int32)",
        'return np.frombuffer(steps, "<i4").cumsum(dtype=np.int32)',
    )
)
"""The same for sources that use NumPy as ``np``."""


def int_table(name: str, values: np.ndarray, *, library: str = "torch") -> list[str]:
    """Lines of ``name = <an int32 table>``: a list to read, or from ``LITERAL_VALUES`` on compressed text.

    Args:
        library: "torch" or "numpy": what the table is made with.
    """
    values = np.asarray(values)
    make, dtype = (
        ("torch.tensor(", ", dtype=torch.int32)") if library == "torch" else ("np.array(", ", dtype=np.int32)")
    )
    if values.size <= LITERAL_VALUES:
        lines = number_list(f"{name} = {make}", values.reshape(-1), dtype)
    else:
        text = packed(values)
        lines = [f'{name} = unpacked("{text[0]}")']
        if len(text) > 1 or len(lines[0]) > WIDTH:
            lines = [f"{name} = unpacked(", *(f'    "{line}"' for line in text), ")"]
    if values.ndim > 1:
        lines.append(f"{name} = {name}.reshape({', '.join(map(str, values.shape))})")
    return lines


def is_packed(lines: Iterable[str]) -> bool:
    """Whether a source needs the function ``unpacked``."""
    return any("= unpacked(" in line for line in lines)
