"""From a mask's meaning to what a kernel reads: intervals, tiles, descriptor.

Nothing is imported here, since ``cmask_lab.compiler.intervals`` stands below the masks and the rest above them.
"""
