"""How long a dialler waits before it dials again."""

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


def test_no_wait_is_shorter_than_half_a_second() -> None:
    redial = Redial()
    assert [redial.wait_s(Lowest(), 0.0) for _ in range(3)] == [0.5, 0.5, 0.5]


def test_a_minute_of_health_begins_anew() -> None:
    redial = Redial()
    redial.wait_s(Highest(), 0.0)
    assert redial.wait_s(Highest(), 59.9) == 30.0
    assert redial.wait_s(Highest(), 60.0) == 15.0
