"""The scheduler, pools and the guard together: whatever happens, they soon have no more to say to each other.

And in the end all runs that pools may start workers for. Each hop, every actor takes in all that it was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from levers9_test_deciding import Truth, decide, numbered, numbered_tokens, spec_of

from levers9.actors.pool import GuardSettings, PoolPolicy, PoolSettings
from levers9.actors.pool.guard import GuardPolicy
from levers9.actors.pool.settings import declared
from levers9.actors.scheduler import SchedulerPolicy
from levers9.actors.scheduler.capacity import Standing
from levers9.model.nodes import NodeOffer, NodeState, Traits
from levers9.model.reasons import HoldKind
from levers9.model.resources import Capacity, Shape
from levers9.model.states import ContainerState, End
from levers9.store import operations as ops
from levers9.wire import control, scheduling
from levers9.wire.letter import Letter
from levers9.wire.message import Message, Send
from levers9.wire.operating import TellWorkers, WorkerWish

HOPS = 40  # after which they are quiet
SMALL = Capacity(cpu_milli=1000, memory_mib=1000)
LARGE = Capacity(cpu_milli=2000, memory_mib=2000)
CARDS = Capacity(cpu_milli=2000, memory_mib=2000, gpu_count=2, gpu_type="A100")
ONE = Shape(cpu_milli=1000, memory_mib=100)
TWO = Shape(cpu_milli=2000, memory_mib=100)
CARD = Shape(cpu_milli=500, memory_mib=100, gpu_count=1)
SHAPES = (ONE, TWO, CARD, msgspec.structs.replace(ONE, pool="second"), Shape(cpu_milli=300, memory_mib=100))
OFF = GuardSettings(pending=-1, per_minute=-1)


class Stage:
    """The actors, what is on its way to each of them, and a world that starts workers and containers as it is told."""

    def __init__(self, *pools: PoolSettings, guard: GuardSettings = OFF) -> None:
        self.truth, self.now_s = Truth(), 1000.0
        self.settings = {pool.name: pool for pool in pools}
        self.scheduler = SchedulerPolicy(numbered(), numbered_tokens(), tuple(map(declared, pools)))
        new_id, new_token = numbered(), numbered_tokens()
        self.pools = {f"pool/{pool.name}": PoolPolicy(pool, new_id, new_token) for pool in pools}
        self.actors: dict[str, Any] = {"scheduler": self.scheduler, "guard": GuardPolicy(guard), **self.pools}
        self.inbox: dict[str, list[Letter]] = {address: [] for address in self.actors}
        self.pool_of: dict[str, str] = {}  # of each worker whose process runs
        self.reported: dict[str, None] = {}
        self.runs: dict[str, str] = {}  # containers, and on which worker
        self.shapes: dict[str, tuple[str, Shape]] = {}  # of each container that was asked for and has not ended
        self.kinds: dict[str, list[HoldKind]] = {}  # why those of a stub wait
        self._names = count(1)
        for pool in self.pools.values():
            pool.load(())
        self.settle()

    def post(self, source: str, target: str, message: Message) -> None:
        if target in self.inbox:
            self.inbox[target].append(Letter(message, source=source, target=target))

    # Hops

    def settle(self) -> int:
        """Hop until nobody has anything to say; returns how often that was."""
        for hops in range(HOPS):
            if not self.hop():
                return hops
        raise AssertionError(f"they still talk after {HOPS} hops: {self.inbox}")

    def hop(self) -> bool:
        """Whether anybody had anything to say."""
        said: list[tuple[str, Send]] = []
        for address, actor in self.actors.items():
            letters, self.inbox[address] = self.inbox[address], []
            for plan, sends in decide(actor, self.truth, letters, self.now_s):
                said += [(address, send) for send in sends]
                for start in getattr(plan, "starts", ()):
                    self.pool_of[start.worker_id] = address
                    started = scheduling.WorkerStarted(worker_id=start.worker_id, handle="h", at_s=self.now_s)
                    self.post("spawner", address, started)
        for address, send in said:
            self.post(address, send.target, send.message)
            self.play(send)
        return bool(said) or any(self.inbox.values())

    def play(self, send: Send) -> None:
        """What `tasks` and workers do when they hear this."""
        worker_id = send.target.removeprefix("worker/")
        match send.message:
            case scheduling.ContainerHeld(stub_id=stub_id, reasons=reasons):
                self.kinds[stub_id] = [reason.kind for reason in reasons]
            case scheduling.ContainerGone(container_id=container_id):
                self.shapes.pop(container_id, None)
            case scheduling.StartContainer(container_id=container_id) if worker_id in self.pool_of:
                self.runs[container_id] = worker_id
                ready = scheduling.ContainerReady(container_id=container_id, window=1)
                self.post(send.target, "scheduler", ready)
            case scheduling.StopContainer(container_id=container_id) if container_id in self.runs:
                self.end(container_id)
            case scheduling.StopWorker() if worker_id in self.pool_of:
                self.exit(worker_id, expected=True)

    # The world

    def ask(self, *shapes: Shape, workspace: str = "w") -> list[str]:
        names = []
        for shape in shapes:
            container_id, stub_id = f"c{next(self._names)}", f"{workspace} {SHAPES.index(shape)}"
            spec = spec_of(stub_id, shape=shape)
            row = ops.ContainerRow(
                container_id=container_id,
                stub_id=stub_id,
                workspace_id=workspace,
                state=ContainerState.REQUESTED,
                requested_at_s=self.now_s,
            )
            self.truth.commit([ops.PutContainers(containers=(row,))])
            request = scheduling.RequestContainers(
                stub_id=stub_id, workspace_id=workspace, spec=spec, container_ids=(container_id,)
            )
            self.post("tasks", "scheduler", request)
            self.shapes[container_id] = (workspace, shape)
            names.append(container_id)
        return names

    def release(self, container_id: str) -> None:
        message = scheduling.ReleaseContainers(container_ids=(container_id,), why="idle")
        self.post("tasks", "scheduler", message)
        self.shapes.pop(container_id, None)

    def end(self, container_id: str) -> None:
        worker_id = self.runs.pop(container_id)
        message = scheduling.ContainerEnded(container_id=container_id, end=End.OK)
        self.post(f"worker/{worker_id}", "scheduler", message)

    def report(self, *worker_ids: str) -> None:
        """Workers that have started report, all of them unless they are named."""
        for worker_id in worker_ids or tuple(self.pool_of):
            if worker_id in self.reported and not worker_ids:
                continue
            self.reported[worker_id] = None
            row = self.truth.tables.workers[worker_id]
            here = tuple(
                scheduling.ContainerReport(name, "", ContainerState.READY, 1)
                for name, where in self.runs.items()
                if where == worker_id
            )
            message = scheduling.WorkerReported(
                worker_id=worker_id, pool=row.pool, epoch=1, capacity=row.capacity, containers=here
            )
            self.post(f"worker/{worker_id}", "scheduler", message)

    def quiet(self, worker_id: str) -> None:
        self.post("gateway/g", "scheduler", control.PeerQuiet(peer=f"worker/{worker_id}", closed=False))

    def wish(self, worker_id: str, wish: WorkerWish) -> None:
        self.post("gateway/g", "scheduler", TellWorkers(worker_ids=(worker_id,), wish=wish))

    def exit(self, worker_id: str, expected: bool = False) -> None:
        """Its process ends, and what it ran."""
        self.runs = {name: where for name, where in self.runs.items() if where != worker_id}
        message = scheduling.WorkerExited(worker_id=worker_id, evidence="it exited with 1", expected=expected)
        self.post("spawner", self.pool_of.pop(worker_id), message)

    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        for actor in self.actors.values():
            actor.tick(self.now_s)

    # What can be asked

    def where(self, container_id: str) -> str:
        """The pool in which it runs, "" for none."""
        worker_id = self.runs.get(container_id, "")
        return self.truth.tables.workers[worker_id].pool if worker_id else ""

    def waiting(self) -> list[str]:
        return [name for name in self.shapes if name not in self.runs]

    def could_run(self, container_id: str) -> str:
        """The pool that should run it: it has room, or may have one more worker, on which it would have."""
        workspace, shape = self.shapes[container_id]
        for pool in self.settings.values():
            if pool.serves not in ("", workspace) or shape.pool not in ("", pool.name):
                continue
            nodes = self.scheduler.core.fleet.pools[pool.name].nodes.values()
            if any(node.standing is Standing.OPEN and node.fits(shape) for node in nodes):
                return pool.name
            live = [worker_id for worker_id, where in self.pool_of.items() if where == f"pool/{pool.name}"]
            taken = [self.truth.tables.workers[worker_id].traits.node for worker_id in live]
            free = [one for one in pool.offers if not one.traits.node or one.traits.node not in taken]
            able = [one for one in free if one.state is NodeState.READY and one.capacity.fits(shape)]
            if able and len(live) < pool.max_workers:
                return pool.name
        return ""


def pool(name: str, worker: Capacity | None, max_workers: int, rank: int, **more: Any) -> PoolSettings:
    return PoolSettings(name=name, worker=worker, max_workers=max_workers, rank=rank, **more)


def two_pools() -> Stage:
    return Stage(pool("first", SMALL, 1, 0), pool("second", SMALL, 2, 1))


def in_order(stage: Stage) -> None:
    stage.settle()
    stage.report()
    stage.settle()


class TestFailOver:
    def test_when_the_first_pool_has_all_its_workers_the_second_one_orders_and_all_are_quiet(self) -> None:
        stage = two_pools()
        first, second, third, fourth = stage.ask(ONE, ONE, ONE, ONE)
        in_order(stage)
        in_order(stage)
        assert [stage.where(name) for name in (first, second, third)] == ["first", "second", "second"]
        assert stage.waiting() == [fourth]
        assert HoldKind.MAXIMUM in stage.kinds["w 0"]

    @pytest.mark.parametrize("later", [1, 2, 3])
    def test_it_makes_no_difference_that_the_first_one_was_full_before(self, later: int) -> None:
        stage = two_pools()
        stage.ask(ONE)
        in_order(stage)
        stage.ask(*[ONE] * later)
        in_order(stage)
        assert len(stage.runs) == min(3, 1 + later)

    def test_the_first_one_is_asked_again_once_a_worker_of_it_has_gone(self) -> None:
        stage = two_pools()
        stage.ask(ONE, ONE, ONE, ONE)
        in_order(stage)
        in_order(stage)
        (gone,) = [name for name in stage.pool_of if stage.pool_of[name] == "pool/first"]
        stage.tick(40.0)
        stage.exit(gone)
        in_order(stage)
        assert sorted(map(stage.where, stage.runs)) == ["first", "second", "second"]

    def test_while_the_first_one_backs_off_the_second_one_takes_its_place(self) -> None:
        stage = two_pools()
        (name,) = stage.ask(ONE)
        stage.settle()
        for _ in range(5):
            if "pool/first" in stage.pool_of.values():
                stage.exit(next(iter(stage.pool_of)))
            stage.settle()
        in_order(stage)
        assert stage.where(name) == "second"

    def test_room_is_kept_for_who_waits_and_not_for_who_has_had_it(self) -> None:
        node = NodeOffer(capacity=CARDS, traits=Traits(node="a"), state=NodeState.READY)
        stage = Stage(pool("third", None, 1, 0, nodes=(node,)))
        first, second, third = stage.ask(CARD, CARD, CARD)
        in_order(stage)
        assert list(stage.runs) == [first, second]
        stage.tick(400.0)
        stage.end(first)
        in_order(stage)
        assert stage.where(third) == "third"

    def test_a_worker_that_was_given_up_and_runs_on_counts_for_its_pool_until_it_has_ended(self) -> None:
        stage = two_pools()
        stage.ask(ONE)
        in_order(stage)
        (worker_id,) = stage.pool_of
        stage.quiet(worker_id)
        stage.settle()
        for _ in range(400):
            stage.tick(1.0)
            stage.hop()
        (again,) = stage.ask(ONE)
        in_order(stage)
        assert stage.where(again) == "second"
        assert worker_id in stage.pool_of


class ProvidingMachine(RuleBasedStateMachine):
    @initialize(
        most=st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3)),
        served=st.sampled_from(["", "w"]),
        guarded=st.booleans(),
    )
    def begin(self, most: tuple[int, int, int], served: str, guarded: bool) -> None:
        ready = NodeState.READY
        nodes = tuple(
            NodeOffer(capacity=size, traits=Traits(node=name), state=state)
            for name, size, state in (("a", CARDS, ready), ("b", LARGE, ready), ("c", CARDS, NodeState.CORDONED))
        )
        self.stage = Stage(
            pool("first", SMALL, most[0], 0),
            pool("second", LARGE, most[1], 1, serves=served, min_workers=most[1] - 1),
            pool("third", None, most[2], 2, nodes=nodes),
            guard=GuardSettings(pending=2, per_minute=5) if guarded else OFF,
        )

    def one_of(self, data: st.DataObject, names: list[str], do: Callable[[str], None]) -> None:
        if names:
            do(data.draw(st.sampled_from(names)))

    @rule(shapes=st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4), workspace=st.sampled_from(["w", "v"]))
    def containers_are_asked_for(self, shapes: list[Shape], workspace: str) -> None:
        self.stage.ask(*shapes, workspace=workspace)

    @rule(data=st.data())
    def one_ends(self, data: st.DataObject) -> None:
        self.one_of(data, sorted(self.stage.runs), self.stage.end)

    @rule(data=st.data())
    def one_is_not_wanted_any_more(self, data: st.DataObject) -> None:
        self.one_of(data, sorted(self.stage.shapes), self.stage.release)

    @rule(data=st.data())
    def a_worker_falls_silent(self, data: st.DataObject) -> None:
        self.one_of(data, sorted(self.stage.reported.keys() & self.stage.pool_of.keys()), self.stage.quiet)

    @rule(data=st.data())
    def a_worker_reports(self, data: st.DataObject) -> None:
        self.one_of(data, sorted(self.stage.pool_of), self.stage.report)

    @rule(data=st.data(), wish=st.sampled_from([WorkerWish.CORDON, WorkerWish.UNCORDON]))
    def a_worker_is_cordoned_or_not(self, data: st.DataObject, wish: WorkerWish) -> None:
        self.one_of(data, sorted(self.stage.pool_of), lambda name: self.stage.wish(name, wish))

    @rule(data=st.data(), expected=st.booleans())
    def a_worker_ends(self, data: st.DataObject, expected: bool) -> None:
        self.one_of(data, sorted(self.stage.pool_of), lambda name: self.stage.exit(name, expected))

    @rule(hops=st.integers(1, 4))
    def letters_are_read(self, hops: int) -> None:
        for _ in range(hops):
            self.stage.hop()

    @rule()
    def they_settle_and_workers_come(self) -> None:
        in_order(self.stage)

    @rule(seconds=st.sampled_from([0.5, 5.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.stage.settle()
        self.stage.tick(seconds)

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        stage = self.stage
        for worker_id in list(stage.pool_of):  # who was given up has ended by now
            if worker_id not in stage.scheduler.ledger.hosts:
                stage.exit(worker_id)
            elif worker_id in stage.reported:
                stage.report(worker_id)
            stage.wish(worker_id, WorkerWish.UNCORDON)
        for _ in range(4):
            in_order(stage)
            in_order(stage)
            stage.tick(61.0)
        in_order(stage)
        assert {name: stage.could_run(name) for name in stage.waiting() if stage.could_run(name)} == {}


TestProviding = ProvidingMachine.TestCase
TestProviding.settings = settings(settings.get_profile("property"), stateful_step_count=8)
TestProviding = pytest.mark.slow(TestProviding)
