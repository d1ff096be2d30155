"""Domains under any order of changes: what is answered is what a plain look at all nodes gives."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from levers9.actors.scheduler.capacity import Node, Standing, new_node
from levers9.actors.scheduler.topology import Assignment, Topologies
from levers9.model.gangs import NODE_LEVEL, Together, TopologyMode
from levers9.model.nodes import Traits
from levers9.model.queues import Topology
from levers9.model.reasons import Reason
from levers9.model.resources import Capacity, Shape

pytestmark = pytest.mark.slow
OPEN = frozenset({Standing.OPEN})
ANY = frozenset({Standing.OPEN, Standing.COMING, Standing.OFFERED})
ONE = Shape(cpu_milli=1000, memory_mib=1)
CARD = Shape(cpu_milli=1000, memory_mib=1, gpu_count=1)
ZONES = Topology(name="t", levels=("zone", "rack"))
REQUIRED, PREFERRED, NONE = TopologyMode.REQUIRED, TopologyMode.PREFERRED, TopologyMode.NONE


def node_of(name: str, cpus: int, cards: int = 0, standing: Standing = Standing.OPEN, **labels: str) -> Node:
    capacity = Capacity(cpu_milli=cpus * 1000, memory_mib=1 << 20, gpu_count=cards, gpu_type="GB200" if cards else "")
    return new_node(name, "p", capacity, Traits(node=name, labels=tuple(sorted(labels.items()))), standing)


def topologies(*nodes: Node) -> Topologies:
    made = Topologies()
    made.configure((ZONES,), ())
    for node in nodes:
        made.put(node)
    return made


def spread(answer: Assignment | Reason) -> dict[str, int]:
    assert isinstance(answer, Assignment)
    return dict(Counter(answer.nodes))


def take(at: Topologies, node_id: str, count: int, shape: Shape = CARD) -> None:
    node = at.nodes[node_id]
    for _ in range(count):
        node.take(f"{node_id}-{len(node.uses)}", shape, node.pick_cards(shape))
    at.put(node)


def domain_rooms(nodes: dict[str, Node], shape: Shape, standings: frozenset[Standing], level: str) -> Counter[str]:
    """Members that fit, by domain; a plain sum over all nodes."""
    rooms: Counter[str] = Counter()
    for node in nodes.values():
        labelled = all(node.kind.traits.label(key) for key in ("zone", "rack"))
        if node.standing in standings and (labelled or level in (NODE_LEVEL, "")):
            path = {"": "", "zone": "zone", "rack": "rack"}.get(level, NODE_LEVEL)
            labels = node.kind.traits
            key = {
                "": "",
                "zone": labels.label("zone"),
                "rack": labels.label("zone") + "/" + labels.label("rack"),
                NODE_LEVEL: node.node_id,
            }[path]
            rooms[key] += node.count(shape)
    return rooms


SHAPES = (ONE, Shape(cpu_milli=2000, memory_mib=1), CARD, Shape(cpu_milli=1, memory_mib=1, gpu_count=2))
TOGETHER = (
    Together(),
    Together(REQUIRED, "zone"),
    Together(REQUIRED, "rack"),
    Together(REQUIRED, NODE_LEVEL),
    Together(PREFERRED, "rack"),
    Together(PREFERRED, "rack", 2),
    Together(NONE, "rack", 2),
    Together(REQUIRED, "rack", 2),
    Together(PREFERRED, "zone", 4),
    Together(NONE, NODE_LEVEL, 2),
)


class TopologyMachine(RuleBasedStateMachine):
    """Nodes come, go, move and fill up; each answer is compared with a plain look at all nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.at = topologies()
        self.model: dict[str, Node] = {}
        self.taken = 0

    @rule(
        name=st.sampled_from("abcdefgh"),
        cpus=st.integers(1, 6),
        cards=st.integers(0, 4),
        zone=st.sampled_from(["", "y", "z"]),
        rack=st.sampled_from(["1", "2"]),
        standing=st.sampled_from(Standing),
    )
    def put(self, name: str, cpus: int, cards: int, zone: str, rack: str, standing: Standing) -> None:
        labels = {"rack": rack} | ({"zone": zone} if zone else {})
        self.model[name] = node = node_of(name, cpus, cards, standing, **labels)
        self.at.put(node)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        del self.model[name]
        self.at.drop(name)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), standing=st.sampled_from(Standing))
    def stand(self, data: st.DataObject, standing: Standing) -> None:
        node = self.model[data.draw(st.sampled_from(sorted(self.model)))]
        node.standing = standing
        self.at.put(node)

    @precondition(lambda self: any(node.uses for node in self.model.values()))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        node = self.model[data.draw(st.sampled_from(sorted(n.node_id for n in self.model.values() if n.uses)))]
        node.give_back(data.draw(st.sampled_from(sorted(node.uses))))
        self.at.put(node)

    @rule(
        members=st.integers(1, 5),
        shape=st.sampled_from(SHAPES),
        together=st.sampled_from(TOGETHER),
        standings=st.sampled_from([OPEN, OPEN | {Standing.COMING}, ANY]),
        without=st.frozensets(st.sampled_from("abcdefgh"), max_size=3),
    )
    def assign(
        self,
        members: int,
        shape: Shape,
        together: Together,
        standings: frozenset[Standing],
        without: frozenset[str],
    ) -> None:
        members *= together.slice_size
        answer = self.at.assign(members, shape, together, standings, without)
        open_nodes = {name: node for name, node in self.model.items() if name not in without}
        assert isinstance(answer, Assignment) == fits_somewhere(open_nodes, members, shape, together, standings)
        if isinstance(answer, Reason):
            assert answer.detail or answer.fits < members
            return
        check_nearness(self.model, answer.nodes, together)
        for name in answer.nodes:
            node = open_nodes[name]
            assert node.standing in standings
            assert node.fits(shape)
            self.taken += 1
            node.take(f"m{self.taken}", shape, node.pick_cards(shape))
            self.at.put(node)

    @rule(shape=st.sampled_from(SHAPES), together=st.sampled_from(TOGETHER), members=st.integers(1, 8))
    def answers_are_those_of_a_fresh_look(self, shape: Shape, together: Together, members: int) -> None:
        fresh = topologies(*self.model.values())
        members *= together.slice_size
        for standings in (OPEN, ANY):
            answer = self.at.assign(members, shape, together, standings)
            assert answer == fresh.assign(members, shape, together, standings)

    @invariant()
    def counts_are_those_of_a_fresh_look(self) -> None:
        for shape in SHAPES[:3]:
            assert self.at.count(shape, ANY) == sum(domain_rooms(self.model, shape, ANY, "").values())


def fits_somewhere(
    nodes: dict[str, Node], members: int, shape: Shape, together: Together, standings: frozenset[Standing]
) -> bool:
    rooms = domain_rooms(nodes, shape, standings, together.level)
    if together.mode is REQUIRED:
        return max(rooms.values(), default=0) >= members
    slices = sum(room // together.slice_size for room in rooms.values())
    return slices * together.slice_size >= members


def check_nearness(nodes: dict[str, Node], chosen: tuple[str, ...], together: Together) -> None:
    def domain(name: str) -> str:
        labels = nodes[name].kind.traits
        zone, rack = labels.label("zone"), labels.label("rack")
        return {"": "", "zone": zone, "rack": f"{zone}/{rack}"}.get(together.level, name)

    if together.mode is REQUIRED:
        assert len({domain(name) for name in chosen}) == 1
    if together.slice_size > 1:
        for first in range(0, len(chosen), together.slice_size):
            assert len({domain(name) for name in chosen[first : first + together.slice_size]}) == 1


TestTopologyMachine = TopologyMachine.TestCase
TestTopologyMachine.settings = settings(settings.get_profile("property"))


@settings(settings.get_profile("property"))
@given(rooms=st.lists(st.integers(0, 6), min_size=1, max_size=8), wanted=st.integers(1, 30))
def test_best_fit_never_uses_more_domains_than_needed(rooms: list[int], wanted: int) -> None:
    at = topologies(
        *(node_of(f"n{place}", room, zone="z", rack=f"r{place}") for place, room in enumerate(rooms) if room)
    )
    answer = at.assign(wanted, ONE, Together(PREFERRED, "rack"), OPEN)
    if sum(rooms) < wanted:
        assert isinstance(answer, Reason)
        return
    needed, left = 0, wanted
    for room in sorted(rooms, reverse=True):
        if left > 0:
            needed, left = needed + 1, left - room
    assert len(spread(answer)) == needed


@settings(settings.get_profile("property"))
@given(
    cpus=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    together=st.sampled_from([one for one in TOGETHER if one.level != "zone"]),
    slices=st.integers(1, 4),
    lost=st.sets(st.integers(0, 15), min_size=1),
    taken=st.lists(st.integers(0, 5), max_size=6),
)
def test_lost_members_come_back_exactly_if_there_is_room_where_they_must_be(
    cpus: list[int], together: Together, slices: int, lost: set[int], taken: list[int]
) -> None:
    nodes = {f"n{place}": node_of(f"n{place}", cpu, zone="z", rack=str(place % 3)) for place, cpu in enumerate(cpus)}
    at = topologies(*nodes.values())
    members = slices * together.slice_size
    answer = at.assign(members, ONE, together, OPEN)
    lost = {rank for rank in lost if rank < members}
    if isinstance(answer, Reason) or not lost or len(lost) == members:
        return
    left = ["" if rank in lost else name for rank, name in enumerate(answer.nodes)]
    for name in [*filter(None, left), *(f"n{place}" for place in taken if f"n{place}" in nodes)]:
        if nodes[name].fits(ONE):
            take(at, name, 1, ONE)
    found = at.replace(tuple(left), ONE, together, OPEN)
    assert isinstance(found, Reason) != can_come_back(nodes, left, together)
    if isinstance(found, Reason):
        return
    for rank, name in zip(sorted(lost), found):
        left[rank] = name
        assert nodes[name].fits(ONE)
        take(at, name, 1, ONE)
    check_nearness(nodes, tuple(left), together)


def can_come_back(nodes: dict[str, Node], left: list[str], together: Together) -> bool:
    """Count all rooms by domain: torn slices, and required gangs, must stay in theirs."""

    def domain(name: str) -> str:
        return {"": "", "rack": nodes[name].kind.traits.label("rack")}.get(together.level, name)

    rooms: Counter[str] = Counter()
    for name, node in nodes.items():
        rooms[domain(name)] += node.count(ONE)
    size = together.slice_size
    if together.mode is REQUIRED:
        base = next(domain(name) for name in left if name)
        rooms = Counter({base: rooms[base]})
    whole = 0
    for first in range(0, len(left), size):
        part = left[first : first + size]
        homes = {domain(name) for name in part if name}
        if size > 1 and homes:
            rooms[homes.pop()] -= part.count("")
        else:
            whole += part.count("") // size
    return min(rooms.values(), default=0) >= 0 and sum(room // size for room in rooms.values()) >= whole
