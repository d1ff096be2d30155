"""Domains and the two ways of choosing among them, by their worked examples and against a count from scratch."""

from __future__ import annotations

from collections import Counter

import pytest

from levers9.actors.scheduler.capacity import Node, Standing, new_node
from levers9.actors.scheduler.counting import CHANGES_KEPT
from levers9.actors.scheduler.survey import COUNTED_MAX, IMPLIED_MAX, flavor_of
from levers9.actors.scheduler.topology import ELSEWHERE, Assignment, Topologies
from levers9.model.gangs import NODE_LEVEL, Together, TopologyMode
from levers9.model.nodes import Traits
from levers9.model.queues import Flavor, Topology
from levers9.model.reasons import Excluded, HoldKind, Lack, Reason
from levers9.model.resources import Capacity, Shape
from levers9.model.sentences import sentence

OPEN = frozenset({Standing.OPEN})
ANY = frozenset({Standing.OPEN, Standing.COMING, Standing.OFFERED})
ONE = Shape(cpu_milli=1000, memory_mib=1)
CARD = Shape(cpu_milli=1000, memory_mib=1, gpu_count=1)
NVL = Topology(name="nvl", levels=("spine", "leaf", "domain"))
RACKS = Topology(name="racks", levels=("rack",))
REQUIRED, PREFERRED, NONE = TopologyMode.REQUIRED, TopologyMode.PREFERRED, TopologyMode.NONE


def node_of(
    name: str,
    cpus: int = 64,
    cards: int = 0,
    standing: Standing = Standing.OPEN,
    why: str = "",
    pool: str = "p",
    **labels: str,
) -> Node:
    capacity = Capacity(cpu_milli=cpus * 1000, memory_mib=1 << 20, gpu_count=cards, gpu_type="GB200" if cards else "")
    traits = Traits(node=name, labels=tuple(sorted(labels.items())))
    return new_node(name, pool, capacity, traits, standing, why)


def topologies(*nodes: Node, configured: tuple[Topology, ...] = (RACKS,)) -> Topologies:
    made = Topologies()
    made.configure(configured, ())
    for node in nodes:
        made.put(node)
    return made


def racks(*cpus: int) -> Topologies:
    """One node a rack, racks a, b, c …"""
    return topologies(*(node_of(f"{rack}1", cpu, rack=rack) for rack, cpu in zip("abcdefgh", cpus)))


def spread(answer: Assignment | Reason) -> dict[str, int]:
    assert isinstance(answer, Assignment)
    return dict(Counter(answer.nodes))


def hold(answer: Assignment | Reason | tuple[str, ...] | None) -> Reason:
    assert isinstance(answer, Reason)
    return answer


# The worked examples


def test_best_fit_takes_the_largest_and_for_the_rest_the_tightest() -> None:
    answer = racks(3, 3, 2, 1).assign(7, ONE, Together(PREFERRED, "rack"), OPEN)
    assert spread(answer) == {"a1": 3, "b1": 3, "d1": 1}


def test_least_free_capacity_takes_the_smallest_first() -> None:
    assert spread(racks(3, 3, 2, 1).assign(7, ONE, Together(), OPEN)) == {"a1": 3, "b1": 1, "c1": 2, "d1": 1}


def test_slices_by_best_fit_leave_odd_rooms_alone() -> None:
    answer = racks(6, 5, 4, 3, 2).assign(12, ONE, Together(PREFERRED, "rack", 2), OPEN)
    assert spread(answer) == {"a1": 6, "c1": 4, "e1": 2}


def test_slices_by_least_free_capacity_fill_the_small_ones() -> None:
    answer = racks(6, 5, 4, 3, 2).assign(10, ONE, Together(NONE, "rack", 2), OPEN)
    assert spread(answer) == {"b1": 2, "c1": 4, "d1": 2, "e1": 2}


# Levels


def nvl(domains: int = 2, trays: int = 2, cards: int = 4) -> Topologies:
    """Domains of trays, two domains a leaf, all of one spine."""
    nodes = [
        node_of(f"d{domain}t{tray}", cards=cards, spine="s", leaf=f"l{domain // 2}", domain=f"d{domain}")
        for domain in range(domains)
        for tray in range(trays)
    ]
    return topologies(*nodes, configured=(NVL,))


def take(at: Topologies, node_id: str, count: int, shape: Shape = CARD) -> None:
    node = at.nodes[node_id]
    for _ in range(count):
        node.take(f"{node_id}-{len(node.uses)}", shape, node.pick_cards(shape))
    at.put(node)


def test_a_required_domain_takes_all_members_or_none() -> None:
    at = nvl()
    take(at, "d0t0", 1)
    assert spread(at.assign(8, CARD, Together(REQUIRED, "domain"), OPEN)) == {"d1t0": 4, "d1t1": 4}
    take(at, "d1t1", 1)
    answer = hold(at.assign(8, CARD, Together(REQUIRED, "domain"), OPEN))
    assert (answer.kind, answer.topology, answer.level) == (HoldKind.TOPOLOGY, "nvl", "domain")
    assert (answer.fits, answer.wanted) == (7, 8)


def test_a_required_domain_is_the_tightest_that_fits() -> None:
    at = nvl()
    take(at, "d1t1", 3)
    assert spread(at.assign(5, CARD, Together(REQUIRED, "domain"), OPEN)) == {"d1t0": 4, "d1t1": 1}


def test_a_preferred_domain_gives_way_to_a_coarser_one_and_then_to_several() -> None:
    at = nvl(domains=4)
    take(at, "d0t0", 1)
    prefers = Together(PREFERRED, "domain")
    assert set(spread(at.assign(8, CARD, prefers, OPEN))) == {"d1t0", "d1t1"}
    assert set(spread(at.assign(16, CARD, prefers, OPEN))) == {"d2t0", "d2t1", "d3t0", "d3t1"}
    assert sum(spread(at.assign(20, CARD, prefers, OPEN)).values()) == 20
    assert hold(at.assign(32, CARD, prefers, OPEN)).kind is HoldKind.ROOM


def test_a_level_may_be_the_node_itself() -> None:
    at = topologies(node_of("a", 2), node_of("b", 4), configured=())
    assert spread(at.assign(3, ONE, Together(REQUIRED, NODE_LEVEL), OPEN)) == {"b": 3}
    assert hold(at.assign(5, ONE, Together(REQUIRED, NODE_LEVEL), OPEN)).fits == 4
    assert spread(at.assign(5, ONE, Together(PREFERRED, NODE_LEVEL), OPEN)) == {"b": 4, "a": 1}


def test_neighbours_in_rank_are_neighbours_in_the_topology() -> None:
    answer = nvl().assign(12, CARD, Together(PREFERRED, "domain"), OPEN)
    assert isinstance(answer, Assignment)
    assert answer.nodes == ("d0t0",) * 4 + ("d0t1",) * 4 + ("d1t0",) * 4
    anywhere = nvl().assign(12, CARD, Together(), OPEN)
    assert isinstance(anywhere, Assignment)
    assert list(anywhere.nodes) == sorted(anywhere.nodes)


def test_slices_are_ranks_in_a_row() -> None:
    at = nvl()
    take(at, "d0t0", 1)
    answer = at.assign(12, CARD, Together(PREFERRED, "domain", 4), OPEN)
    assert isinstance(answer, Assignment)
    slices = [{node[:2] for node in answer.nodes[first : first + 4]} for first in range(0, 12, 4)]
    assert all(len(domains) == 1 for domains in slices)


def test_of_two_topologies_with_the_level_one_is_used() -> None:
    east, west = Topology(name="east", levels=("row", "rack")), Topology(name="west", levels=("hall", "rack"))
    at = topologies(node_of("e1", 3, row="r", rack="x"), node_of("w1", 4, hall="h", rack="x"), configured=(east, west))
    answer = at.assign(4, ONE, Together(REQUIRED, "rack"), OPEN)
    assert isinstance(answer, Assignment)
    assert answer == Assignment(nodes=("w1",) * 4, topology="west")
    assert hold(at.assign(5, ONE, Together(PREFERRED, "rack"), OPEN)).fits == 4
    named = hold(at.assign(4, ONE, Together(REQUIRED, "rack", topology="east"), OPEN))
    assert (named.topology, named.fits) == ("east", 3)


def test_a_label_that_no_topology_has_is_a_level_of_its_own() -> None:
    cell = topologies(
        node_of("a", 4, zone="east"), node_of("b", 3, zone="west"), node_of("c", 3, zone="west"), node_of("d", 9)
    )

    together = cell.assign(6, ONE, Together(REQUIRED, "zone"), OPEN)
    apart = hold(cell.assign(7, ONE, Together(REQUIRED, "zone"), OPEN))

    assert spread(together) == {"b": 3, "c": 3}
    assert (apart.kind, apart.fits, apart.topology, apart.level) == (HoldKind.TOPOLOGY, 6, "", "zone")
    assert cell.levels() == (NODE_LEVEL,)


def test_levels_that_nobody_declared_are_kept_for_few_labels_at_once() -> None:
    labels = {f"l{number}": "x" for number in range(IMPLIED_MAX + 2)}
    cell = topologies(node_of("a", 4, **labels), configured=())

    answers = [cell.assign(2, ONE, Together(REQUIRED, label), OPEN) for label in labels]

    assert [spread(answer) for answer in answers] == [{"a": 2}] * len(labels)
    assert len(cell.trees) == 1 + IMPLIED_MAX


def test_a_level_that_no_node_has_is_refused_with_those_that_exist() -> None:
    at = nvl()
    for answer in (
        at.assign(2, CARD, Together(REQUIRED, "rack"), OPEN),
        at.assign(2, CARD, Together(PREFERRED, "rack"), OPEN),
        at.assign(2, CARD, Together(REQUIRED, "domain", topology="other"), OPEN),
    ):
        assert "spine, leaf, domain, node" in hold(answer).detail


def test_a_gang_larger_than_the_cluster_is_told_how_much_of_it_would_fit() -> None:
    at = nvl()
    assert hold(at.assign(9, CARD, Together(REQUIRED, "domain"), OPEN)).fits == 8
    assert hold(at.assign(17, CARD, Together(), OPEN)).fits == 16


def test_a_node_without_all_labels_belongs_to_no_domain() -> None:
    at = topologies(node_of("a", 4, rack="x"), node_of("b", 4))
    assert hold(at.assign(8, ONE, Together(REQUIRED, "rack"), OPEN)).fits == 4
    assert sum(spread(at.assign(8, ONE, Together(), OPEN)).values()) == 8


def test_a_node_that_moves_to_another_rack_counts_there() -> None:
    at = topologies(node_of("a", 4, rack="x"), node_of("b", 4, rack="y"))
    rack = Together(REQUIRED, "rack")
    assert hold(at.assign(8, ONE, rack, OPEN)).fits == 4
    at.put(node_of("b", 4, rack="x"))
    assert sum(spread(at.assign(8, ONE, rack, OPEN)).values()) == 8


def test_a_node_that_left_and_comes_back_counts_again() -> None:
    node = node_of("a", 4, rack="x")
    at = topologies(node)
    at.drop("a")
    assert hold(at.assign(4, ONE, Together(REQUIRED, "rack"), OPEN)).fits == 0
    at.put(node)
    assert spread(at.assign(4, ONE, Together(REQUIRED, "rack"), OPEN)) == {"a": 4}


def test_a_node_that_is_listed_twice_counts_once() -> None:
    at = topologies(node_of("a", 4), node_of("a", 2))
    assert hold(at.assign(3, ONE, Together(), OPEN)).fits == 2


def test_a_flavor_keeps_its_nodes_out_of_other_topologies() -> None:
    at = Topologies()
    at.put(node_of("a", 4, rack="x", hall="h"))
    halls = Topology(name="halls", levels=("hall",))
    at.configure((RACKS, halls), (Flavor(name="f", labels={"rack": "x"}, topology="halls"),))
    assert spread(at.assign(4, ONE, Together(REQUIRED, "hall"), OPEN)) == {"a": 4}
    assert at.levels() == ("hall", "node")


# Standings


def test_open_nodes_are_used_before_those_that_are_coming() -> None:
    at = topologies(
        node_of("a", 4, standing=Standing.OFFERED, rack="x"),
        node_of("b", 2, standing=Standing.COMING, rack="x"),
        node_of("c", 1, rack="x"),
    )
    for mode, level in ((REQUIRED, "rack"), (PREFERRED, "rack"), (NONE, "")):
        assert spread(at.assign(4, ONE, Together(mode, level), ANY)) == {"c": 1, "b": 2, "a": 1}
    assert hold(at.assign(4, ONE, Together(REQUIRED, "rack"), OPEN)).fits == 1


def test_as_many_as_have_room_are_seated_where_not_all_have() -> None:
    at = topologies(node_of("a", 2), node_of("b", 4), node_of("c", 3, standing=Standing.CLOSED))
    assert at.as_many(9, ONE, OPEN) == ("a",) * 2 + ("b",) * 4
    assert at.as_many(3, ONE, OPEN, frozenset({"a"})) == ("b",) * 3


def test_the_reason_names_the_cordoned_node_that_would_make_it_fit() -> None:
    at = nvl(domains=1)
    at.put(node_of("d0t1", cards=4, standing=Standing.CLOSED, why="cordoned", spine="s", leaf="l0", domain="d0"))
    answer = hold(at.assign(8, CARD, Together(REQUIRED, "domain"), OPEN))
    assert (answer.fits, answer.wanted, answer.excluded) == (4, 8, (Excluded("d0t1", "cordoned", pool="p"),))
    at.put(node_of("d0t1", cards=4, spine="s", leaf="l0", domain="d0"))
    assert sum(spread(at.assign(8, CARD, Together(REQUIRED, "domain"), OPEN)).values()) == 8


def test_the_reason_names_the_few_nodes_that_are_in_other_domains_than_most() -> None:
    at = nvl(trays=1)
    at.put(node_of("d0t1", cards=4, spine="s", leaf="l0", domain="d0"))
    answer = hold(at.assign(12, CARD, Together(REQUIRED, "domain"), OPEN))
    assert (answer.fits, answer.excluded, answer.lacks) == (8, (Excluded("d1t0", ELSEWHERE, pool="p"),), ())
    assert sentence(answer) == "Topology nvl: only 8 of 12 fit in one domain; d1t0 is in another one."


def test_the_reason_says_what_is_lacking_where_all_domains_together_have_too_little() -> None:
    at = nvl(trays=1)
    answer = hold(at.assign(9, CARD, Together(REQUIRED, "domain"), OPEN))
    assert (answer.fits, answer.excluded, answer.lacks) == (4, (), (Lack("gpu", 5000),))
    assert sentence(answer) == "Topology nvl: only 4 of 9 fit in one domain; 5 more cards needed there."


def test_a_closed_node_that_would_not_help_is_not_named() -> None:
    at = nvl(domains=1)
    at.put(node_of("d0t1", cards=4, standing=Standing.CLOSED, why="cordoned", spine="s", leaf="l0", domain="d0"))
    assert hold(at.assign(9, CARD, Together(REQUIRED, "domain"), OPEN)).excluded == ()


def test_of_several_domains_that_a_closed_node_keeps_small_the_largest_is_told_of() -> None:
    at = nvl(trays=3)
    for name, domain in (("d0t1", "d0"), ("d0t2", "d0"), ("d1t1", "d1")):
        at.put(node_of(name, cards=4, standing=Standing.CLOSED, why="silent", spine="s", leaf="l0", domain=domain))
    answer = hold(at.assign(12, CARD, Together(REQUIRED, "domain"), OPEN))
    assert (answer.fits, answer.excluded) == (8, (Excluded("d1t1", "silent", pool="p"),))


def test_nodes_that_are_kept_for_others_are_named_as_reserved() -> None:
    at = nvl(domains=1)
    answer = hold(at.assign(8, CARD, Together(), OPEN, frozenset({"d0t0"})))
    assert (answer.kind, answer.excluded) == (HoldKind.ROOM, (Excluded("d0t0", "reserved", pool="p"),))
    assert sum(spread(at.assign(8, CARD, Together(), OPEN)).values()) == 8


@pytest.mark.parametrize(
    ("shape", "lacks"),
    [
        (Shape(cpu_milli=1000, memory_mib=1, gpu_count=1, gpu_types=("GB200",)), (Lack("GB200", 8000),)),
        (Shape(cpu_milli=8000, memory_mib=1), (Lack("cpu", 8000),)),
        (Shape(cpu_milli=1, memory_mib=1 << 20), (Lack("memory", 14 << 20),)),
        (Shape(cpu_milli=64_000, memory_mib=1, gpu_count=4), (Lack("gpu", 56_000),)),
    ],
)
def test_where_no_domain_is_asked_for_the_reason_says_what_is_lacking(shape: Shape, lacks: tuple[Lack, ...]) -> None:
    at = topologies(node_of("a", cards=4), node_of("b", cards=4))
    wanted = {1000: 16, 8000: 17, 1: 16, 64_000: 16}[shape.cpu_milli]
    answer = hold(at.assign(wanted, shape, Together(), OPEN))
    assert (answer.kind, answer.lacks) == (HoldKind.ROOM, lacks)


def test_what_is_all_there_but_apart_is_told_of_by_its_first_resource() -> None:
    full, idle = node_of("a", 1, cards=4), node_of("b", 64)
    full.take("other", ONE, ())
    answer = hold(topologies(full, idle).assign(1, CARD, Together(), OPEN))
    assert (answer.fits, answer.lacks) == (0, (Lack("gpu", 1000),))


# What is remembered


def test_however_much_has_changed_since_the_last_question_the_answer_is_that_of_now() -> None:
    node = node_of("a", 4)
    at = topologies(node, node_of("b", 4))
    assert sum(spread(at.assign(8, ONE, Together(), OPEN)).values()) == 8
    node.take("other", ONE, ())
    at.put(node)
    for _ in range(CHANGES_KEPT):
        at.put(at.nodes["b"])
    assert hold(at.assign(8, ONE, Together(), OPEN)).fits == 7


def test_however_many_questions_there_are_the_answer_is_that_of_now() -> None:
    at = topologies(node_of("a", 4))
    for asked in range(2):
        for cpu_milli in range(1000, 1000 + COUNTED_MAX + 5):
            shape = Shape(cpu_milli=cpu_milli, memory_mib=1)
            assert at.count(shape, OPEN) == (4000 - 1000 * asked) // cpu_milli
        node = at.nodes["a"]
        node.take("other", ONE, ())
        at.put(node)


def test_forgetting_a_node_that_is_not_known_changes_nothing() -> None:
    at = topologies(node_of("a", 4))
    at.drop("b")
    assert at.count(ONE, OPEN) == 4


# Replacement


def test_a_lost_member_comes_back_into_the_domain_of_the_others() -> None:
    at = nvl()
    take(at, "d1t1", 3)
    rack = Together(REQUIRED, "domain")
    assert at.replace(("d0t0", "", "d0t0"), CARD, rack, OPEN) in (("d0t0",), ("d0t1",))
    at.drop("d0t1")
    take(at, "d0t0", 4)
    answer = hold(at.replace(("d0t0", "", ""), CARD, rack, OPEN))
    assert (answer.fits, answer.wanted, answer.level) == (0, 2, "domain")
    assert at.replace(("d0t0", "", ""), CARD, Together(PREFERRED, "domain"), OPEN) == ("d1t0", "d1t0")


def test_several_members_lost_at_once_come_back_together_or_not_at_all() -> None:
    at = nvl(domains=1, cards=2)
    take(at, "d0t0", 1)
    assert at.replace(("d0t0", "", "", ""), CARD, Together(REQUIRED, "domain"), OPEN) == ("d0t0", "d0t1", "d0t1")
    assert hold(at.replace(("d0t0", "", "", "", ""), CARD, Together(REQUIRED, "domain"), OPEN)).fits == 3


def test_who_only_prefers_to_be_near_is_replaced_although_nobody_knows_where_the_others_are() -> None:
    at = nvl()
    assert at.replace(("gone", ""), CARD, Together(PREFERRED, "domain"), OPEN) == ("d0t0",)
    assert hold(at.replace(("gone", ""), CARD, Together(REQUIRED, "domain"), OPEN)).wanted == 1


def test_members_that_have_ended_need_no_room() -> None:
    at = nvl(domains=1)
    take(at, "d0t0", 4)
    take(at, "d0t1", 3)
    nodes = ("d0t0", "", "", "")
    assert hold(at.replace(nodes, CARD, Together(REQUIRED, "domain"), OPEN)).fits == 1
    assert at.replace(nodes, CARD, Together(REQUIRED, "domain"), OPEN, ranks=(2,)) == ("d0t1",)


def test_a_torn_slice_is_mended_in_its_own_domain() -> None:
    at = nvl()
    slices = Together(PREFERRED, "domain", 2)
    found = at.replace(("d0t0", "", "", "", "d1t0", ""), CARD, slices, OPEN)
    assert not isinstance(found, Reason)
    assert [node[:2] for node in (found[0], found[3])] == ["d0", "d1"]
    assert found[1][:2] == found[2][:2]


def test_nobody_is_replaced_while_the_others_are_no_more_in_one_domain() -> None:
    at = topologies(node_of("a", 4, rack="x"), node_of("b", 4, rack="y"), node_of("c", 4, rack="y"))
    assert hold(at.replace(("a", "b", ""), ONE, Together(REQUIRED, "rack"), OPEN)).fits == 0
    at.put(node_of("a", 4, rack="y"))
    assert at.replace(("a", "b", ""), ONE, Together(REQUIRED, "rack"), OPEN) == ("a",)


def test_a_gang_that_lost_all_its_members_is_assigned_anew() -> None:
    at, node = nvl(), Together(REQUIRED, NODE_LEVEL)
    assert at.replace(("", ""), CARD, node, OPEN) == ("d0t0", "d0t0")
    assert at.replace(("", "", ""), CARD, node, OPEN, ranks=(0, 2)) == ("d0t0", "d0t0")
    assert hold(at.replace(("",) * 5, CARD, node, OPEN)).fits == 4
    assert at.replace(("",) * 4, CARD, Together(PREFERRED, NODE_LEVEL, 2), OPEN, ranks=(3,)) == ("d0t0",)


def test_a_flavor_owns_what_matches_it_first() -> None:
    node = node_of("a", cards=4, rack="x")
    flavors = (Flavor(name="no", pool="q"), Flavor(name="one", gpu_type="GB200"), Flavor(name="two"))
    owner = flavor_of(node, flavors)
    assert owner is not None
    assert owner.name == "one"
    assert flavor_of(node, flavors[:1]) is None


def test_the_order_in_which_nodes_came_makes_no_difference() -> None:
    nodes = [node_of(f"n{place}", 3, rack=f"r{place % 3}") for place in range(9)]
    forwards, backwards = topologies(*nodes), topologies(*reversed(nodes))
    for together in (Together(), Together(PREFERRED, "rack"), Together(REQUIRED, "rack")):
        assert forwards.assign(8, ONE, together, OPEN) == backwards.assign(8, ONE, together, OPEN)
