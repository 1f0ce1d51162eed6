"""A design in the fragment of a link: copied from one Studio, opened in another. Fragments never reach a server."""

from __future__ import annotations

import base64
import json
import re
import zlib

from cmask_lab.widgets.design import Design, DesignError

from cmask_lab import json_text

FILE_VERSION = 1
"""Of a design in a file and in a link."""
LONGEST_FRAGMENT = 8000
"""Characters; chats and mail programs cut addresses that are longer."""
LARGEST_DESIGN = 4 << 20
"""Bytes that a fragment may unpack to."""


def fragment(design: Design) -> str:
    """What follows ``#`` in a link to the design: ``cmask=`` and its JSON, deflated, in URL-safe base64.

    Raises:
        DesignError: the design does not fit into a link.

    >>> import cmask_lab as cm
    >>> design_in("https://example.org/lab#" + fragment(Design.of(cm.window(7), 64))).mask
    cm.window(7, 0)
    """
    message = design.message()
    del message["rev"]
    text = json.dumps({"cmask_studio": FILE_VERSION, "design": message}, separators=(",", ":"))
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = base64.urlsafe_b64encode(deflate.compress(text.encode()) + deflate.flush()).decode().rstrip("=")
    if len(packed) > LONGEST_FRAGMENT:
        raise DesignError(
            f"share: the link would have {len(packed):,} characters, and addresses beyond {LONGEST_FRAGMENT:,} get cut "
            f"on their way; send the spec as a file instead (target json, Download)"
        )
    return f"cmask={packed}"


def design_in(link: str) -> Design:
    """The design in a link or its fragment.

    Raises:
        DesignError: there is none, or it is damaged; the text says where.
    """
    found = re.search(r"(?:^|[#&])cmask=([\w-]+)", link)
    if not found:
        raise DesignError("share: this link holds no design; a Studio's ends with #cmask=…")
    try:
        packed = base64.urlsafe_b64decode(found[1] + "=" * (-len(found[1]) % 4))
        inflate = zlib.decompressobj(-15)
        text = inflate.decompress(packed, LARGEST_DESIGN)
        if not inflate.eof:
            raise DesignError(f"share: the design is cut off, or unpacks to more than {LARGEST_DESIGN:,} bytes")
        kept = json_text.parse(text)
    except (ValueError, zlib.error) as error:
        if isinstance(error, DesignError):
            raise
        raise DesignError(f"share: the design in this link is damaged, copy the whole link again ({error})") from error
    if not isinstance(kept, dict) or kept.get("cmask_studio") != FILE_VERSION:
        raise DesignError(f"share: this link holds no design of version {FILE_VERSION}; a newer Studio may read it")
    return Design.read(kept.get("design")).edited()
