"""Who is before whom, whoever came and left in what order, and how little it takes to tell."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levers9.actors.scheduler.ranked import Entry, Ranked
from levers9.model.queues import FairShare

from .queueing_words import configuration, new_queues, request

PRIORITIES = ("low", "default", "high")
entries = st.tuples(st.sampled_from((0.0, 1.0, 2.5)), st.sampled_from("abcdefgh"))


class Compared(float):
    """A time that counts how often it was compared."""

    times = 0

    def __lt__(self, other: float) -> bool:
        Compared.times += 1
        return float(self) < float(other)


@pytest.mark.slow
@settings(settings.get_profile("property"))
@given(st.lists(entries, max_size=80), entries)
def test_they_are_counted_as_a_sorted_list_would_be(steps: list[Entry], asked: Entry) -> None:
    ranked, model = Ranked(), list[Entry]()
    for entry in steps:
        if entry in model:
            model.remove(entry)
            ranked.remove(entry)
        else:
            model.append(entry)
            ranked.add(entry)
        assert len(ranked) == len(model)
        assert ranked.before(asked) == sum(each < asked for each in model)
        assert ranked.first_that_is(lambda each: each[0] > 0.5) == sum(each[0] == 0.0 for each in model)


def test_of_very_many_only_a_few_are_looked_at_and_places_that_are_left_are_cleared() -> None:
    ranked = Ranked()
    for number in range(10_000):
        ranked.add((Compared(number), ""))
    Compared.times = 0
    assert ranked.before((Compared(7000), "")) == 7000
    assert Compared.times < 20
    for number in range(9_900):
        ranked.remove((Compared(number), ""))
    assert (len(ranked), ranked.before((Compared(9_950), ""))) == (100, 50)
    assert len(ranked._entries) <= 200


@pytest.mark.slow
@settings(settings.get_profile("property"))
@given(
    asked=st.lists(
        st.tuples(st.sampled_from(PRIORITIES), st.sampled_from((0.0, 3.0, 9.9, 10.0, 25.0)), st.integers(1, 2)),
        min_size=1,
        max_size=12,
    ),
    leave=st.sets(st.integers(0, 11)),
    step=st.sampled_from((0, 60, 150)),
    late_s=st.sampled_from((0.0, 10.0, 31.0)),
)
def test_who_is_ahead_goes_before_by_priority_with_ageing_and_then_by_time(
    asked: list[tuple[str, float, int]], leave: set[int], step: int, late_s: float
) -> None:
    queueing = configuration(fair_share=FairShare(ageing_s=10.0, ageing_step=step))
    queues, now_s = new_queues(queueing), 25.0 + late_s
    made = [
        request(f"r{number}", cpu=cpu, priority=priority, at_s=at_s)
        for number, (priority, at_s, cpu) in enumerate(asked)
    ]
    for each in made:
        queues.add(each, 25.0)
    for number in leave:
        queues.withdraw(f"r{number}")
    queues.next(now_s)
    left = [each for number, each in enumerate(made) if number not in leave]
    values = {"default": 0, **{each.name: each.value for each in queueing.priorities}}

    def key(name: str, priority: str, at_s: float) -> tuple[int, float, str]:
        return -(values[priority] + step * (int((now_s - at_s) * 1000) // 10_000)), at_s, name

    keys = {each.request_id: key(each.request_id, each.priority, each.requested_at_s) for each in left}
    for name, own in keys.items():
        assert queues.ahead(name) == sum(other < own for other in keys.values())
