"""Verdicts on synthetic times whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from cmask_lab.bench import statistics as st


def rounds(ratio: float, *, n: int, noise: float, seed: int, drift: float = 0.0, common: float = 0.0) -> np.ndarray:
    """(n, 2): ours takes 1 ms, the baseline ``ratio``; noise of each, noise of the round, and a drift over the run."""
    generator = np.random.default_rng(seed)
    device = np.exp(np.linspace(0, drift, n) + common * generator.standard_normal(n))
    own = np.exp(noise * generator.standard_normal((2, n)))
    return np.stack([device * own[0], ratio * device * own[1]], axis=1)


@pytest.mark.parametrize("seed", range(20))
def test_a_planted_difference_of_two_percent_is_found(seed: int) -> None:
    ours, baseline = rounds(1.02, n=40, noise=0.005, common=0.05, seed=seed).T
    ratio = st.paired_ratio(baseline, ours)
    assert ratio.verdict == st.FASTER
    assert ratio.low <= ratio.median <= ratio.high
    assert abs(ratio.median - 1.02) < 0.006
    assert st.paired_ratio(ours, baseline).verdict == st.SLOWER


def test_equal_twins_are_too_close_to_call() -> None:
    """Of a hundred pairs of twins hardly one may be told apart: chance brings the interval beyond the resolution."""
    called = sum(
        st.paired_ratio(*rounds(1.0, n=20, noise=0.02, common=0.05, seed=seed).T).verdict != st.CLOSE
        for seed in range(100)
    )
    assert called <= 3


def test_the_interval_covers_the_truth() -> None:
    """A 95 % interval must hold the true ratio about 95 times of 100."""
    covered = 0
    for seed in range(200):
        ratio = st.paired_ratio(*rounds(1.1, n=24, noise=0.02, seed=seed).T[::-1])
        covered += ratio.low <= 1.1 <= ratio.high
    assert 175 <= covered <= 200


def test_a_drifting_clock_moves_all_times_but_no_ratio() -> None:
    times = rounds(1.0, n=60, noise=0.002, drift=0.3, seed=0)
    assert st.paired_ratio(times[:, 1], times[:, 0]).verdict == st.CLOSE
    assert abs(st.drift(times) - (np.exp(0.3 * 2 / 3) - 1)) < 0.05
    # Unpaired, one contender after the other, the same drift would look like a difference of 16 %.
    alone = np.exp(np.linspace(0, 0.3, 60))
    assert st.unpaired_ratio(alone[30:], alone[:30]).verdict == st.FASTER


def test_a_steady_run_does_not_drift() -> None:
    assert abs(st.drift(rounds(1.5, n=60, noise=0.002, seed=3))) < 0.005
    assert st.drift(np.ones((2, 2))) == 0.0


def test_few_rounds_call_nothing() -> None:
    assert st.paired_ratio([2.0] * 5, [1.0] * 5).verdict == st.UNKNOWN
    assert st.paired_ratio([2.0] * 6, [1.0] * 6).verdict == st.FASTER


def test_a_difference_below_the_resolution_is_not_called() -> None:
    assert st.paired_ratio([1.004] * 50, [1.0] * 50).verdict == st.CLOSE
    assert st.paired_ratio([1.006] * 50, [1.0] * 50).verdict == st.FASTER


def test_precision_decides_when_to_stop() -> None:
    noisy, calm = (rounds(1.3, n=40, noise=noise, seed=1) for noise in (0.1, 0.002))
    assert not st.precise_enough(noisy, target=0.005, at_least=10)
    assert st.precise_enough(calm, target=0.005, at_least=10)
    assert not st.precise_enough(calm[:8], target=0.005, at_least=10)
    # A contender alone: its own spread counts.
    assert st.precise_enough(calm[:, :1], target=0.005, at_least=10)
    assert not st.precise_enough(noisy[:, :1], target=0.005, at_least=10)


def test_a_common_swing_does_not_keep_paired_rounds_from_stopping() -> None:
    swinging = rounds(1.3, n=40, noise=0.002, common=0.2, seed=5)
    assert st.precise_enough(swinging, target=0.005, at_least=10)
    assert not st.precise_enough(swinging[:, :1], target=0.005, at_least=10)


def test_summary_is_median_and_quartiles() -> None:
    assert st.summarize(range(1, 102)) == st.Summary(51.0, 26.0, 76.0, 101)


@pytest.mark.parametrize("bad", [[], [1.0, 0.0], [1.0, -2.0], [1.0, float("nan")]])
def test_what_is_no_time_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="summarize"):
        st.summarize(bad)


def test_pairs_need_both() -> None:
    with pytest.raises(ValueError, match="2 and 1 samples"):
        st.paired_ratio([1.0, 1.0], [1.0])
