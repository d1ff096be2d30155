"""Attached clusters in virtual time, under faults drawn from a seed."""

import pytest
from levers9_clusters import (
    ClusterPlan,
    ClusterWorldPlan,
    Fault,
    FaultKind,
    NodePlan,
    Violation,
    WorkPlan,
    draw_plan,
    run_cluster_world,
    shrink,
    with_faults,
)

pytestmark = pytest.mark.slow

NODES = tuple(NodePlan(f"node-{number}", 4, f"rack-{number % 2}") for number in range(4))
CLUSTERS = (
    ClusterPlan("lab", "north", "H100", NODES),
    ClusterPlan("lab", "south", "A10", NODES[:2], unordered=True),
    ClusterPlan("common", "south", "GB200", NODES[:3], shared=True),
)


def _work(name: str, workspace: str, gpu_type: str, calls: int, **more: object) -> WorkPlan:
    return WorkPlan(name, workspace, calls, 0.0, 5.0, 40.0, cards=1, gpu_type=gpu_type, **more)  # type: ignore[arg-type]


WORK = (
    _work("alone", "north", "H100", 24),
    _work("together", "north", "H100", 4, nodes=2, in_rack=True),
    _work("own", "south", "A10", 8),
    _work("on what is shared", "north", "GB200", 8),
)


def test_whatever_can_go_wrong_goes_wrong_in_one_world() -> None:
    faults = tuple(Fault(3.0 + 2.8 * number, kind, (number * 0.37) % 1.0) for number, kind in enumerate(FaultKind))

    report = run_cluster_world(1, ClusterWorldPlan(CLUSTERS, WORK, faults, bad_pods=0.2))

    assert sum(report.ends.values()) == 44
    assert report.ends["COMPLETE"] > 20
    assert report.retries > 0


def test_calls_on_a_cluster_whose_agent_is_away_run_to_their_end() -> None:
    faults = (Fault(10.0, FaultKind.AGENT_DEAF, 0.0),)
    work = (WorkPlan("long", "north", 8, 0.0, 100.0, 150.0, cards=2, gpu_type="H100"),)

    report = run_cluster_world(2, ClusterWorldPlan(CLUSTERS[:1], work, faults))

    assert report.ends == {"COMPLETE": 8}
    assert report.retries == 0


def test_work_of_a_cluster_that_is_left_runs_elsewhere() -> None:
    twin = ClusterPlan("twin", "south", "H100", NODES[:3], shared=True)
    work = (WorkPlan("long", "north", 8, 0.0, 40.0, 60.0, cards=2, gpu_type="H100"),)
    faults = (Fault(20.0, FaultKind.LEAVE, 0.0),)

    report = run_cluster_world(3, ClusterWorldPlan((CLUSTERS[0], twin), work, faults))

    assert report.ends == {"COMPLETE": 8}
    assert report.retries > 0


def test_a_world_of_clusters_keeps_its_promises(cluster_seed: int, kept_cluster_faults: tuple[int, ...] | None) -> None:
    plan = draw_plan(cluster_seed)
    if kept_cluster_faults is not None:
        plan = with_faults(plan, kept_cluster_faults)
    try:
        report = run_cluster_world(cluster_seed, plan)
    except Violation as violation:
        kept = shrink(cluster_seed, plan) if kept_cluster_faults is None else kept_cluster_faults
        again = f"--cluster-seed {cluster_seed} --cluster-faults {','.join(map(str, kept)) or ','}"
        pytest.fail(f"{violation}\nReproduce: pytest tests/harness/test_clusters.py {again}", pytrace=False)
    assert report.took_s > 0
