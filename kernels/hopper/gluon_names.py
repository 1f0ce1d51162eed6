"""Names of Gluon that differ between Triton releases, or that have no Python name yet. Nothing else looks at the version.

Seen with Triton 3.6.0 and 3.7.1. Gluon is marked experimental; if a release renames more, this is the file to change.
"""

from __future__ import annotations

from triton._C.libtriton import ir
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin

partition_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier
"""Waits for all threads of the running warp partition (``thread_barrier`` until 3.6, ``barrier`` from 3.7)."""


@builtin
def tma_reduce_add(descriptor, coordinates, source, _semantic=None):
    """Adds a float32 tile in shared memory to global memory: ``cp.reduce.async.bulk.tensor``, which Gluon does not name.

    As with a TMA store, ``tma.store_wait`` tells when ``source`` may be written again.
    """
    coordinates = _semantic._convert_to_ir_values(coordinates, require_i64=False)
    builder = _semantic.builder
    builder.create_async_tma_reduce(ir.DESCRIPTOR_REDUCE_KIND.ADD, descriptor.handle, coordinates, source.handle)
