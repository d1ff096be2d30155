"""Waits that double, and end at a maximum."""

from __future__ import annotations

from levers9.model.doubling import doubled_s


def test_each_wait_is_twice_the_one_before_and_none_is_over_the_maximum() -> None:
    assert [doubled_s(1.5, times, 10.0) for times in range(5)] == [1.5, 3.0, 6.0, 10.0, 10.0]


def test_after_years_of_failures_it_is_the_maximum_still() -> None:
    assert doubled_s(0.001, 5_000, 300.0) == 300.0
