"""Credits follow how long calls take."""

from hypothesis import given
from hypothesis import strategies as st

from levers9.actors.worker.credits import CreditWindow
from levers9.model.figures import CREDIT_HORIZON_S, CREDIT_WINDOW_MAX


def test_short_calls_double_the_window_up_to_its_limit() -> None:
    window = CreditWindow()
    sizes = []
    for _ in range(8):
        window.learn((0.0001,) * window.size)
        sizes.append(window.size)
    assert sizes == [2, 4, 8, 16, 32, 64, 64, 64]


def test_one_long_call_shrinks_the_window_at_once() -> None:
    window = CreditWindow()
    for _ in range(8):
        window.learn((0.0001,) * window.size)
    window.learn((0.0001, 3.0))
    assert window.size == 1


def test_a_window_holds_about_the_horizon_of_work() -> None:
    window = CreditWindow()
    for _ in range(50):
        window.learn((0.01,) * window.size)
    assert window.size == int(CREDIT_HORIZON_S / 0.01)


@given(st.lists(st.lists(st.floats(0, 1e4), max_size=64)))
def test_a_window_is_never_empty_and_never_over_its_limit(batches: list[list[float]]) -> None:
    window = CreditWindow()
    for batch in batches:
        window.learn(tuple(batch))
        assert 1 <= window.size <= CREDIT_WINDOW_MAX
