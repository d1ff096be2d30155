"""How long a dialler waits before it dials again."""

import pytest

from levers9.model.ids import Chance
from levers9.wire.redial import Redial


class Highest(Chance):
    """Always the upper end of a range."""

    def uniform(self, low: float, high: float) -> float:
        return high


class Lowest(Chance):
    """Always the lower end of a range."""

    def uniform(self, low: float, high: float) -> float:
        return low


def test_the_first_wait_is_within_15_s_and_later_ones_within_30() -> None:
    redial = Redial()
    assert [redial.wait_s(Highest(), 0.0) for _ in range(4)] == [15.0, 30.0, 30.0, 30.0]


def test_no_wait_is_shorter_than_half_a_second_and_no_later_one_than_the_longest_first_one() -> None:
    redial = Redial()
    assert [redial.wait_s(Lowest(), 0.0) for _ in range(3)] == [0.5, 15.0, 15.0]


@pytest.mark.parametrize("away_s", [0.2, 3.0, 8.0, 12.0, 14.0, 20.0, 30.0, 300.0])
def test_whenever_a_control_plane_comes_back_a_second_sees_a_tenth_of_its_thousand_agents_at_most(
    away_s: float,
) -> None:
    came_at = sorted(_back_at(number, away_s) for number in range(1000))

    fullest = max(sum(at_s < one <= at_s + 1.0 for one in came_at) for at_s in came_at)

    assert fullest <= 100


def _back_at(number: int, away_s: float) -> float:
    chance, redial, at_s = Chance(number), Redial(), 0.0
    while at_s < away_s:
        at_s += redial.wait_s(chance, 0.0)
    return at_s


def test_a_minute_of_health_begins_anew() -> None:
    redial = Redial()
    redial.wait_s(Highest(), 0.0)
    assert redial.wait_s(Highest(), 59.9) == 30.0
    assert redial.wait_s(Highest(), 60.0) == 15.0
    assert redial.wait_s(Highest(), 59.9) == 30.0
    assert redial.wait_s(Lowest(), 60.0) == 0.5
