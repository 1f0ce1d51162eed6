"""What is edited: an ordered list of layers on a plane. The mask is the left fold of the visible layers.

A design travels between Python and the browser as JSON; :meth:`Design.read` refuses anything it does not know, by name.
Nothing here needs a widget library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from cmask_lab.masks import Mask, SpecError, empty, from_spec
from cmask_lab.short_text import shown

OPS = ("add", "cut", "intersect")
COMPOSITES = {"or": "add", "and": "intersect", "minus": "cut"}
LENGTH_LIMIT = 1 << 24
LAYER_LIMIT = 2000
FOLD_LEVELS = 32
"""What a fold may add to the depth of its layers; masks nest to a depth of 100. The browser has the same number."""


class DesignError(ValueError):
    """A design, or a message that should hold one, that is not understood; the text names the place."""


@dataclass(frozen=True)
class Layer:
    """One region and what it does to the layers below it.

    Attributes:
        node: the region's spec node, without a name.
        op: "add", "cut" or "intersect".
        name: shown in the list; "" lets the node's type speak.
        template: for a region from the gallery ``{"name": …, "params": {…}}``, so that its sliders come back.
        colour: number of its colour in the browser's palette, or None until it has one.
    """

    node: dict[str, Any]
    op: str = "add"
    name: str = ""
    visible: bool = True
    locked: bool = False
    template: dict[str, Any] | None = None
    colour: int | None = None
    id: str = field(default_factory=lambda: f"P{uuid4().hex[:10]}")

    def message(self) -> dict[str, Any]:
        """JSON for the browser."""
        made = {"id": self.id, "name": self.name or title(self.node), "op": self.op, "node": self.node}
        made |= {"visible": self.visible, "locked": self.locked}
        if self.template is not None:
            made["template"] = self.template
        if self.colour is not None:
            made["colour"] = self.colour
        return made

    @property
    def named_node(self) -> dict[str, Any]:
        """The node with the layer's name where that says more than its type, or holds a group together."""
        usual = title(self.node)
        name = self.name or usual
        return {**self.node, "name": name} if name != usual or self.node["type"] in COMPOSITES else self.node


@dataclass(frozen=True)
class Design:
    """Layers, bottom first, and the plane they lie on.

    >>> import cmask_lab as cm
    >>> design = Design.of(cm.documents([3, 5]) & cm.causal(), q_len=8)
    >>> [(layer.op, layer.node["type"]) for layer in design.layers]
    [('add', 'documents'), ('intersect', 'causal')]
    >>> design.mask
    cm.documents([3, 5]) & cm.causal()
    """

    layers: tuple[Layer, ...]
    q_len: int
    kv_len: int
    q_start: int = 0
    tile: tuple[int, int] = (128, 128)
    heads: int = 16
    head_dim: int = 128
    rev: str = ""
    draft: bool = False

    @classmethod
    def of(cls, mask: Mask, q_len: int, kv_len: int | None = None, **rest: Any) -> Design:
        """A mask taken apart into layers."""
        if mask.type in ("per_batch", "per_head"):
            raise DesignError(
                f"Studio: a {mask.type} mask holds several masks; edit one of them, such as mask.masks[0]"
            )
        start = rest.get("q_start", 0)
        return cls(unfolded(mask.node), q_len, start + q_len if kv_len is None else kv_len, rev=fresh_rev(), **rest)

    @property
    def _visible(self) -> list[Layer]:
        return [layer for layer in self.layers if layer.visible]

    @property
    def node(self) -> dict[str, Any]:
        """The un-versioned spec node of the visible layers."""
        return _folded(self._visible) or empty().node

    @property
    def mask(self) -> Mask:
        """The mask.

        Raises:
            SpecError: a node makes no sense; the text names its layer.

        >>> Design((Layer({"type": "prefix", "n": -1}, name="prompt"),), 8, 8).mask
        Traceback (most recent call last):
        cmask_lab.masks.spec.SpecError: layer 'prompt': mask: prefix: n is -1; it must be at least 0
        """
        try:
            return from_spec({"cmask": 1, "mask": self.node})
        except SpecError:
            # The path to a layer in a long fold tells nobody which one it is.
            for layer in self._visible:
                try:
                    from_spec({"cmask": 1, "mask": layer.node})
                except SpecError as error:
                    place = f"layer {layer.name or title(layer.node)!r}"
                    raise SpecError(f"{place}: {str(error).removeprefix('spec: ')}") from error
            raise

    def message(self) -> dict[str, Any]:
        """JSON for the browser."""
        numbers = {name: getattr(self, name) for name in NUMBERS}
        return {
            "layers": [layer.message() for layer in self.layers],
            "tile": list(self.tile),
            "rev": self.rev,
            **numbers,
        }

    def edited(self, **changes: Any) -> Design:
        """A copy with other values and a revision of its own."""
        return replace(self, **changes, rev=fresh_rev(), draft=False)

    @classmethod
    def read(cls, message: Any) -> Design:
        """The design in a message from the browser or a file.

        Raises:
            DesignError: names the field that is missing, unknown or out of range.

        >>> Design.read({"layers": [], "q_len": 0})
        Traceback (most recent call last):
        cmask_lab.widgets.design.DesignError: design: q_len is 0; an integer in 1 … 16777216 is expected
        """
        known = {"layers", "tile", "rev", "draft", *NUMBERS}
        given = _object(message, "design", known)
        numbers = {}
        for name, (least, most, default) in NUMBERS.items():
            numbers[name] = _integer(given.get(name, default), f"design: {name}", least, most)
        layers = given.get("layers")
        if not isinstance(layers, list) or len(layers) > LAYER_LIMIT:
            raise DesignError(f"design: layers is {shown(layers)}; a list of at most {LAYER_LIMIT} layers is expected")
        tile = given.get("tile", [128, 128])
        if not isinstance(tile, list) or len(tile) != 2:
            raise DesignError(f"design: tile is {shown(tile)}; two integers are expected: queries, keys")
        sides = [_integer(side, f"design: tile[{n}]", 1, 1 << 16) for n, side in enumerate(tile)]
        read = tuple(_read_layer(layer, f"design: layers[{n}]") for n, layer in enumerate(layers))
        ids = [layer.id for layer in read]
        if len(set(ids)) < len(ids):
            raise DesignError("design: two layers have the same id")
        rev = _text(given.get("rev", ""), "design: rev")
        draft = given.get("draft", False) is True
        return cls(read, tile=(sides[0], sides[1]), rev=rev, draft=draft, **numbers)


NUMBERS: dict[str, tuple[int, int, int | None]] = {
    "q_len": (1, LENGTH_LIMIT, None),
    "kv_len": (1, LENGTH_LIMIT, None),
    "q_start": (0, LENGTH_LIMIT, 0),
    "heads": (1, 1 << 20, 16),
    "head_dim": (1, 1 << 12, 128),
}
"""Fields of a design that are integers: least, most and default (None: must be given)."""


def fresh_rev() -> str:
    """A revision that no browser gives."""
    return f"python-{uuid4().hex[:12]}"


def unfolded(node: Mapping[str, Any]) -> tuple[Layer, ...]:
    """A node as layers: unnamed ``or``, ``and`` and ``minus`` at its top come apart, what has a name stays one."""
    kind, name = node["type"], node.get("name", "")
    if kind not in COMPOSITES or name:
        return (Layer(_bare(node), name=name),)
    first, *rest = node["args"]
    added = tuple(Layer(_bare(each), COMPOSITES[kind], each.get("name", "")) for each in rest)
    return unfolded(first) + added


def title(node: Mapping[str, Any]) -> str:
    """What a layer is called until somebody names it. The browser has the same names."""
    if node["type"] == "grid":
        return GRID_TITLES.get(str(node.get("kind")), "Grid")
    if node["type"] == "at":
        return f"{node['mask'].get('name') or title(node['mask'])} in a box"
    return TITLES.get(str(node["type"]), str(node["type"]))


TITLES = {
    "full": "Everything",
    "empty": "Nothing",
    "causal": "Causal",
    "anticausal": "Anticausal",
    "window": "Window",
    "band": "Band",
    "rect": "Rectangle",
    "prefix": "Prefix",
    "sink": "Sink",
    "suffix": "Suffix",
    "global_tokens": "Global tokens",
    "documents": "Documents",
    "strided": "Strided",
    "tiles": "Tile matrix",
    "tree": "Tree",
    "explicit": "Explicit intervals",
    "repeat": "Repeated",
    "take": "Reordered",
    "transposed": "Transposed",
    "not": "Complement",
    "and": "Group",
    "or": "Group",
    "minus": "Group",
}
GRID_TITLES = {
    "disk": "Grid disk",
    "box": "Grid box",
    "neighborhood": "Neighbourhood",
    "axial": "Axial",
    "causal_time": "Causal in time",
}


def _bare(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key != "name"}


def _folded(layers: Sequence[Layer]) -> dict[str, Any] | None:
    """The left fold; None for the empty mask.

    Where that nests too deep, what the lower half keeps of the upper half's cuts and intersections is joined with the
    fold of the upper half alone: a layer that adds has no say in what the layers below it lose.
    """
    if _levels(layers) <= FOLD_LEVELS:
        return _left_fold(layers)
    middle = len(layers) // 2
    upper = layers[middle:]
    kept, added = _folded(layers[:middle]), _folded(upper)
    if kept:
        for layer in upper:
            if layer.op == "intersect":
                kept = _joined("and", kept, layer.named_node)
        cuts = [layer.named_node for layer in upper if layer.op == "cut"]
        if cuts:
            kept = _joined("minus", kept, {"type": "or", "args": cuts} if len(cuts) > 1 else cuts[0])
    return _joined("or", kept, added) if kept and added else kept or added


def _levels(layers: Sequence[Layer]) -> int:
    """How deep the left fold nests: layers that add, or that intersect, in a row are one level."""
    before = (None, *(layer.op for layer in layers))
    return sum(layer.op == "cut" or layer.op != last for layer, last in zip(layers, before, strict=False))


def _left_fold(layers: Sequence[Layer]) -> dict[str, Any] | None:
    result: dict[str, Any] | None = None
    for layer in layers:
        if layer.op == "add":
            result = _joined("or", result, layer.named_node) if result else layer.named_node
        elif result:
            result = _joined("and" if layer.op == "intersect" else "minus", result, layer.named_node)
    return result


def _joined(kind: str, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    flat = kind != "minus" and left["type"] == kind and "name" not in left
    return {"type": kind, "args": [*(left["args"] if flat else [left]), right]}


def _read_layer(message: Any, place: str) -> Layer:
    given = _object(message, place, {"id", "name", "op", "node", "visible", "locked", "template", "colour"})
    op = given.get("op", "add")
    if op not in OPS:
        raise DesignError(f"{place}: op is {shown(op)}; it is one of {', '.join(OPS)}")
    node = given.get("node")
    if not isinstance(node, dict) or not isinstance(node.get("type"), str):
        raise DesignError(f'{place}: node is {shown(node)}; an object with a "type" is expected')
    flags: dict[str, bool] = {}
    for name, default in (("visible", True), ("locked", False)):
        flag = given.get(name, default)
        if not isinstance(flag, bool):
            raise DesignError(f"{place}: {name} is {shown(flag)}; true or false is expected")
        flags[name] = flag
    template = given.get("template")
    if template is not None:
        template = dict(_object(template, f"{place}.template", {"name", "params"}))
    colour = given.get("colour")
    if colour is not None:
        colour = _integer(colour, f"{place}: colour", 0, LAYER_LIMIT)
    name = _text(given.get("name", ""), f"{place}: name")
    layer = Layer(node, op, name, flags["visible"], flags["locked"], template, colour)
    return replace(layer, id=_text(given["id"], f"{place}: id")) if "id" in given else layer


def _object(value: Any, place: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DesignError(f"{place} is {shown(value)}; an object is expected")
    for name in value:
        if name not in known:
            raise DesignError(f"{place}: unknown field {shown(name)}; the fields are {', '.join(sorted(known))}")
    return value


def _integer(value: Any, place: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise DesignError(f"{place} is {shown(value)}; an integer in {least} … {most} is expected")
    return value


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str) or len(value) > 500:
        raise DesignError(f"{place} is {shown(value)}; a string of at most 500 characters is expected")
    return value
