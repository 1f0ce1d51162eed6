"""A bar in the terminal or the notebook while reports come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from tqdm.auto import tqdm

from cmask_lab.bench.report import Report


def follow(reports: Iterable[Report]) -> Iterator[Report]:
    """The reports as they come, their progress on a bar; none is drawn where the error stream is a file or a pipe."""
    with tqdm(total=100, bar_format="{desc} {bar} {percentage:3.0f}% {elapsed}", leave=False, disable=None) as bar:
        for report in reports:
            bar.set_description_str(report.doing, refresh=False)
            bar.update(100 * report.progress - bar.n)
            yield report


def finished(reports: Iterable[Report]) -> Report:
    """The last of the reports."""
    (last,) = deque(follow(reports), maxlen=1)
    return last
