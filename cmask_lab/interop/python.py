"""Target ``python``: ``cmask_lab`` code that rebuilds the mask, one named variable for every named region.

The code is what a user would have written: operators with one operand a line where a line would be too long, long
lists of numbers as variables of their own. ruff and black find nothing to change in it.
"""

from __future__ import annotations

import json
from keyword import iskeyword

import numpy as np

from cmask_lab.interop.layout import (
    Expression,
    Inverted,
    Term,
    chain,
    identifier,
    inline,
    number_list,
    operand,
    statement,
)
from cmask_lab.masks.combinators import And, Minus, Not, Or, PerBatch, PerHead
from cmask_lab.masks.gather import Take
from cmask_lab.masks.mask import Mask
from cmask_lab.masks.placement import At, Repeat, RepeatEach, Transposed
from cmask_lab.masks.tables import DocumentIds, Documents, Explicit, Tiles, Tree
from cmask_lab.short_text import shortened

SHORT = 12
"""Lists with more numbers than this get a variable."""

TERM_WIDTH = 76
"""Longest method call or list that still fits a line together with what stands before it."""


def source(mask: Mask, *, name: str = "mask") -> str:
    """Python that assigns the mask to the variable ``name``.

    Args:
        name: a Python identifier.

    Raises:
        ValueError: ``name`` is none.

    >>> import cmask_lab as cm
    >>> lines = source(cm.prefix(4).named("prompt") | cm.causal()).splitlines()
    >>> print("\\n".join(lines[2:]))
    import cmask_lab as cm
    <BLANKLINE>
    prompt = cm.prefix(4).named("prompt")
    mask = prompt | cm.causal()
    """
    if not isinstance(name, str) or not name.isidentifier() or iskeyword(name):
        raise ValueError(f"export: name is {name!r}; it must be a Python identifier and no keyword")
    writer = _Writer(name)
    body = statement(f"{name} =", writer.definition(mask))
    title = shortened(mask.formula, 80)
    return "\n".join([f'"""{title}"""', "", "import cmask_lab as cm", "", *writer.lines, *body, ""])


class _Writer:
    """Collects the assignments that come before the mask's own."""

    def __init__(self, name: str):
        self.lines: list[str] = []
        self.taken = {name, "cm"}
        self.variables: dict[int, str] = {}
        self.tables: dict[bytes, str] = {}

    def hoisted(self, name: str, expression: Expression) -> str:
        """The expression assigned to a new variable."""
        variable = identifier(name, self.taken)
        self.lines += statement(f"{variable} =", expression)
        return variable

    def expression(self, mask: Mask) -> Expression:
        """The mask as a part of a larger one: a variable if it has a name."""
        if mask.name is None:
            return self.definition(mask)
        # Masks are immutable and the whole holds on to its parts, so the id stands for the part.
        if id(mask) not in self.variables:
            definition = self.definition(mask)  # first, so that what it needs stands above it
            self.variables[id(mask)] = self.hoisted(mask.name, definition)
        return Term(self.variables[id(mask)])

    def definition(self, mask: Mask) -> Expression:
        """The mask's code, its name as ``.named(...)`` behind it."""
        code = self._code(mask)
        return code if mask.name is None else self._method(code, f"named({_quoted(mask.name)})")

    def _code(self, mask: Mask) -> Expression:
        match mask:
            case And() | Or():
                return chain(mask.symbol, [self._operand(each, mask) for each in mask.args])
            case Minus():
                kept, gone = (self._operand(each, mask) for each in mask.args)
                return chain("-", [kept, gone])
            case Not():
                return Inverted(self.expression(mask.arg))
            case At():
                return self._method(self.expression(mask.mask), f"at(q={mask.q}, k={mask.k})")
            case Transposed():
                return self._method(self.expression(mask.mask), "transposed()")
            case Repeat():
                return self._method(self.expression(mask.mask), f"repeat({self._numbers('sizes', mask.sizes)})")
            case RepeatEach():
                return Term(f"cm.repeat({self._numbers('sizes', mask.sizes)}, {self._masks(mask.masks)})")
            case Take():
                sides = [("q", mask.q), ("k", mask.k)]
                given = [
                    f"{axis}={self._numbers(f'{axis}_order', index)}" for axis, index in sides if index is not None
                ]
                return self._method(self.expression(mask.mask), f"take({', '.join(given)})")
            case PerBatch() | PerHead():
                return Term(f"cm.{mask.type}({self._masks(mask.masks)})")
            case _:
                return Term(self._region(mask))

    def _region(self, mask: Mask) -> str:
        match mask:
            case Documents():
                return f"cm.documents({self._numbers('lengths', mask.lengths)})"
            case DocumentIds():
                return f"cm.documents(ids={self._numbers('ids', mask.ids)})"
            case Tree():
                return f"cm.tree({self._numbers('parents', mask.parents)})"
            case Explicit():
                parts = (("row_ptr", mask.row_ptr), ("start", mask.start), ("stop", mask.stop))
                return f"cm.explicit({', '.join(self._numbers(name, values) for name, values in parts)})"
            case Tiles():
                size = mask.q_size if mask.q_size == mask.k_size else (mask.q_size, mask.k_size)
                variable = identifier("rows", self.taken)
                self.lines += [f"{variable} = [", *(f'    "{row}",' for row in mask.rows), "]"]
                return f"cm.tiles({variable}, {size})"
            case _:
                return mask._code()

    def _operand(self, part: Mask, whole: Mask) -> Expression:
        """An operand of a chain; a chain of the same kind stays a mask of its own, in parentheses."""
        expression = self.expression(part)
        return Term(operand(expression)) if part.type == whole.type else expression

    def _method(self, receiver: Expression, call: str) -> Term:
        """A method call; the mask becomes a variable where the line would get long."""
        text = receiver.text if isinstance(receiver, Term) else f"({inline(receiver)})"
        if len(text) + len(call) > TERM_WIDTH and not text.isidentifier():
            text = self.hoisted("part", receiver)
        return Term(f"{text}.{call}")

    def _masks(self, masks: tuple[Mask, ...]) -> str:
        """A list of masks: on the line if it is short, else a variable with one mask a line."""
        expressions = [self.expression(mask) for mask in masks]
        items = [inline(expression) for expression in expressions]
        line = f"[{', '.join(items)}]"
        if len(line) <= TERM_WIDTH - 20:
            return line
        items = [
            item if len(item) <= TERM_WIDTH else self.hoisted("part", expression)
            for item, expression in zip(items, expressions, strict=True)
        ]
        variable = identifier("masks", self.taken)
        self.lines += [f"{variable} = [", *(f"    {item}," for item in items), "]"]
        return variable

    def _numbers(self, name: str, values: np.ndarray) -> str:
        """A list of numbers: written out if it is short, else a variable, one for all lists that are equal."""
        if len(values) <= SHORT:
            return str(values.tolist())
        key = values.tobytes()
        if key not in self.tables:
            self.tables[key] = identifier(name, self.taken)
            self.lines += number_list(f"{self.tables[key]} = ", values)
        return self.tables[key]


def _quoted(text: str) -> str:
    """A string literal with the quotes that formatters want."""
    return repr(text) if '"' in text else json.dumps(text, ensure_ascii=False)
