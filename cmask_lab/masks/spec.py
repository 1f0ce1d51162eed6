"""JSON → mask, strictly: every type, field and value is known and checked, or an error names it.

A spec may come from anywhere. It holds data only: each node type is looked up in ``READERS``, its fields are read as
the JSON types written there, and the same function that a user would call checks the values. Nesting is limited to
``DEPTH_LIMIT`` levels, so a spec can neither execute anything nor exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cmask_lab import json_text
from cmask_lab.masks import combinators, gather, grids, placement, regions, tables
from cmask_lab.masks.mask import DEPTH_LIMIT, SPEC_VERSION, Mask
from cmask_lab.short_text import shown


class SpecError(ValueError):
    """A spec that is not one of ours; the message says where and why."""


def from_spec(spec: Mapping[str, Any] | str | bytes) -> Mask:
    """The mask of a spec: what ``mask.spec()`` returned, or its JSON text.

    Raises:
        SpecError: unknown version, type or field, a missing field, a value of the wrong type or range, or masks
            nested too deep; the message names the place, as in ``mask.args[1].left``.

    >>> from_spec({"cmask": 1, "mask": {"type": "window", "left": 3, "right": None}})
    cm.window(3, None)
    >>> from_spec('{"cmask": 1, "mask": {"type": "window", "left": 3}}')
    Traceback (most recent call last):
    cmask_lab.masks.spec.SpecError: spec: mask: a 'window' has no field 'right'; its fields are left, right
    """
    if isinstance(spec, str | bytes):
        spec = _parsed(spec)
    if not isinstance(spec, Mapping):
        raise SpecError(f"spec: expected an object with 'cmask' and 'mask', got {shown(spec)}")
    if "cmask" not in spec:
        raise SpecError("spec: 'cmask', the version of the spec, is missing; a spec is what mask.spec() returns")
    version = spec["cmask"]
    if type(version) is not int or version != SPEC_VERSION:
        raise SpecError(f"spec: version {shown(version)} is unknown; this cmask_lab reads version {SPEC_VERSION}")
    for field in spec:
        if field not in ("cmask", "mask"):
            raise SpecError(f"spec: unknown field {shown(field)}; a spec has the fields cmask, mask")
    if "mask" not in spec:
        raise SpecError("spec: 'mask' is missing; a spec is what mask.spec() returns")
    return _node(spec["mask"], "mask", 1)


def _parsed(text: str | bytes) -> Any:
    try:
        return json_text.parse(text)
    except ValueError as error:
        raise SpecError(f"spec: {error}") from error


# Field types --------------------------------------------------------------------------------------------------------
# Each takes (value, path, depth) and returns what the region's function wants, or raises SpecError.

Reader = Callable[[Any, str, int], Any]


def _int(value: Any, path: str, depth: int) -> int:
    if type(value) is not int:
        raise SpecError(f"spec: {path} is {shown(value)}; it must be an integer")
    return value


def _bool(value: Any, path: str, depth: int) -> bool:
    if type(value) is not bool:
        raise SpecError(f"spec: {path} is {shown(value)}; it must be true or false")
    return value


def _text(value: Any, path: str, depth: int) -> str:
    if type(value) is not str:
        raise SpecError(f"spec: {path} is {shown(value)}; it must be a string")
    return value


def _list_of(item: Reader) -> Reader:
    def read(value: Any, path: str, depth: int) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise SpecError(f"spec: {path} is {shown(value)}; it must be a list")
        return [item(each, f"{path}[{n}]", depth) for n, each in enumerate(value)]

    return read


def _maybe(item: Reader) -> Reader:
    def read(value: Any, path: str, depth: int) -> Any:
        return None if value is None else item(value, path, depth)

    return read


def _node(value: Any, path: str, depth: int) -> Mask:
    if depth > DEPTH_LIMIT:
        raise SpecError(f"spec: nested too deep; at most {DEPTH_LIMIT} levels are allowed")
    if not isinstance(value, Mapping):
        raise SpecError(f"spec: {path} is {shown(value)}; it must be an object with a 'type'")
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in READERS:
        raise SpecError(f"spec: {path}: unknown type {shown(kind)}; the types are {', '.join(READERS)}")
    variants = READERS[kind]
    given = {field: entry for field, entry in value.items() if field not in ("type", "name")}
    variant = next((v for v in variants if v.applies(given)), variants[0])
    if variant.value is not None and given.get(variant.mark) != variant.value and variant.mark in given:
        kinds = ", ".join(v.value for v in variants)
        raise SpecError(
            f"spec: {path}: unknown {variant.mark} {shown(given[variant.mark])} of a {kind!r}; "
            f"the {variant.mark}s are {kinds}"
        )
    names = ", ".join(variant.fields) or "none"
    for field in given:
        if field not in variant.fields:
            raise SpecError(f"spec: {path}: unknown field {shown(field)} of a {kind!r}; its fields are {names}")
    for field in variant.fields:
        if field not in given:
            raise SpecError(f"spec: {path}: a {kind!r} has no field {field!r}; its fields are {names}")
    arguments = {field: reader(given[field], f"{path}.{field}", depth + 1) for field, reader in variant.fields.items()}
    name = _text(value["name"], f"{path}.name", depth) if "name" in value else None
    try:
        mask = variant.make(**arguments)
    except (ValueError, TypeError) as error:
        raise SpecError(f"spec: {path}: {error}") from error
    return mask if name is None else mask.named(name)


# Node types ---------------------------------------------------------------------------------------------------------


class Variant(NamedTuple):
    """One way to write a node type: how its fields are read, and what makes the mask of them."""

    make: Callable[..., Mask]
    fields: dict[str, Reader]
    mark: str | None = None
    """The field whose presence says that this way is meant; None for the only way."""
    value: Any = None
    """What the marking field must hold, if not anything."""

    def applies(self, given: Mapping[str, Any]) -> bool:
        """Whether these fields are written this way."""
        return self.mark is None or (self.mark in given and self.value in (None, given[self.mark]))


_ints = _list_of(_int)
_nodes = _list_of(_node)
_maybe_int = _maybe(_int)


def _joined(kind: type[combinators.And] | type[combinators.Or]) -> Callable[..., Mask]:
    def make(args: list[Mask]) -> Mask:
        if len(args) < 2:
            raise ValueError(f"{kind.type}: {len(args)} operands in args; there must be at least 2")
        return kind.of(*args)

    return make


def _minus(args: list[Mask]) -> Mask:
    if len(args) != 2:
        raise ValueError(f"minus: {len(args)} operands in args; there must be 2")
    return combinators.Minus((args[0], args[1]))


def _tiles(q_size: int, k_size: int, rows: list[str]) -> Mask:
    return tables.tiles(rows, (q_size, k_size))


def _on_grid(kind: str, make: Callable[..., Mask], **fields: Reader) -> Variant:
    def build(shape: list[int], kind: str, **arguments: Any) -> Mask:
        return make(grids.grid(*shape), **arguments)

    return Variant(build, {"shape": _ints, "kind": _text, **fields}, "kind", kind)


READERS: dict[str, tuple[Variant, ...]] = {
    "full": (Variant(regions.full, {}),),
    "empty": (Variant(regions.empty, {}),),
    "causal": (Variant(regions.causal, {}),),
    "anticausal": (Variant(regions.anticausal, {}),),
    "window": (Variant(regions.window, {"left": _maybe_int, "right": _maybe_int}),),
    "band": (Variant(regions.band, {"lo": _maybe_int, "hi": _maybe_int}),),
    "rect": (Variant(regions.rect, {"q": _maybe(_ints), "k": _maybe(_ints)}),),
    "prefix": (Variant(regions.prefix, {"n": _int}),),
    "sink": (Variant(regions.sink, {"n": _int}),),
    "suffix": (Variant(regions.suffix, {"start": _int}),),
    "global_tokens": (Variant(regions.global_tokens, {"ranges": _list_of(_ints)}),),
    "documents": (
        Variant(tables.documents, {"lengths": _ints}, "lengths"),
        Variant(tables.documents, {"ids": _ints}, "ids"),
    ),
    "strided": (Variant(regions.strided, {"step": _int, "phase": _int}),),
    "tiles": (Variant(_tiles, {"q_size": _int, "k_size": _int, "rows": _list_of(_text)}),),
    "tree": (Variant(tables.tree, {"parents": _ints}),),
    "explicit": (Variant(tables.explicit, {"row_ptr": _ints, "start": _ints, "stop": _ints}),),
    "grid": (
        _on_grid("disk", grids.Grid.disk, radius=_int),
        _on_grid("box", lambda grid, radii: grid.box(*radii), radii=_ints),
        _on_grid("neighborhood", grids.Grid.neighborhood, size=_ints, dilation=_ints, causal=_list_of(_bool)),
        _on_grid("axial", grids.Grid.axial, axes=_ints),
        _on_grid("causal_time", grids.Grid.causal_time),
    ),
    "and": (Variant(_joined(combinators.And), {"args": _nodes}),),
    "or": (Variant(_joined(combinators.Or), {"args": _nodes}),),
    "minus": (Variant(_minus, {"args": _nodes}),),
    "not": (Variant(combinators.Not, {"arg": _node}),),
    "at": (Variant(placement.at, {"mask": _node, "q": _ints, "k": _ints}),),
    "repeat": (
        Variant(lambda sizes, mask: placement.repeat(sizes, mask), {"sizes": _ints, "mask": _node}, "mask"),
        Variant(placement.repeat, {"sizes": _ints, "masks": _nodes}, "masks"),
    ),
    "take": (Variant(gather.take, {"mask": _node, "q": _maybe(_ints), "k": _maybe(_ints)}),),
    "transposed": (Variant(placement.Transposed, {"mask": _node}),),
    "per_batch": (Variant(combinators.per_batch, {"masks": _nodes}),),
    "per_head": (Variant(combinators.per_head, {"masks": _nodes}),),
}
