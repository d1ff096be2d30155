"""What can never fit is refused at submit, with the numbers; what only has to wait passes."""

import pytest
from msgspec.structs import replace

from levers9.errors import INVALID, NEVER_FITS, UNKNOWN_GPU, Refused
from levers9.model.feasibility import ANYWHERE, PoolOffer, check_feasible
from levers9.model.gangs import GANG_MAX, Together, TopologyMode
from levers9.model.nodes import NodeOffer, NodeState, Traits
from levers9.model.resources import Capacity, Shape

DOMAIN = "accelerator.topograph.run/domain"
TRAY = Capacity(cpu_milli=4000, memory_mib=9216, gpu_count=4, gpu_type="GB200")
ONE = Shape(cpu_milli=250, memory_mib=128, gpu_count=1)
REQUIRED = Together(TopologyMode.REQUIRED, DOMAIN)


def tray(number: int, domain: str = "nvl", state: NodeState = NodeState.READY) -> NodeOffer:
    labels = ((DOMAIN, domain), ("zone", f"z{number}")) if domain else (("zone", f"z{number}"),)
    return NodeOffer(capacity=TRAY, traits=Traits(node=f"tray-{number}", labels=labels), state=state)


def lab(*nodes: NodeOffer) -> tuple[PoolOffer, ...]:
    return (PoolOffer(pool="lab", largest=TRAY, offers=nodes),)


LAB = lab(tray(1), tray(2, state=NodeState.CORDONED))


def refusal(
    shape: Shape, offers: tuple[PoolOffer, ...] = LAB, nodes: int = 1, together: Together = ANYWHERE
) -> Refused:
    with pytest.raises(Refused) as caught:
        check_feasible(shape, offers, nodes=nodes, together=together)
    return caught.value


def test_a_node_that_is_cordoned_still_counts() -> None:
    check_feasible(ONE, LAB, nodes=8, together=REQUIRED)
    check_feasible(ONE, lab(tray(1, state=NodeState.NOT_READY)))


def test_a_gang_larger_than_all_nodes_together_is_refused_with_the_numbers() -> None:
    error = refusal(ONE, nodes=9)
    assert error.code == NEVER_FITS
    assert error.what == "9 containers of this size never fit together."
    assert error.why == "Pool lab, all of it, has room for 8."
    assert refusal(replace(ONE, gpu_count=3), nodes=3).why == "Pool lab, all of it, has room for 2."
    assert refusal(replace(ONE, cpu_milli=3000), nodes=3).why == "Pool lab, all of it, has room for 2."


def test_a_gang_stays_within_one_pool() -> None:
    both = (*LAB, replace(LAB[0], pool="other", offers=(tray(3),)))
    assert refusal(ONE, both, nodes=10).why == "Pool lab, all of it, has room for 8."


def test_workers_without_names_are_as_many_as_their_pool_may_start() -> None:
    plain = PoolOffer(pool="plain", largest=TRAY, offers=(NodeOffer(capacity=TRAY, traits=Traits()),))
    check_feasible(ONE, (plain,), nodes=100)
    assert refusal(ONE, (replace(plain, max_workers=2),), nodes=9).why == "Pool plain, all of it, has room for 8."
    check_feasible(ONE, (replace(plain, max_workers=2),), nodes=8)
    check_feasible(ONE, (replace(plain, offers=()),), nodes=100)


def test_a_topology_level_that_no_node_has_is_refused_with_those_that_there_are() -> None:
    for mode in (TopologyMode.REQUIRED, TopologyMode.PREFERRED):
        error = refusal(ONE, nodes=2, together=Together(mode, "rack"))
        assert (error.what, error.code) == ("No node has the topology level rack.", NEVER_FITS)
        assert error.fix == f"Levels are labels of nodes: {DOMAIN}, zone, node."
    check_feasible(ONE, LAB, nodes=2, together=Together(TopologyMode.NONE, "rack"))


def test_a_gang_larger_than_each_domain_is_refused_and_passes_where_nearness_is_only_preferred() -> None:
    split = lab(tray(1, "left"), tray(2, "right"))
    error = refusal(ONE, split, nodes=8, together=REQUIRED)
    assert error.what == f"8 containers never fit into one {DOMAIN}."
    assert error.why == "In containers of this size, 4 of 8 fit on nodes that are empty."
    check_feasible(ONE, split, nodes=8, together=replace(REQUIRED, mode=TopologyMode.PREFERRED))
    check_feasible(ONE, split, nodes=8, together=replace(REQUIRED, slice_size=4))
    error = refusal(replace(ONE, gpu_count=2), split, nodes=3, together=replace(REQUIRED, slice_size=3))
    assert error.why == "In slices of 3, 0 of 3 fit on nodes that are empty."


def test_where_a_cluster_reports_labels_a_domain_that_is_split_may_be_joined_again() -> None:
    split = tuple(replace(offer, reported=True) for offer in lab(tray(1, "left"), tray(2, "right")))
    check_feasible(ONE, split, nodes=8, together=REQUIRED)
    assert refusal(ONE, split, nodes=9, together=REQUIRED).why == "Pool lab, all of it, has room for 8."
    on_one = Together(TopologyMode.REQUIRED, "node")
    assert refusal(ONE, split, nodes=5, together=on_one).what == "5 containers never fit into one node."


def test_a_node_that_is_gone_from_a_cluster_may_come_back_with_all_that_it_had() -> None:
    left = tuple(replace(offer, reported=True, max_workers=2) for offer in lab(tray(1)))
    check_feasible(ONE, left, nodes=8)
    check_feasible(ONE, left, nodes=8, together=REQUIRED)
    check_feasible(ONE, left, nodes=2, together=Together(TopologyMode.REQUIRED, "rack"))
    assert refusal(ONE, left, nodes=9).why == "Pool lab, all of it, has room for 8."
    assert refusal(ONE, tuple(replace(offer, reported=False) for offer in left), nodes=8).code == NEVER_FITS


def test_one_node_is_a_level_of_every_topology() -> None:
    on_one = Together(TopologyMode.REQUIRED, "node")
    check_feasible(ONE, LAB, nodes=4, together=on_one)
    assert refusal(ONE, nodes=5, together=on_one).what == "5 containers never fit into one node."


def test_a_share_of_a_card_is_refused_where_no_pool_shares() -> None:
    half = replace(ONE, gpu_milli=500)
    assert refusal(half).what == "No pool shares its cards."
    assert refusal(replace(half, gpu_types=("GB200",))).what == "No pool shares its GB200 cards."
    sharing = replace(tray(1), traits=Traits(node="tray-1", gpu_sharing=True))
    check_feasible(half, lab(sharing), nodes=8)
    assert refusal(half, lab(sharing), nodes=9).code == NEVER_FITS
    assert refusal(half, (PoolOffer(pool="unknown", largest=TRAY),)).what == "No pool shares its cards."


def test_a_label_that_no_node_has_is_refused_with_its_values() -> None:
    error = refusal(replace(ONE, labels=(("zone", "z9"),)))
    assert (error.what, error.why) == ("No node has the label zone=z9.", "Its values are: z1, z2.")
    assert refusal(replace(ONE, labels=(("rack", "1"),))).why == "No node has that label at all."
    check_feasible(replace(ONE, labels=(("zone", "z1"),)), LAB)
    both = replace(ONE, labels=(("zone", "z1"), (DOMAIN, "right")))
    apart = lab(tray(1, "left"), tray(2, "right"))
    assert refusal(both, apart).what == f"No one node has the labels zone=z1, {DOMAIN}=right."


def test_a_size_is_judged_by_the_nodes_that_have_the_labels() -> None:
    small = replace(tray(2), capacity=replace(TRAY, gpu_count=1))
    nodes = (PoolOffer(pool="lab", largest=small.capacity, offers=(tray(1), small)),)
    error = refusal(replace(ONE, gpu_count=2, labels=(("zone", "z2"),)), nodes)
    assert error.what.startswith("No worker on nodes with zone=z2 was ever large enough")
    assert error.why == "The largest had 4 CPUs, 9216 MiB and 1 card."


def test_a_worker_that_was_once_larger_than_its_pool_declares_still_counts() -> None:
    larger = (*LAB, PoolOffer(pool="lab", largest=replace(TRAY, gpu_count=8)))
    check_feasible(replace(ONE, gpu_count=8), larger)


def test_a_runtime_that_no_pool_has_is_refused_with_those_that_there_are() -> None:
    processes = replace(tray(1), traits=Traits(node="tray-1", runtimes=("process",)))
    error = refusal(replace(ONE, runtime="gvisor"), lab(processes))
    assert (error.what, error.fix) == ("No pool runs containers with gvisor.", "Runtimes you may ask for: process.")
    check_feasible(replace(ONE, runtime="process"), lab(processes))
    check_feasible(replace(ONE, runtime="gvisor"), LAB)


def test_the_card_of_a_checkpoint_is_the_only_one_that_will_do() -> None:
    check_feasible(replace(ONE, accelerator="GB200"), LAB)
    error = refusal(replace(ONE, accelerator="H100"))
    assert (error.what, error.code) == ("No pool has H100 cards, on which the checkpoint was taken.", UNKNOWN_GPU)
    assert refusal(replace(ONE, accelerator="GB200", gpu_types=("H100",))).what == "No pool has GPUs of type H100."


@pytest.mark.parametrize(("nodes", "slice_size"), [(0, 1), (-1, 1), (GANG_MAX + 1, 1), (6, 4), (4, 0)])
def test_a_gang_that_is_none_is_refused_even_while_no_pool_is_known(nodes: int, slice_size: int) -> None:
    assert refusal(ONE, (), nodes, Together(slice_size=slice_size)).code == INVALID


@pytest.mark.parametrize("milli", [0, -1, 1001])
def test_a_share_is_of_one_card(milli: int) -> None:
    assert refusal(replace(ONE, gpu_milli=milli), ()).code == INVALID
