"""JSON that comes from elsewhere, read strictly: what is wrong with it is one ``ValueError`` that says so."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn


def parse(text: str | bytes) -> Any:
    """The value of a JSON text; bytes are UTF-8, UTF-16 or UTF-32.

    Raises:
        ValueError: not JSON, a field that stands twice in one object, NaN or an infinity, or values nested too deep.

    >>> parse('{"left": 3, "left": 4}')
    Traceback (most recent call last):
    ValueError: field 'left' stands twice in one object
    """
    try:
        return json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not JSON: {error}") from error


def read(path: str | Path) -> Any:
    """The value in a JSON file.

    Raises:
        FileNotFoundError, OSError: the file can't be read.
        ValueError: as :func:`parse`, with the file's name in front.
    """
    try:
        return parse(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"field {twice!r} stands twice in one object")
    return fields
