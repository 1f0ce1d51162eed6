"""A way in and out of every neighbour: one file each, and :mod:`cmask_lab.interop.export` in front of them."""
