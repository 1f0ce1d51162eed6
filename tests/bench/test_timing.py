"""The loop: which contender runs when, on which inputs, what is left out, and when it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from cmask_lab.bench.timing import HostClock, Rounds, Rules, interleave


class PlannedClock:
    """Runs the calls and answers with planned times: the contender's base times the factor of the round."""

    def __init__(self, base: dict[str, float], factor: Callable[[int], float] = lambda _: 1.0) -> None:
        self.base, self.factor, self.rounds = base, factor, 0
        self.calls: list[tuple[str, int]] = []

    def contender(self, name: str) -> Callable[[int], object]:
        def call(buffer: int) -> object:
            self.calls.append((name, buffer))
            return name

        return call

    def round(
        self, calls: Sequence[Callable[[], object]], running: Callable[[], None]
    ) -> tuple[list[float], list[float]]:
        times = [self.base[str(call())] * self.factor(self.rounds) for call in calls]
        running()
        self.rounds += 1
        return times, [0.01] * len(times)


def run(clock: PlannedClock, rules: Rules, **options) -> Rounds:
    calls = {name: clock.contender(name) for name in clock.base}
    *_, last = interleave(calls, clock, rules, **options)
    return last


def test_every_round_runs_every_contender_once_and_the_next_one_backwards() -> None:
    clock = PlannedClock({"a": 1.0, "b": 2.0, "c": 3.0}, lambda i: 1 + 0.2 * (i % 3))
    last = run(clock, Rules(warmup_rounds=2, warmup_ms=0, at_least=20, at_most=20))
    assert len(last.rows) == 20
    assert all(sorted(order) == [0, 1, 2] for order in last.orders)
    assert all(last.orders[i + 1] == last.orders[i][::-1] for i in range(0, 20, 2))
    assert len({last.orders[i] for i in range(0, 20, 2)}) > 1, "the order of a pair of rounds is drawn at random"
    assert Counter(name for name, _ in clock.calls) == {"a": 22, "b": 22, "c": 22}


def test_times_land_in_the_column_of_their_contender() -> None:
    last = run(PlannedClock({"a": 1.0, "b": 2.0, "c": 3.0}), Rules(at_least=4, at_most=8, warmup_ms=0))
    assert np.array_equal(last.times, np.tile([1.0, 2.0, 3.0], (len(last.rows), 1)))


def test_buffers_rotate_so_that_no_call_meets_the_inputs_of_the_one_before() -> None:
    clock = PlannedClock({"a": 1.0, "b": 2.0})
    run(clock, Rules(at_least=4, at_most=12, warmup_ms=0), buffers=3)
    buffers = [buffer for _, buffer in clock.calls]
    assert buffers == [i % 3 for i in range(len(buffers))]


def test_warm_up_is_counted_and_left_out() -> None:
    clock = PlannedClock({"a": 5.0, "b": 5.0})
    last = run(clock, Rules(warmup_rounds=2, warmup_ms=45.0, at_least=4, at_most=4))
    assert (last.warmup_rounds, last.warmup_ms) == (5, 50.0)
    assert clock.rounds == 5 + len(last.rows)


def test_it_stops_when_the_spread_is_small_enough() -> None:
    last = run(PlannedClock({"a": 1.0, "b": 2.0}), Rules(warmup_ms=0, at_least=12, at_most=400))
    assert len(last.rows) == 12
    assert last.stopped == "spread below 0.3%"


def test_it_stops_at_the_limit_of_rounds_if_the_spread_stays_wide() -> None:
    generator = np.random.default_rng(0)
    clock = PlannedClock({"a": 1.0, "b": 2.0})
    clock.contender = lambda name: lambda buffer: name  # type: ignore[method-assign]
    clock.round = lambda calls, running: (  # type: ignore[method-assign]
        [clock.base[str(call())] * generator.uniform(0.5, 2) for call in calls],
        [0.0] * len(calls),
    )
    last = run(clock, Rules(warmup_ms=0, at_least=4, at_most=30))
    assert (len(last.rows), last.stopped) == (30, "limit of 30 rounds")


def test_it_stops_at_the_time_limit_after_a_whole_pair_of_rounds() -> None:
    def work(buffer: int) -> int:
        return sum(range(20_000))

    *_, last = interleave(
        {"a": work, "b": lambda i: work(i) + work(i)},
        HostClock(),
        Rules(warmup_ms=0, target=0.0, seconds=0.1, at_most=10**6),
    )
    assert last.stopped == "time limit of 0.1 s"
    assert len(last.rows) % 2 == 0


def test_a_drift_of_the_device_does_not_touch_the_ratio() -> None:
    last = run(PlannedClock({"a": 1.0, "b": 1.5}, lambda i: 1.01**i), Rules(warmup_ms=0, at_least=12, at_most=40))
    assert np.allclose(last.times[:, 1] / last.times[:, 0], 1.5)


def test_the_device_is_watched_once_a_round() -> None:
    seen: list[int] = []
    last = run(
        PlannedClock({"a": 1.0}),
        Rules(warmup_rounds=3, warmup_ms=0, at_least=4, at_most=4),
        running=lambda: seen.append(1),
    )
    assert len(seen) == last.warmup_rounds + len(last.rows)


def test_nothing_to_time_is_an_error() -> None:
    with pytest.raises(ValueError, match="no contender"):
        next(interleave({}, HostClock(), Rules()))
