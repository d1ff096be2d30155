"""The errors about queues that Kueue was told of most, each a test with the numbers of the reports.

Those about nodes and topology are in `test_kueue_topology_bugs.py`.
"""

from __future__ import annotations

import pytest

from levers9.actors.scheduler.queues import Parked
from levers9.errors import Refused
from levers9.model.entitlement import Wish, check_entitled
from levers9.model.queueing_checks import check_queueing
from levers9.model.queues import (
    DEFAULT,
    FairShare,
    Flavor,
    FlavorLimits,
    Limits,
    Queue,
    Queueing,
    Quota,
    Reclaim,
    Within,
)
from levers9.model.reasons import Reason
from levers9.model.resources import Shape

from .queueing_words import configuration, new_queues, place, quota, request


def test_8838_12005_a_resource_without_quota_is_still_asked_of_nodes() -> None:
    queues = new_queues(configuration(quota("w", 4)))
    shape = Shape(cpu_milli=1000, memory_mib=1 << 30, gpu_count=4)
    queues.add(request("a", shape=shape), 0.0)
    ways = queues.check(request("a", shape=shape), 0.0)
    assert ways == (("any", shape),)


def test_10659_two_flavors_may_not_own_one_node() -> None:
    flavors = (Flavor(name="big", labels={"size": "big"}), Flavor(name="fast", labels={"disk": "fast"}))
    with pytest.raises(Refused, match="big and fast could both own one node"):
        check_queueing(Queueing(flavors=flavors))


@pytest.mark.parametrize("within", list(Within))
def test_3779_7101_14543_2821_two_quotas_that_borrow_do_not_preempt_each_other_in_turn(within: Within) -> None:
    quotas = [quota(name, 4, cohort="c", reclaim=Reclaim.ANY, preempt=within) for name in ("v", "w")]
    queues = new_queues(configuration(*quotas))
    requests = {f"{space}{number}": request(f"{space}{number}", space, 3) for space in "vw" for number in range(3)}
    for made in requests.values():
        queues.add(made, 0.0)
    stops = 0
    for now_s in range(1, 30):
        place(queues, float(now_s))
        for made in requests.values():
            for victim in queues.victims(made, "any", lambda _: True, float(now_s)):
                stops += 1
                queues.end_member(victim, float(now_s))
                queues.add(requests[victim], float(now_s))
    assert stops <= 1


def test_14543_who_was_stopped_is_not_admitted_again_before_whom_it_was_stopped_for() -> None:
    queues = new_queues(configuration(quota("v", 4, cohort="c", reclaim=Reclaim.ANY), quota("w", 4, cohort="c")))
    for number in range(8):
        queues.add(request(f"w{number}", "w"), 0.0)
    assert len(place(queues)) == 8
    queues.add(request("v", "v", 4, at_s=5.0), 5.0)
    assert place(queues, 5.0) == []
    victims = queues.victims(request("v", "v", 4, at_s=5.0), "any", lambda _: True, 5.0)
    assert len(victims) == 4
    for number, victim in enumerate(victims):
        queues.end_member(victim, 6.0)
        queues.add(request(victim, "w"), 6.0)
        assert place(queues, 6.0) == (["v"] if number == 3 else [])


def test_4809_8309_a_first_that_does_not_fit_blocks_nobody_behind_it() -> None:
    cards = Shape(cpu_milli=1000, memory_mib=64, gpu_count=8)
    lines = (FlavorLimits(flavor="any", cpu=Limits(nominal=8000), gpu=Limits(nominal=4000)),)
    queues = new_queues(configuration(Quota(name="w", cohort="c", flavors=lines), quota("v", 1, cohort="c")))
    queues.add(request("head", shape=cards), 0.0)
    queues.add(request("cpu", at_s=1.0), 1.0)
    queues.add(request("borrows", "v", 3, at_s=1.0), 1.0)
    assert sorted(place(queues, 1.0)) == ["borrows", "cpu"]


def test_2270_2391_small_ones_go_while_several_large_gangs_wait() -> None:
    queues = new_queues(configuration(quota("w", 4)))
    queues.add(request("runs", cpu=2), 0.0)
    assert place(queues) == ["runs"]
    for number in range(3):
        queues.add(request(f"gang{number}", members=4, at_s=1.0), 1.0)
    for number in range(2):
        queues.add(request(f"small{number}", at_s=2.0), 2.0)
    assert place(queues, 2.0) == ["small0", "small1"]


def test_2391_a_large_one_is_not_starved_by_small_ones_without_an_end() -> None:
    fair = FairShare(ageing_step=0, patience_s=30.0)
    queues = new_queues(configuration(quota("w", 4), fair_share=fair))
    running = []
    for number in range(4):
        queues.add(request(f"s{number}"), 0.0)
    running += place(queues)
    queues.add(request("large", cpu=4, at_s=1.0), 1.0)
    for now_s in range(2, 60):
        queues.add(request(f"t{now_s}", at_s=float(now_s)), float(now_s))
        queues.end_member(running.pop(0), float(now_s))
        running += place(queues, float(now_s))
        if "large" in running:
            break
    assert 31 <= now_s <= 31 + 2 + 4  # its patience, a sweep, and what had to end


def test_14477_a_deep_queue_is_worked_off_in_one_go() -> None:
    queues = new_queues(configuration(quota("w", 536)))
    for number in range(536):
        queues.add(request(f"r{number:03}"), 0.0)
    assert len(place(queues)) == 536


def test_8095_9232_9508_nothing_that_happens_elsewhere_makes_the_parked_be_looked_at() -> None:
    queues = new_queues(configuration(quota("v", 1), quota("w", 1)))
    for space in "vw":
        for number in range(200):
            queues.add(request(f"{space}{number}", space, group=f"{space}{number}"), 0.0)
    assert sorted(place(queues)) == ["v0", "w0"]
    before = queues.looked_at
    for now_s in range(100):
        queues.add(request("again", "v"), float(now_s))  # a status is written
        queues.wake_room(lambda _: False)
        queues.wake_room(lambda _: True)
        assert place(queues, float(now_s)) == []
    assert queues.looked_at == before
    queues.end_member("v0", 100.0)
    assert len(place(queues, 100.0)) == 1
    assert queues.looked_at - before == 1


def test_8095_of_many_that_wait_for_room_one_is_looked_at_when_there_is_room_for_one() -> None:
    queues = new_queues(configuration())
    for number in range(500):
        queues.add(request(f"r{number:03}", group=f"g{number}"), 0.0)
    assert place(queues, room=0) == []
    before = queues.looked_at
    queues.wake_room(lambda _: True)
    assert place(queues, room=1) == ["r000"]
    assert queues.looked_at - before == 2


def test_13656_13772_whatever_frees_something_wakes_those_that_wait_for_it() -> None:
    queues = new_queues(configuration(quota("w", 1, cohort="c"), quota("v", 0, cohort="c")))
    queues.add(request("a"), 0.0)
    queues.add(request("b", "v"), 0.0)
    first = place(queues)
    queues.end_member(first[0], 1.0)
    second = place(queues, 1.0)
    assert sorted(first + second) == ["a", "b"]
    queues.add(request("c", cpu=2), 2.0)
    assert place(queues, 2.0) == []
    queues.configure(configuration(quota("w", 4, cohort="c"), quota("v", 0, cohort="c")), 3.0)
    assert place(queues, 3.0, room=0) == []
    queues.wake_room(lambda shape: shape.cpu_milli <= 2000)
    assert place(queues, 4.0) == ["c"]


def test_14811_12656_what_was_given_back_is_free_and_its_request_waits_like_any_other() -> None:
    queues = new_queues(configuration(quota("w", 4)))
    gang = request("gang", members=4)
    queues.add(gang, 0.0)
    assert place(queues) == ["gang"]
    for _ in gang.members:
        queues.end_member("gang", 900.0)
    assert queues.standing()[1][1].used.cpu_milli == 0
    queues.add(gang, 900.0)
    assert place(queues, 900.0) == ["gang"]
    assert not queues.end_member("nobody", 900.0)


def test_2174_2291_who_is_withdrawn_and_asked_for_again_begins_anew() -> None:
    queues = new_queues(configuration(quota("w", 1, preempt=Within.LOWER_PRIORITY)))
    queues.add(request("a"), 0.0)
    for now_s in range(1, 6):
        assert place(queues, float(now_s)) == ["a"]
        asked = request(f"x{now_s}", priority="high", at_s=float(now_s))
        queues.add(asked, float(now_s))
        assert place(queues, float(now_s)) == []
        assert queues.victims(asked, "any", lambda _: True, float(now_s)) == ("a",)
        queues.end_member("a", float(now_s))
        queues.withdraw(asked.request_id)
        queues.add(request("a"), float(now_s))
        queues.withdraw("a")
        queues.add(request("a"), float(now_s))


def test_3322_3543_who_was_parked_for_something_else_comes_back_when_all_are_woken() -> None:
    queues = new_queues(configuration())
    queues.add(request("a"), 0.0)
    queues.park("a", Parked.OTHER)
    assert place(queues) == []
    queues.park("a", Parked.OTHER)
    queues.wake_all()
    assert place(queues) == ["a"]


@pytest.mark.parametrize("amount", [2**63 - 1, 2**63 + 1, 2**64 + 1000])
@pytest.mark.parametrize("members", [1, 2, 4096])
def test_11137_11139_11182_14112_no_product_of_large_numbers_gets_past_a_quota(amount: int, members: int) -> None:
    queueing = configuration(quota("w", 4, cohort="c"), quota("v", 4, cohort="c"))
    queues = new_queues(queueing)
    asked = request("a", shape=Shape(cpu_milli=amount, memory_mib=1), members=members)
    queues.add(asked, 0.0)
    assert place(queues) == []
    assert isinstance(queues.check(asked, 0.0), Reason)
    wish = Wish(workspace="w", shape=asked.shape, nodes=members)
    with pytest.raises(Refused, match="Quota w could never give"):
        check_entitled(wish, queueing)


@pytest.mark.parametrize("amount", [-1, 2**63])
def test_11137_a_limit_below_zero_or_beyond_64_bits_is_refused_and_not_taken_for_none(amount: int) -> None:
    lines = (FlavorLimits(flavor="any", cpu=Limits(nominal=amount)),)
    with pytest.raises(Refused, match="nominal is"):
        check_queueing(Queueing(flavors=(Flavor(name="any"),), quotas=(Quota(name="q", flavors=lines),)))


def test_0_19_queues_of_the_same_name_in_two_workspaces_do_not_count_each_others_requests() -> None:
    lines = tuple(Queue(name="train", workspace=workspace) for workspace in ("v", "w"))
    queues = new_queues(configuration(queues=lines))
    for number in range(5):
        queues.add(request(f"v{number}", "v", queue="train", at_s=float(number)), 5.0)
    queues.add(request("w", "w", queue="train", at_s=5.0), 5.0)
    assert queues.ahead("w") == 0
    pending = {(standing.workspace, standing.name): standing.pending for standing in queues.standing()[0]}
    assert pending == {("v", "train"): 5, ("w", "train"): 1}
    assert DEFAULT not in {name for _, name in pending}
