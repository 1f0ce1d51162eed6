"""An extension of griffe, which reads the docstrings for the API page: examples become blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*)", re.MULTILINE)
"""From a prompt to the next blank line: what is typed and what is printed."""


class Examples(griffe.Extension):
    """Fences every example of a docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each object that was read."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with examples fenced.

    >>> fenced("A sum.\\n\\n>>> 1 + 1\\n2\\n")
    'A sum.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n'
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[1].rstrip()}\n```\n", text)
