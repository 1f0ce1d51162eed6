"""What can be said about times: quartiles, paired ratios with a bootstrap interval, a verdict, and when to stop.

Everything is a function of arrays of milliseconds; nothing here knows about devices. The seed is fixed, so a report
that is loaded again says exactly what it said when it was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
"""Coverage of every interval in a report."""

RESOLUTION = 0.005
"""Differences below half a percent are not called: buffers at other addresses already change a time by that much."""

RESAMPLES = 2000

FEWEST = 6
"""Rounds below which nothing is called: of five fair coins all fall alike once in sixteen throws."""

FASTER, SLOWER, CLOSE, UNKNOWN = "faster", "slower", "too close to call", "too few rounds"


@dataclass(frozen=True)
class Summary:
    """Median, quartiles and number of samples: always told together.

    Attributes:
        median, low_quartile, high_quartile: in the unit of the samples.
        n: how many samples there are.
    """

    median: float
    low_quartile: float
    high_quartile: float
    n: int


@dataclass(frozen=True)
class Ratio:
    """How many times faster than a baseline, from rounds in which both ran.

    Attributes:
        median: of the rounds' ratios ``baseline / ours``; above 1 means that ours is faster.
        low, high: bootstrap interval of that median.
        n: number of rounds.
        verdict: "faster", "slower", "too close to call" or, below :data:`FEWEST` rounds, "too few rounds".
    """

    median: float
    low: float
    high: float
    n: int
    verdict: str


def summarize(samples: Sequence[float] | np.ndarray) -> Summary:
    """Median and quartiles.

    >>> summarize([3.0, 1.0, 2.0, 5.0, 4.0])
    Summary(median=3.0, low_quartile=2.0, high_quartile=4.0, n=5)
    """
    values = _times("summarize", samples)
    low, median, high = np.percentile(values, [25, 50, 75])
    return Summary(float(median), float(low), float(high), len(values))


def paired_ratio(
    baseline: Sequence[float] | np.ndarray,
    ours: Sequence[float] | np.ndarray,
    *,
    level: float = LEVEL,
    resolution: float = RESOLUTION,
    resamples: int = RESAMPLES,
) -> Ratio:
    """The ratio ``baseline / ours`` over rounds, with an interval and a verdict.

    Round ``i`` of both must be the same round: what slows the device down in a round slows both, and cancels. Rounds
    come in mirrored pairs (A B … B A), which the bootstrap keeps together.

    Args:
        resolution: "faster" or "slower" needs the whole interval beyond ``1 ± resolution``.

    >>> paired_ratio([2.0, 2.2, 1.8, 2.0, 2.0, 2.4], [1.0, 1.1, 0.9, 1.0, 1.0, 1.2])
    Ratio(median=2.0, low=2.0, high=2.0, n=6, verdict='faster')
    """
    b, o = _times("paired_ratio", baseline), _times("paired_ratio", ours)
    if len(b) != len(o):
        raise ValueError(f"paired_ratio: {len(b)} and {len(o)} samples; a pair needs both from every round")
    ratios = b / o
    low, high = median_interval(ratios, level=level, resamples=resamples)
    word = verdict(low, high, resolution) if len(ratios) >= FEWEST else UNKNOWN
    return Ratio(float(np.median(ratios)), low, high, len(ratios), word)


def unpaired_ratio(
    baseline: Sequence[float] | np.ndarray, ours: Sequence[float] | np.ndarray, *, resolution: float = RESOLUTION
) -> Ratio:
    """The ratio of two medians from different runs; its interval does not see what changed between the runs."""
    b, o = _times("unpaired_ratio", baseline), _times("unpaired_ratio", ours)
    generator = np.random.default_rng(0)
    b_medians = np.median(b[generator.integers(0, len(b), (RESAMPLES, len(b)))], axis=1)
    o_medians = np.median(o[generator.integers(0, len(o), (RESAMPLES, len(o)))], axis=1)
    tail = 50 * (1 - LEVEL)
    low, high = (float(x) for x in np.percentile(b_medians / o_medians, [tail, 100 - tail]))
    return Ratio(float(np.median(b) / np.median(o)), low, high, min(len(b), len(o)), verdict(low, high, resolution))


def median_interval(values: np.ndarray, *, level: float = LEVEL, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Bootstrap percentile interval of the median, resampling mirrored pairs of rounds together.

    >>> median_interval(np.array([1.0, 1.0, 1.0, 1.0]))
    (1.0, 1.0)
    """
    n = len(values)
    generator = np.random.default_rng(0)
    pairs = (n + 1) // 2
    first = 2 * generator.integers(0, pairs, (resamples, pairs))
    chosen = np.stack([first, np.minimum(first + 1, n - 1)], axis=2).reshape(resamples, -1)
    medians = np.median(values[chosen], axis=1)
    tail = 50 * (1 - level)
    low, high = np.percentile(medians, [tail, 100 - tail])
    return float(low), float(high)


def verdict(low: float, high: float, resolution: float = RESOLUTION) -> str:
    """The word for an interval of ``baseline / ours``.

    >>> verdict(1.02, 1.05), verdict(0.90, 0.99), verdict(0.99, 1.02)
    ('faster', 'slower', 'too close to call')
    """
    if low > 1 + resolution:
        return FASTER
    if high < 1 - resolution:
        return SLOWER
    return CLOSE


def precise_enough(times: np.ndarray, *, target: float, at_least: int) -> bool:
    """Whether more rounds would not change what is said.

    Args:
        times: ``(rounds, contenders)`` in milliseconds; column 0 is the one that all others are compared with.
        target: half width of an interval, relative to its middle, that is small enough.
        at_least: rounds below which nothing is certain.

    >>> steady = np.tile([1.0, 2.0], (12, 1))
    >>> precise_enough(steady, target=0.01, at_least=10), precise_enough(steady[:6], target=0.01, at_least=10)
    (True, False)
    """
    if len(times) < at_least:
        return False
    columns = times[:, 1:] / times[:, :1] if times.shape[1] > 1 else times
    return all(_half_width(column) <= target for column in columns.T)


def drift(times: np.ndarray) -> float:
    """How much slower the last third of the rounds was than the first, over all contenders: 0.05 is five percent.

    A drift common to all cancels in a paired ratio; a large one still says that the device was not in a steady state.

    >>> round(drift(np.array([[1.0], [1.0], [1.0], [1.05], [1.1], [1.1]])), 3)
    0.1
    """
    third = len(times) // 3
    if third == 0:
        return 0.0
    relative = np.log(times / np.median(times, axis=0)).mean(axis=1)
    return float(np.exp(np.median(relative[-third:]) - np.median(relative[:third])) - 1)


def _half_width(values: np.ndarray) -> float:
    low, high = median_interval(values, resamples=500)
    return (high - low) / (high + low)


def _times(name: str, samples: Sequence[float] | np.ndarray) -> np.ndarray:
    values = np.asarray(samples, np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"{name}: got samples of shape {values.shape}; give one time or more, in one dimension")
    if not (values > 0).all():
        raise ValueError(f"{name}: {values[~(values > 0)][0]} is not a time; every sample must be above 0")
    return values
