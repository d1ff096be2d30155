"""What a workspace could never be given is refused at submit; what it has to wait for passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from levers9.actors.scheduler.quotas import Quotas, could_fit
from levers9.errors import INVALID, NEVER_FITS, NOT_FOUND, Refused
from levers9.model.entitlement import Wish, check_entitled
from levers9.model.gangs import Together, TopologyMode
from levers9.model.queues import (
    Cohort,
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
from levers9.model.resources import Shape

CARD = Shape(cpu_milli=250, memory_mib=128, gpu_count=1)
JOE = Wish(workspace="joe", shape=CARD)


def cards(flavor: str, nominal: int, borrowing: int | None = None, lending: int | None = None) -> FlavorLimits:
    most = (None if value is None else value * 1000 for value in (borrowing, lending))
    borrows, lends = most
    return FlavorLimits(flavor=flavor, gpu=Limits(nominal=nominal * 1000, borrowing=borrows, lending=lends))


LAB = Queueing(
    flavors=(Flavor(name="gb200", gpu_type="GB200", topology="nvl"), Flavor(name="spot", labels={"spot": "yes"})),
    quotas=(
        Quota(name="gpu", flavors=(cards("gb200", 8),)),
        Quota(
            name="small",
            flavors=(
                FlavorLimits(
                    flavor="gb200", cpu=Limits(nominal=500), memory=Limits(nominal=2048), gpu=Limits(nominal=1000)
                ),
            ),
        ),
    ),
    queues=(
        Queue(name="gpu", workspace="joe", quota="gpu"),
        Queue(name="default", workspace="joe", quota="gpu"),
        Queue(name="small", workspace="joe", quota="small"),
    ),
    shares=(Share(workspace="ann", max_containers=4, max_cpu_milli=2000, max_gpus=2),),
    priorities=(PriorityClass(name="urgent", value=100),),
    topologies=(Topology(name="nvl", levels=("spine", "domain")),),
)


def refusal(wish: Wish, queueing: Queueing = LAB) -> Refused:
    with pytest.raises(Refused) as caught:
        check_entitled(wish, queueing)
    return caught.value


def test_what_there_could_be_quota_for_passes_and_so_does_everything_without_quotas() -> None:
    check_entitled(replace(JOE, nodes=8, queue="gpu"), LAB)
    check_entitled(replace(JOE, nodes=4000), Queueing())
    check_entitled(replace(JOE, workspace="eve", nodes=4000), LAB)


@pytest.mark.parametrize("queue", ["gpu", "default"])
def test_more_than_a_quota_could_ever_give_is_refused_with_the_numbers(queue: str) -> None:
    error = refusal(replace(JOE, nodes=9, queue=queue))
    assert error.code == NEVER_FITS
    assert error.what == "Quota gpu could never give 9 cards."
    assert error.why == "Of flavor gb200 it has 8 cards, what it may borrow included."


def test_each_resource_that_is_too_small_is_named() -> None:
    error = refusal(replace(JOE, nodes=20, queue="small"))
    assert error.what == "Quota small could never give 5 CPUs and 2.5 GiB of memory and 20 cards."
    assert error.why == "Of flavor gb200 it has 0.5 CPUs and 2 GiB of memory and 1 card, what it may borrow included."


def test_a_resource_without_limits_is_not_counted() -> None:
    check_entitled(replace(JOE, shape=replace(CARD, cpu_milli=10**9, gpu_count=8)), LAB)


def test_names_that_nobody_knows_are_refused_with_those_that_there_are() -> None:
    error = refusal(replace(JOE, queue="mine"))
    assert (error.code, error.fix) == (NOT_FOUND, "Queues: default, gpu, small.")
    assert refusal(replace(JOE, workspace="ann", queue="gpu")).fix == "Queues: default."
    assert refusal(replace(JOE, priority="high")).fix == "Priorities: default, urgent."
    check_entitled(replace(JOE, priority="urgent"), LAB)


def test_a_topology_and_its_level_must_be_known() -> None:
    near = Together(TopologyMode.REQUIRED, "domain", topology="nvl")
    check_entitled(replace(JOE, together=near), LAB)
    check_entitled(replace(JOE, together=replace(near, level="node")), LAB)
    check_entitled(replace(JOE, together=replace(near, level="rack", topology="")), LAB)
    check_entitled(replace(JOE, together=replace(near, topology="ib", mode=TopologyMode.NONE)), LAB)
    error = refusal(replace(JOE, together=replace(near, level="rack")))
    assert (error.code, error.fix) == (INVALID, "Its levels, from coarse to fine: spine, domain, node.")
    assert refusal(replace(JOE, together=replace(near, topology="ib"))).fix == "Topologies: nvl."
    assert refusal(replace(JOE, together=replace(near, topology="ib")), Queueing()).fix == "Topologies: none."


@pytest.mark.parametrize(
    ("nodes", "shape", "told"),
    [
        (5, Shape(cpu_milli=1, memory_mib=1), "5 containers at a time"),
        (2, Shape(cpu_milli=1500, memory_mib=1), "3 CPUs at a time"),
        (3, CARD, "3 cards at a time"),
    ],
)
def test_more_than_a_workspace_may_run_at_a_time_is_refused(nodes: int, shape: Shape, told: str) -> None:
    error = refusal(Wish(workspace="ann", shape=shape, nodes=nodes))
    assert error.what == f"{told} are more than this workspace may have."
    check_entitled(Wish(workspace="ann", shape=replace(CARD, cpu_milli=1), nodes=2), LAB)


def test_a_flavor_of_other_cards_pools_or_labels_does_not_count() -> None:
    assert refusal(replace(JOE, shape=replace(CARD, gpu_types=("H100",)))).why == "It has quota of gb200."
    check_entitled(replace(JOE, shape=replace(CARD, gpu_count=0, gpu_types=("H100",))), LAB)
    spot = Queueing(
        flavors=(Flavor(name="spot", pool="cheap", labels={"spot": "yes"}),),
        quotas=(Quota(name="default", flavors=(cards("spot", 1),)),),
    )
    check_entitled(JOE, spot)
    check_entitled(replace(JOE, shape=replace(CARD, pool="cheap", labels=(("spot", "yes"),))), spot)
    for other in (replace(CARD, pool="dear"), replace(CARD, labels=(("spot", "no"),))):
        assert refusal(replace(JOE, shape=other), spot).what == "Quota default has nothing of this kind."


def test_one_flavor_has_to_have_all_of_it() -> None:
    two = replace(LAB, quotas=(Quota(name="gpu", flavors=(cards("gb200", 8), cards("spot", 9))),))
    check_entitled(replace(JOE, nodes=9), two)
    assert refusal(replace(JOE, nodes=10), two).why.startswith("Of flavor gb200 it has 8 cards")


@pytest.mark.parametrize(
    ("own", "other", "cohort", "most"),
    [
        (cards("gb200", 2), cards("gb200", 6), 0, 8),
        (cards("gb200", 2, borrowing=3), cards("gb200", 6), 0, 5),
        (cards("gb200", 2), cards("gb200", 6, lending=1), 0, 3),
        (cards("gb200", 2, lending=0), cards("gb200", 6), 0, 8),
        (cards("gb200", 2, lending=0, borrowing=1), cards("gb200", 6), 0, 3),
        (cards("gb200", 2), cards("gb200", 6), 4, 12),
        (cards("gb200", 2), cards("spot", 6), 0, 2),
    ],
)
def test_what_a_cohort_lends_counts_as_far_as_it_may_be_borrowed(
    own: FlavorLimits, other: FlavorLimits, cohort: int, most: int
) -> None:
    shared = replace(
        LAB,
        cohorts=(Cohort(name="all", flavors=(cards("gb200", cohort),) if cohort else ()),),
        quotas=(Quota(name="gpu", cohort="all", flavors=(own,)), Quota(name="b", cohort="all", flavors=(other,))),
    )
    check_entitled(replace(JOE, nodes=most), shared)
    assert refusal(replace(JOE, nodes=most + 1), shared).code == NEVER_FITS


def test_nested_cohorts_lend_up_and_down() -> None:
    nested = replace(
        LAB,
        cohorts=(
            Cohort(name="root"),
            Cohort(name="left", parent="root", flavors=(cards("gb200", 0, borrowing=3),)),
            Cohort(name="right", parent="root", flavors=(cards("gb200", 0, lending=4),)),
        ),
        quotas=(
            Quota(name="gpu", cohort="left", flavors=(cards("gb200", 2),)),
            Quota(name="b", cohort="right", flavors=(cards("gb200", 9),)),
        ),
    )
    check_entitled(replace(JOE, nodes=5), nested)
    assert refusal(replace(JOE, nodes=6), nested).code == NEVER_FITS


amounts = st.integers(0, 4)
limits = st.builds(cards, st.sampled_from(["gb200", "spot"]), amounts, st.none() | amounts, st.none() | amounts)
own = st.lists(limits, max_size=2, unique_by=lambda each: each.flavor).map(tuple)


@st.composite
def nested(draw: st.DrawFn) -> Queueing:
    """Quotas in cohorts of cohorts, with any limits."""
    names = [f"c{number}" for number in range(4)]
    parents = draw(st.tuples(*(st.sampled_from(["", *names[:number]]) for number in range(4))))
    cohorts = tuple(Cohort(name=name, parent=parent, flavors=draw(own)) for name, parent in zip(names, parents))
    some = st.sampled_from(["", *names])
    quotas = tuple(Quota(name=f"q{number}", cohort=draw(some), flavors=draw(own)) for number in range(3))
    return replace(LAB, cohorts=cohorts, quotas=quotas, queues=(Queue(name="q", workspace="joe", quota="q0"),))


@given(queueing=nested(), nodes=st.integers(1, 20))
def test_the_scheduler_would_wait_for_ever_for_what_is_refused_and_for_nothing_else(
    queueing: Queueing, nodes: int
) -> None:
    quota = Quotas(queueing).states["q0"]
    possible = any(could_fit(option, nodes) for option in quota.options(CARD))
    if possible:
        check_entitled(replace(JOE, queue="q", nodes=nodes), queueing)
    else:
        assert refusal(replace(JOE, queue="q", nodes=nodes), queueing).code == NEVER_FITS
