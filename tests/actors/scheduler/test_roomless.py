"""What is lacking, as nodes are when it is told; each node is looked at once for all who may use the same ones."""

from __future__ import annotations

from levers9.actors.scheduler import events
from levers9.actors.scheduler.capacity import Standing, new_node
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Held, Request
from levers9.actors.scheduler.placement import new_placement
from levers9.actors.scheduler.roomless import NODES_LOOKED_AT, Able
from levers9.model.reasons import Excluded, HoldKind, Lack
from levers9.model.resources import Capacity, Shape

SIZE = Capacity(cpu_milli=4000, memory_mib=4096, gpu_count=4, gpu_type="A100")


class Scene:
    """A core with a node."""

    def __init__(self) -> None:
        self.core, self.now_s = Core(new_placement), 10.0
        self.tell(events.PoolSet(pool="p"))
        self.node("n")

    def node(self, name: str, standing: Standing = Standing.OPEN, size: Capacity = SIZE) -> None:
        self.tell(events.NodeSet(node_id=name, pool="p", capacity=size, standing=standing, why_closed="shut"))

    def tell(self, *told: events.Event) -> dict[str, Held]:
        self.now_s += 1.0
        decisions = [each for event in told for each in self.core.handle(event, self.now_s)]
        decisions += self.core.handle(events.Planned(), self.now_s)
        return {each.group: each for each in decisions if isinstance(each, Held)}

    def ask(self, *shapes: Shape) -> dict[str, Held]:
        return self.tell(events.Requested(requests=tuple(self.request(shape) for shape in shapes)))

    def request(self, shape: Shape) -> Request:
        name = f"{shape.cpu_milli}"
        return Request(request_id=name, group=name, workspace="w", members=(name,), shape=shape)


def test_those_who_ask_for_different_amounts_of_the_same_nodes_are_told_from_one_look() -> None:
    scene = Scene()
    held = scene.ask(*(Shape(cpu_milli=5000 + number, memory_mib=1) for number in range(20)))
    assert {name: one.reasons[0].lacks for name, one in held.items()} == {
        f"{5000 + number}": (Lack("cpu", 1000 + number),) for number in range(20)
    }
    assert len(scene.core.holding._rooms._seen) == 1


def test_cards_are_lacking_by_type_and_by_what_is_asked_of_each() -> None:
    scene = Scene()
    whole = Shape(cpu_milli=1, memory_mib=1, gpu_count=5)
    other = Shape(cpu_milli=2, memory_mib=1, gpu_count=2, gpu_types=("H100",))
    held = scene.ask(whole, other)
    assert [held[name].reasons[0].lacks for name in "12"] == [(Lack("gpu", 1000),), (Lack("H100", 2000),)]


def test_what_was_seen_of_nodes_does_not_outlive_what_was_told_of_it() -> None:
    scene = Scene()
    scene.ask(Shape(cpu_milli=6000, memory_mib=1))
    larger = Capacity(cpu_milli=5000, memory_mib=4096)
    held = scene.tell(events.NodeSet(node_id="m", pool="p", capacity=larger, standing=Standing.OPEN))
    assert held["6000"].reasons[0].lacks == (Lack("cpu", 1000),)
    scene.node("c", Standing.CLOSED, Capacity(cpu_milli=8000, memory_mib=4096))
    scene.tell(events.Ticked())
    reason = scene.core.holding._told["6000"][0]
    assert (reason.kind, reason.excluded) == (HoldKind.ROOM, (Excluded("c", "shut"),))


class TestSpreadCards:
    """Of four cards that are wanted on one node, two are free on each of two."""

    four = Shape(cpu_milli=1, memory_mib=1, gpu_count=4)

    def scene(self, *standings: Standing, cards: int = 2) -> Scene:
        scene = Scene()
        scene.tell(events.NodeGone(node_id="n"))
        some = Capacity(cpu_milli=4000, memory_mib=4096, gpu_count=cards, gpu_type="A100")
        for number, standing in enumerate(standings):
            scene.node(f"n{number}", standing, some)
        return scene

    @staticmethod
    def told(held: dict[str, Held]) -> tuple[tuple[Lack, ...], int, int]:
        reason = held["1"].reasons[0]
        return reason.lacks, reason.free, reason.most

    def test_what_is_free_is_told_and_how_much_of_it_one_node_lacks(self) -> None:
        held = self.scene(Standing.OPEN, Standing.OPEN).ask(self.four)
        assert self.told(held) == ((Lack("gpu", 2000),), 4000, 2000)

    def test_nodes_on_which_a_worker_could_be_started_count_as_well(self) -> None:
        held = self.scene(Standing.OFFERED, Standing.OPEN).ask(self.four)
        assert self.told(held) == ((Lack("gpu", 2000),), 4000, 2000)

    def test_and_what_they_have_of_all_else(self) -> None:
        held = self.scene(Standing.OFFERED, Standing.OFFERED).ask(self.four)
        assert self.told(held) == ((Lack("gpu", 2000),), 4000, 2000)

    def test_those_that_are_closed_do_not(self) -> None:
        held = self.scene(Standing.OPEN, Standing.CLOSED).ask(self.four)
        assert self.told(held) == ((Lack("gpu", 2000),), 0, 0)

    def test_of_cards_that_are_on_one_node_there_is_nothing_to_say(self) -> None:
        assert self.told(self.scene(Standing.OPEN).ask(self.four)) == ((Lack("gpu", 2000),), 0, 0)

    def test_cards_of_others_do_not_count(self) -> None:
        scene = self.scene(Standing.OPEN, Standing.OFFERED)
        scene.tell(events.PoolSet(pool="theirs", serves="somebody"))
        some = Capacity(cpu_milli=4000, memory_mib=4096, gpu_count=3, gpu_type="A100")
        scene.tell(events.NodeSet(node_id="m", pool="theirs", capacity=some, standing=Standing.OPEN))
        assert self.told(scene.ask(self.four)) == ((Lack("gpu", 2000),), 4000, 2000)

    def test_where_one_could_take_it_that_it_may_not_use_now_is_told_as_before(self) -> None:
        scene = self.scene(Standing.OPEN, cards=2)
        able = Able([scene.core.fleet.nodes["n0"], new_node("o", "p", SIZE, standing=Standing.OFFERED)])
        assert (able.lacks(self.four), able.spread(self.four)) == ((Lack("gpu", 2000),), (0, 0))

    def test_of_more_nodes_than_are_looked_at_nobody_says_how_many_cards_they_have(self) -> None:
        held = self.scene(*[Standing.OPEN] * NODES_LOOKED_AT).ask(self.four)
        assert self.told(held) == ((Lack("gpu", 2000),), 0, 0)
