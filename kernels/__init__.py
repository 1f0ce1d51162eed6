"""Kernels: one for all masks, driven by the descriptor alone. :mod:`cmask_lab.kernels.registry` lists them.

Nothing is imported here: a backend is loaded when it is first asked for.
"""
