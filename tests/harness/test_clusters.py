"""Attached clusters in virtual time, under faults drawn from a seed."""

import pytest
from levers9_clusters import Violation, draw_plan, run_cluster_world, shrink, with_faults

pytestmark = pytest.mark.slow


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
