"""Names of Gluon that differ between the Triton releases that this works with. Nothing else looks at the version.

Seen with Triton 3.6.0 and 3.7.1. Gluon is marked experimental; if a release renames more, this is the file to change.
"""

from __future__ import annotations

from triton.experimental.gluon import language as gl

partition_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
"""Waits for all threads of the running warp partition (``thread_barrier`` until 3.6, ``barrier`` from 3.7)."""
