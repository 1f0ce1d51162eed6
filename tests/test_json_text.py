"""Text from elsewhere is a JSON value or one ValueError."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmask_lab import json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES, st.sampled_from(("utf-8", "utf-16", "utf-32")))
def test_what_json_wrote_is_read_in_every_encoding(value: object, encoding: str) -> None:
    text = json.dumps(value, ensure_ascii=False)
    try:
        encoded = text.encode(encoding)
    except UnicodeEncodeError:  # a lone surrogate has no encoding; as text it is still JSON
        assert json_text.parse(json.dumps(value)) == value
        return
    assert json_text.parse(encoded) == value


@given(st.binary())
def test_any_bytes_are_a_value_or_one_error(content: bytes) -> None:
    with suppress(ValueError):
        json_text.parse(content)


def test_a_field_that_stands_twice_is_found_in_one_pass() -> None:
    fields = [f'"{n}": 0' for n in range(100_000)]
    began = time.perf_counter()
    with pytest.raises(ValueError, match="field '7' stands twice"):
        json_text.parse(f"{{{', '.join([*fields, fields[7]])}}}")
    assert time.perf_counter() - began < 5, "not in the square of the fields: that took minutes"


def test_a_file_is_named_in_front(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a": Infinity}')
    with pytest.raises(ValueError, match=r"x\.json: Infinity is not a number of JSON$"):
        json_text.read(path)
