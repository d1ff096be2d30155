"""Order, ageing and parking, and that nobody starves within the bound that is computed for them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from levers9.actors.scheduler.ordered import Ordered, Placed, Turns
from levers9.actors.scheduler.queues import Parked
from levers9.model.queues import FairShare, PriorityClass, Queueing, Share
from levers9.model.resources import Amount

from .queueing_words import configuration, new_queues, place, quota, request, waiting_groups

numbers = st.lists(st.tuples(st.integers(0, 9), st.integers(-5, 5) | st.none()), max_size=60)


@settings(settings.get_profile("property"))
@given(numbers)
def test_the_first_in_an_order_is_the_smallest_whatever_changed_before(steps: list[tuple[int, int | None]]) -> None:
    ordered: Ordered[Placed] = Ordered(Turns())
    things = [Placed() for _ in range(10)]
    model: dict[int, int] = {}
    for place_, value in steps:
        if value is None:
            model.pop(place_, None)
            ordered.drop(things[place_])
        else:
            model[place_] = value
            ordered.put(things[place_], (value, 0, 0, 0.0, str(place_)))
        first = ordered.first()
        assert len(ordered) == len(model) == len(list(ordered))
        found = None if first is None else things.index(first)
        assert found == min(model, key=lambda key: (model[key], key), default=None)


def starving(step: int, ageing_s: float, values: list[int]) -> tuple[Queueing, float]:
    """A configuration, and how much later than a request others come that never go before it."""
    fair = FairShare(ageing_s=ageing_s, ageing_step=step)
    classes = tuple(PriorityClass(name=f"p{number}", value=value) for number, value in enumerate(values))
    made = Queueing(priorities=classes, fair_share=fair)
    return made, ageing_s * (1 + -(-(max(values) - values[0]) // step))


@settings(settings.get_profile("property"))
@given(
    step=st.integers(1, 300),
    ageing_s=st.sampled_from((1.0, 7.5, 300.0)),
    values=st.lists(st.integers(-500, 500), min_size=1, max_size=4),
    others=st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5000)), max_size=12),
    later_s=st.floats(0, 100_000),
)
def test_nobody_who_comes_later_than_the_bound_ever_goes_before(
    step: int, ageing_s: float, values: list[int], others: list[tuple[int, float]], later_s: float
) -> None:
    queueing, bound_s = starving(step, ageing_s, values)
    queues = new_queues(queueing)
    queues.add(request("patient", "busy", priority="p0", at_s=100.0), 100.0)
    late = {}
    for number, (which, delay_s) in enumerate(others):
        at_s = 100.0 + bound_s + delay_s
        late[f"r{number}"] = at_s
        queues.add(request(f"r{number}", f"w{number}", priority=f"p{which % len(values)}", at_s=at_s), 100.0)
    now_s = max([100.0, *late.values()]) + later_s
    assert place(queues, now_s)[0] == "patient"


def test_what_waits_long_rises_without_anybody_looking() -> None:
    queues = new_queues(configuration(fair_share=FairShare(ageing_s=10.0, ageing_step=150)))
    queues.add(request("low", priority="low"), 0.0)
    queues.add(request("high", priority="high", at_s=15.0), 15.0)
    assert [first for first, _, _ in waiting_groups(queues)] == ["high", "low"]
    assert place(queues, 24.9, room=0) == []
    queues.wake_room(lambda _: True)
    assert place(queues, 24.9) == ["low", "high"]


def test_an_equal_request_that_comes_later_is_parked_with_those_that_wait() -> None:
    queues = new_queues(configuration())
    queues.add(request("a"), 0.0)
    assert place(queues, room=0) == []
    queues.add(request("b", at_s=1.0), 1.0)
    assert queues.next(1.0) is None
    assert waiting_groups(queues) == [("a", 2, Parked.ROOM)]


def test_what_is_parked_for_another_reason_leaves_others_of_its_kind_in_play() -> None:
    queues = new_queues(configuration())
    queues.add(request("a", group="one"), 0.0)
    queues.add(request("b", group="two"), 0.0)
    queues.park("a", Parked.OTHER)
    assert place(queues) == ["b"]


def test_each_shape_is_asked_for_once_when_room_is_freed() -> None:
    queues = new_queues(configuration())
    for number in range(50):
        queues.add(request(f"a{number}", f"w{number}", group=f"a{number}"), 0.0)
        queues.add(request(f"b{number}", f"w{number}", 2, group=f"b{number}"), 0.0)
    assert place(queues, room=0) == []
    asked: list[int] = []

    def fits(shape: object) -> bool:
        asked.append(getattr(shape, "cpu_milli", 0))
        return False

    queues.wake_room(fits)
    assert sorted(asked) == [1000, 2000]


def test_room_that_somebody_else_took_is_no_reason_to_look() -> None:
    queues = new_queues(configuration())
    free = [2000]
    for cpu in (1, 2):
        queues.add(request(f"r{cpu}", cpu=cpu, at_s=float(cpu)), 2.0)
    assert place(queues, 2.0, room=0) == []
    before = queues.looked_at
    queues.wake_room(lambda shape: shape.cpu_milli <= free[0])
    first = queues.next(2.0)
    assert first is not None
    queues.admit(first, "", 2.0)
    free[0] -= first.shape.cpu_milli
    assert queues.next(2.0) is None
    assert queues.looked_at - before == 1


def test_hundreds_of_groups_of_one_queue_cost_no_more_looks_than_one() -> None:
    queues = new_queues(configuration(quota("w", 1, cohort="c", borrowing=0), quota("v", 9, cohort="c")))
    for number in range(300):
        queues.add(request(f"r{number:03}", group=f"g{number}"), 0.0)
    assert place(queues) == ["r000"]
    before = queues.looked_at
    for number in range(20):
        queues.end_member(f"r{number:03}", 1.0)
        assert place(queues, 1.0) == [f"r{number + 1:03}"]
    assert queues.looked_at - before == 2 * 20


def test_shares_that_changed_while_nobody_looked_count_when_a_gate_opens() -> None:
    queues = new_queues(configuration(shares=(Share(workspace="a"),)))
    queues.set_total(Amount(4000, 4000, 0))
    for space in "ab":
        for number in range(3):
            queues.add(request(f"{space}{number}", space), 0.0)
    assert place(queues, room=0) == []
    queues.wake_room(lambda _: True)
    assert place(queues, room=3) == ["a0", "b0", "a1"]
    queues.end_member("a0", 0.5)
    queues.end_member("a1", 0.5)
    queues.wake_room(lambda _: True)
    assert place(queues, 0.5, room=1) == ["a2"]
