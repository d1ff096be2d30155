"""What no configuration of queues may say."""

from __future__ import annotations

import pytest

from levers9.errors import Refused
from levers9.model.queueing_checks import check_queueing, fitting
from levers9.model.queues import (
    Cohort,
    FairShare,
    Flavor,
    FlavorLimits,
    Limits,
    PriorityClass,
    Queue,
    Queueing,
    Quota,
    Share,
    Topology,
)

FLAVOR = Flavor(name="f")


def quotas(**limits: Limits) -> Queueing:
    """One quota with these limits."""
    return Queueing(flavors=(FLAVOR,), quotas=(Quota(name="q", flavors=(FlavorLimits(flavor="f", **limits),)),))


@pytest.mark.parametrize(
    ("queueing", "told"),
    [
        (Queueing(cohorts=(Cohort(name="a", parent="a"),)), "Cohort a is inside itself"),
        (
            Queueing(
                cohorts=(Cohort(name="a", parent="b"), Cohort(name="b", parent="c"), Cohort(name="c", parent="b"))
            ),
            "is inside itself",
        ),
        (Queueing(cohorts=(Cohort(name="a", parent="b"),)), "names the parent b, which is not there"),
        (Queueing(quotas=(Quota(name="q", cohort="c"),)), "names the cohort c, which is not there"),
        (Queueing(quotas=(Quota(name="q", flavors=(FlavorLimits(flavor="f"),)),)), "names the flavor f"),
        (Queueing(queues=(Queue(name="q", workspace="w", quota="x"),)), "names the quota x"),
        (Queueing(flavors=(Flavor(name="f", topology="t"),)), "names the topology t"),
        (Queueing(flavors=(FLAVOR, FLAVOR)), "The flavor f is there twice"),
        (Queueing(quotas=(Quota(name="q"), Quota(name="q"))), "The quota q is there twice"),
        (Queueing(queues=(Queue(name="q", workspace="w"), Queue(name="q", workspace="w"))), "w/q is there twice"),
        (Queueing(priorities=(PriorityClass(name="", value=0),)), "has no name"),
        (Queueing(queues=(Queue(name="", workspace="w"),)), "has no name"),
        (Queueing(queues=(Queue(name="a/b", workspace="w"),)), "has a slash"),
        (Queueing(flavors=(Flavor(name="a", pool="p"), Flavor(name="b", gpu_type="T4"))), "a and b could both own"),
        (
            Queueing(flavors=(Flavor(name="a", labels={"x": "1"}), Flavor(name="b", labels={"y": "2"}))),
            "could both own",
        ),
        (quotas(cpu=Limits(nominal=-1)), "cpu: nominal is -1"),
        (quotas(gpu=Limits(borrowing=2**63)), "gpu: borrowing is 9223372036854775808"),
        (quotas(memory=Limits(lending=-5)), "memory: lending is -5"),
        (Queueing(shares=(Share(workspace="w", weight=0),)), "weight is 0"),
        (Queueing(shares=(Share(workspace="w", max_gpus=-1),)), "max_gpus is -1"),
        (Queueing(queues=(Queue(name="q", workspace="w", weight=-1),)), "weight is -1"),
        (Queueing(priorities=(PriorityClass(name="p", value=2**63),)), "Priority p is"),
        (Queueing(topologies=(Topology(name="t", levels=tuple("abcdefghijklmnopq")),)), "has 17 levels"),
        (Queueing(topologies=(Topology(name="t", levels=()),)), "has 0 levels"),
        (Queueing(topologies=(Topology(name="t", levels=("a", "a")),)), "the level a twice"),
        (Queueing(topologies=(Topology(name="t", levels=("a", "")),)), "a level without a name"),
        (Queueing(fair_share=FairShare(half_life_s=0.0)), "half_life_s is 0.0"),
        (Queueing(fair_share=FairShare(half_life_s=float("nan"))), "half_life_s is nan"),
        (Queueing(fair_share=FairShare(ageing_s=float("inf"))), "ageing_s is inf"),
        (Queueing(fair_share=FairShare(ageing_step=-1)), "ageing_step is -1"),
        (Queueing(fair_share=FairShare(patience_s=-1.0)), "patience_s is -1"),
    ],
)
def test_what_is_wrong_is_refused_with_its_name(queueing: Queueing, told: str) -> None:
    with pytest.raises(Refused) as refused:
        check_queueing(queueing)
    assert told in refused.value.what
    assert refused.value.fix


def test_flavors_that_one_label_tells_apart_are_fine() -> None:
    flavors = (
        Flavor(name="a", labels={"x": "1"}),
        Flavor(name="b", labels={"x": "2"}),
        Flavor(name="c", labels={"x": ""}),
    )
    assert check_queueing(Queueing(flavors=flavors)) is None  # type: ignore[func-returns-value]


def test_a_cohort_in_a_cohort_and_the_default_quota_are_fine() -> None:
    queueing = Queueing(
        cohorts=(Cohort(name="a", parent="b"), Cohort(name="b")),
        quotas=(Quota(name="q", cohort="a"),),
        queues=(Queue(name="default", workspace="w"), Queue(name="q", workspace="w", quota="q")),
        topologies=(Topology(name="t", levels=tuple("abcdefghijklmnop")),),
    )
    assert check_queueing(queueing) is None  # type: ignore[func-returns-value]


GIVEN = Queueing(flavors=(FLAVOR,))
KEPT = Queueing(
    cohorts=(Cohort(name="a", parent="b"), Cohort(name="b")),
    quotas=(
        Quota(name="stays", cohort="a", flavors=(FlavorLimits(flavor="f"),)),
        Quota(name="lost", flavors=(FlavorLimits(flavor="gone"),)),
    ),
    queues=(Queue(name="s", workspace="w", quota="stays"), Queue(name="l", workspace="w", quota="lost")),
    fair_share=FairShare(ageing_s=7.0),
)


def test_what_was_said_over_rest_and_fits_no_more_to_the_file_is_left_out_with_what_names_it() -> None:
    found = fitting(KEPT, GIVEN)
    assert [quota.name for quota in found.quotas] == ["stays"]
    assert [queue.name for queue in found.queues] == ["s"]
    assert {cohort.name for cohort in found.cohorts} == {"a", "b"}
    assert found.fair_share == KEPT.fair_share


def test_what_was_said_over_rest_and_fits_is_kept_as_it_is() -> None:
    assert fitting(KEPT, Queueing(flavors=(FLAVOR, Flavor(name="gone", labels={"x": "1"})))) != KEPT
    given = Queueing(flavors=(Flavor(name="f", pool="p"), Flavor(name="gone", pool="q")))
    assert fitting(KEPT, given) is KEPT
