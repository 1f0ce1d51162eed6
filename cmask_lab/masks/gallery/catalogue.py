"""What an entry of the gallery is: a function that builds a mask, with everything a reader or a slider wants to know.

A family's file writes functions and puts ``@register(...)`` above each: that checks what callers pass, and adds the
entry. The docstring of every function draws its mask; the drawing is a doctest, so it can't be wrong.
"""

from __future__ import annotations

import functools
import html
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cmask_lab.compiler.intervals import POSITION_LIMIT
from cmask_lab.masks.arguments import integer, integers, pair
from cmask_lab.masks.mask import Mask

Builder = TypeVar("Builder", bound=Callable[..., Mask])

LISTS = {"ints": "a list of integers", "pairs": "a list of pairs (start, stop)", "lists": "a list of lists of integers"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of an entry.

    Attributes:
        name: as in the function's signature.
        kind: "int", "float", "bool", "choice", "ints", "pairs" (of start and stop) or "lists" (of integers).
        default: used when nothing is given.
        unit: what is counted: "keys", "tokens", "frames"; "" where nothing is.
        about: one line for a tool tip.
        least, most: values outside are refused; None for no limit. Of lists, the limits of every number.
        slider: the largest value that a slider offers; numbers only.
        choices: the values of a "choice".
    """

    name: str
    kind: str
    default: Any
    unit: str
    about: str
    least: float | None = None
    most: float | None = None
    slider: float | None = None
    choices: tuple[str, ...] = ()

    def clean(self, value: Any, entry: str) -> Any:
        """The value as the entry's function wants it; a list may come as JSON text.

        >>> count("keys", "width", least=1).clean(0, "sliding_window")
        Traceback (most recent call last):
        ValueError: sliding_window: … is 0; it must be at least 1
        """
        what = f"{entry}: {self.name}"
        if self.kind == "int":
            most = POSITION_LIMIT if self.most is None else int(self.most)
            return integer(value, what, least=int(self.least or 0), most=most)
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise TypeError(f"{what} is {value!r}; it must be True or False")
            return value
        if self.kind == "choice":
            if value not in self.choices:
                raise ValueError(f"{what} is {value!r}; it must be one of {', '.join(map(repr, self.choices))}")
            return value
        if self.kind == "float":
            return self._number(value, what)
        return self._list(value, what)

    def _number(self, value: Any, what: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{what} is {value!r}; it must be a number")
        low, high = self.least or 0.0, float("inf") if self.most is None else self.most
        if not low <= value <= high:
            raise ValueError(f"{what} is {value}; it must lie between {low:g} and {high:g}")
        return float(value)

    def _list(self, value: Any, what: str) -> Any:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except json.JSONDecodeError as error:
                raise ValueError(f"{what} is {value!r}; it must be {LISTS[self.kind]} ({error})") from None
        if not isinstance(value, Iterable):
            raise TypeError(f"{what} is {value!r}; it must be {LISTS[self.kind]}")
        least = int(self.least or 0)
        if self.kind == "ints":
            return integers(value, what, "value", least=least).tolist()
        if self.kind == "pairs":
            return [pair(item, f"{what} {n}") for n, item in enumerate(value)]
        lists = [integers(item, f"{what} {n}", "value", least=least).tolist() for n, item in enumerate(value)]
        if not lists:
            raise ValueError(f"{what} is empty; give at least one list of integers")
        return lists


def count(unit: str, about: str, *, least: int = 0, most: int | None = None, slider: int = 1024) -> Parameter:
    """An integer parameter; name and default come from the signature."""
    return Parameter("…", "int", 0, unit, about, least, most, slider)


def number(about: str, *, least: float, most: float) -> Parameter:
    """A real number in ``[least, most]``."""
    return Parameter("…", "float", 0.0, "", about, least, most, most)


def switch(about: str) -> Parameter:
    """True or False."""
    return Parameter("…", "bool", False, "", about)


def choice(about: str, *choices: str) -> Parameter:
    """One of a few words."""
    return Parameter("…", "choice", choices[0], "", about, choices=choices)


def ints(unit: str, about: str, *, least: int = 0) -> Parameter:
    """A list of integers."""
    return Parameter("…", "ints", (), unit, about, least)


def pairs(unit: str, about: str) -> Parameter:
    """A list of ranges ``(start, stop)``."""
    return Parameter("…", "pairs", (), unit, about)


def lists(unit: str, about: str, *, least: int = 0) -> Parameter:
    """A list of lists of integers."""
    return Parameter("…", "lists", (), unit, about, least)


@dataclass(frozen=True)
class Entry:
    """A mask of the gallery.

    Attributes:
        name: for ``cm.gallery.get``.
        title: for people.
        family: the file of the gallery that it is in: "plain", "packed", "images" and so on.
        formula: when query ``i`` sees key ``j``, in one line.
        source: the paper with its arXiv number, or the repository.
        parameters: in the order of the signature.
        convention: how this entry counts where libraries disagree; "" where they don't.
        build: the function, its arguments checked.
        intervals: the most intervals that a row can have, from the parameters.

    >>> import cmask_lab.masks.gallery as gallery
    >>> window = gallery.entry("sliding_window")
    >>> window.formula, window.intervals_per_row(window=8)
    ('i − W < j ≤ i', 1)
    >>> print(window.picture)
    # . . . . .
    # # . . . .
    # # # . . .
    . # # # . .
    . . # # # .
    . . . # # #
    """

    name: str
    title: str
    family: str
    formula: str
    source: str
    parameters: tuple[Parameter, ...]
    convention: str
    build: Callable[..., Mask]
    intervals: Callable[[Mapping[str, Any]], int]

    def mask(self, **params: Any) -> Mask:
        """The mask for these parameters; those not given have their defaults.

        Raises:
            TypeError: an unknown parameter, or a value of the wrong type.
            ValueError: a value out of range.
        """
        known = [parameter.name for parameter in self.parameters]
        for name in params:
            if name not in known:
                have = f"it has {', '.join(known)}" if known else "it has none"
                raise TypeError(f"{self.name}: no parameter is called {name!r}; {have}")
        return self.build(**params)

    def intervals_per_row(self, **params: Any) -> int:
        """The most intervals that a row of the mask with these parameters can have."""
        return self.intervals({parameter.name: parameter.default for parameter in self.parameters} | params)

    @property
    def doc(self) -> str:
        """The docstring, without indentation."""
        return inspect.getdoc(self.build) or ""

    @property
    def picture(self) -> str:
        """The drawing in the docstring: ``#`` sees, ``.`` doesn't; a query a row."""
        _, _, drawing = self.doc.partition(">>> draw(")
        return drawing.partition("\n")[2].partition("\n\n")[0]

    @property
    def url(self) -> str:
        """Where the source is found."""
        arxiv = re.search(r"arXiv:(\d{4}\.\d{4,5})", self.source)
        if arxiv:
            return f"https://arxiv.org/abs/{arxiv[1]}"
        repository = re.search(r"github\.com/[\w.-]+/[\w.-]+", self.source)
        return f"https://{repository[0]}" if repository else ""

    def describe(self) -> dict[str, Any]:
        """Everything as JSON types, for a menu with sliders; lists are parameters of kind "text"."""
        return {
            "name": self.name,
            "title": self.title,
            "family": self.family,
            "formula": self.formula,
            "source": self.source,
            "url": self.url,
            "convention": self.convention,
            "params": [
                {
                    "name": parameter.name,
                    "kind": "text" if parameter.kind in LISTS else parameter.kind,
                    "default": json.loads(json.dumps(parameter.default)),
                    "min": parameter.least,
                    "max": parameter.slider,
                    "choices": list(parameter.choices),
                    "unit": parameter.unit,
                    "about": parameter.about,
                }
                for parameter in self.parameters
            ],
        }

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><code>{p.name}</code></td><td>{html.escape(str(p.default))} {p.unit}</td>"
            f"<td style='text-align:left'>{html.escape(p.about)}</td></tr>"
            for p in self.parameters
        )
        source = html.escape(self.source)
        link = f'<a href="{self.url}">{source}</a>' if self.url else source
        note = f"<p>{html.escape(self.convention)}</p>" if self.convention else ""
        return (
            f"<h4>{html.escape(self.title)} <code>{self.name}</code></h4><p>{html.escape(self.formula)}<br>{link}</p>"
            f"{note}<table>{rows}</table><pre>{html.escape(self.picture)}</pre>"
        )


REGISTRY: dict[str, Entry] = {}
"""All entries by name, in the order in which the families list them."""


def register(
    *,
    title: str,
    formula: str,
    source: str,
    intervals: int | Callable[[Mapping[str, Any]], int] = 1,
    convention: str = "",
    parameters: Mapping[str, Parameter] | None = None,
) -> Callable[[Builder], Builder]:
    """Register the function below as an entry of the gallery, and have its arguments checked.

    Args:
        title, formula, source, convention: see :class:`Entry`.
        intervals: the most intervals in a row; a number, or a function of the parameters.
        parameters: one for each argument of the function; defaults come from the signature.
    """

    def register(function: Builder) -> Builder:
        signature = inspect.signature(function)
        described = dict(parameters or {})
        if list(described) != list(signature.parameters):
            raise TypeError(f"{function.__name__}: parameters {list(described)} do not match the signature {signature}")
        known = {
            name: replace(described[name], name=name, default=argument.default)
            for name, argument in signature.parameters.items()
        }

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Mask:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return function(
                **{name: known[name].clean(value, function.__name__) for name, value in bound.arguments.items()}
            )

        bound = intervals if callable(intervals) else functools.partial(_constant, intervals)
        REGISTRY[function.__name__] = Entry(
            name=function.__name__,
            title=title,
            family=function.__module__.rpartition(".")[2],
            formula=formula,
            source=source,
            parameters=tuple(known.values()),
            convention=convention,
            build=checked,
            intervals=bound,
        )
        return checked  # type: ignore[return-value]

    return register


def _constant(number: int, params: Mapping[str, Any]) -> int:
    """A bound that no parameter changes."""
    return number


def draw(mask: Mask, q_len: int | None = None, kv_len: int | None = None, q_start: int = 0) -> None:
    """Print a small mask, a query a row: ``#`` where it sees the key, ``.`` where not.

    Args:
        q_len, kv_len: what the mask was made for if not given.

    >>> import cmask_lab as cm
    >>> draw(cm.causal(), 3)
    # . .
    # # .
    # # #
    """
    queries, keys = mask.extent
    q_len = queries if q_len is None else q_len
    if q_len is None:
        raise ValueError("draw: the mask has no end; pass q_len")
    dense = mask.to_dense(q_len, keys if kv_len is None else kv_len, q_start)
    print("\n".join(" ".join(".#"[cell] for cell in row) for row in dense.astype(int).tolist()))
