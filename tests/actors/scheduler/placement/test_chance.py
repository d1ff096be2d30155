"""Chance in whole numbers: the same everywhere, and even."""

from collections import Counter

from levers9.actors.scheduler.placement.chance import Chance


def test_it_draws_what_its_inventors_say_it_draws() -> None:
    # The first outputs of SplitMix64 from 1234567, as listed with the algorithm.
    drawn = Chance(1234567)
    assert [drawn.below(1 << 64) for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_each_number_below_the_limit_is_about_as_frequent() -> None:
    drawn = Chance(1)
    counts = Counter(drawn.below(5) for _ in range(5000))
    assert sorted(counts) == [0, 1, 2, 3, 4]
    assert all(900 < count < 1100 for count in counts.values())
