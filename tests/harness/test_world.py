"""The whole product in virtual time, under faults drawn from a seed."""

import pytest
from levers9_world import Fault, FaultKind, MapPlan, Violation, WorldPlan, draw_plan, run_world, shrink, with_faults

pytestmark = pytest.mark.slow


def test_a_map_with_losses_cancels_a_dead_worker_and_new_leaders_ends_each_call_once() -> None:
    maps = (MapPlan("fragile", 120, 2), MapPlan("slow", 60, 1), MapPlan("flaky", 100, 2), MapPlan("stuck", 100, 1))
    faults = (
        *(Fault(at_s, FaultKind.CANCEL) for at_s in (0.5, 2.0, 4.0)),
        Fault(1.0, FaultKind.LOSE_ANSWER),
        Fault(3.0, FaultKind.KILL_WORKER),
        Fault(7.0, FaultKind.KILL_BRAIN),
        Fault(12.0, FaultKind.FAIL_COMMIT),
        Fault(15.0, FaultKind.CANCEL),
    )

    report = run_world(2, WorldPlan(maps, tuple(sorted(faults, key=lambda fault: fault.at_s))))

    assert sum(report.ends.values()) == 380
    assert report.ends["CANCELLED"] > 0
    assert report.ends["ERROR"] > 0
    assert report.ends["TIMEOUT"] > 0
    assert report.retries > 0


def test_gangs_lose_ranks_workers_and_leaders_and_each_call_of_theirs_ends_once() -> None:
    maps = (MapPlan("together", 24, 3), MapPlan("many together", 8, 2), MapPlan("double", 40, 2))
    faults = (
        Fault(1.5, FaultKind.KILL_CONTAINER),
        Fault(3.0, FaultKind.KILL_WORKER),
        Fault(6.0, FaultKind.KILL_BRAIN),
        Fault(9.0, FaultKind.KILL_CONTAINER),
        Fault(12.0, FaultKind.CANCEL),
        Fault(14.0, FaultKind.LOSE_ANSWER),
    )

    report = run_world(3, WorldPlan(maps, faults))

    assert sum(report.ends.values()) == 72
    assert report.ends["COMPLETE"] > 40
    assert report.retries > 0


def test_nothing_that_was_cancelled_starts_on_a_worker_that_was_cut_off_for_longer_than_its_lease() -> None:
    plan = WorldPlan((MapPlan("uneven", 400, 1),), (Fault(6.0, FaultKind.LOSE_AND_CANCEL),), max_workers=1)

    report = run_world(5, plan)

    assert report.ends["CANCELLED"] > 0


def test_a_world_keeps_its_promises(world_seed: int, kept_faults: tuple[int, ...] | None) -> None:
    plan = draw_plan(world_seed)
    if kept_faults is not None:
        plan = with_faults(plan, kept_faults)
    try:
        report = run_world(world_seed, plan)
    except Violation as violation:
        kept = shrink(world_seed, plan) if kept_faults is None else kept_faults
        again = f"--world-seed {world_seed} --world-faults {','.join(map(str, kept)) or ','}"
        pytest.fail(f"{violation}\nReproduce: pytest tests/harness/test_world.py {again}", pytrace=False)
    assert sum(report.ends.values()) == sum(one.calls for one in plan.maps)
