"""The whole agent on a cluster in memory, in virtual time."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
import trio
from levers9_test_agent import SPEC, order, removal
from trio.testing import MockClock

from levers9.actors.agent import AgentActor, Place, events
from levers9.actors.agent.seen_pods import SeenPod
from levers9.errors import EpochSuperseded
from levers9.kube.kinds import JOBS, PODS
from levers9.kube.memory import MemoryCluster
from levers9.model.clusters import ClusterSpec
from levers9.model.ids import Chance
from levers9.model.nodes import NodeState
from levers9.wire.cluster import AgentReady, AgentSettings, ClusterReported, JobPhase, JobReport
from levers9.wire.letter import Letter
from levers9.wire.mailbox import Mailbox
from levers9.wire.message import Message

UNIX_S = 1_767_225_600.0


class World:
    """A cluster, its agent, and what the control plane hears."""

    def __init__(self, *, nodes: int = 2, part_s: float = 0.0) -> None:
        self.cluster = MemoryCluster(namespaces=("default", "levers9", "team"))
        for number in range(nodes):
            self.cluster.add_node(f"n{number + 1}", cards=4)
        self.heard: list[tuple[float, Message]] = []
        self.said = trio.lowlevel.ParkingLot()
        self.part_s = part_s  # how long the link takes for one message
        self.agent = self.new_agent()

    def new_agent(self, epoch: int = 1) -> AgentActor:
        began_s = trio.current_time()
        return AgentActor(
            kube=self.cluster,
            place=Place(cluster_id="c1", namespace="levers9"),
            say=self.say,
            epoch=epoch,
            version="1.0",
            chance=Chance(7),
            unix=lambda: UNIX_S + trio.current_time() - began_s,
        )

    async def say(self, message: Message) -> None:
        await trio.sleep(self.part_s)
        self.heard.append((trio.current_time(), message))
        self.said.unpark_all()

    @contextlib.asynccontextmanager
    async def living(self, agent: AgentActor | None = None) -> AsyncIterator[None]:
        agent = agent or self.agent
        async with trio.open_nursery() as nursery:
            await nursery.start(agent.run)
            agent.hear(events.LinkOpened())
            self.settle(agent)
            yield
            nursery.cancel_scope.cancel()

    @contextlib.asynccontextmanager
    async def ordered(self, worker_id: str) -> AsyncIterator[None]:
        """A living agent that has been asked for a worker, whose pod is there."""
        async with self.living():
            await self.seen()
            self.order(worker_id)
            await self.until(lambda: self.phase(worker_id) is JobPhase.PENDING)
            yield

    def settle(self, agent: AgentActor, spec: ClusterSpec = SPEC) -> None:
        settings = AgentSettings(cluster_id="c1", leader_epoch=1, spec=spec, stream_url="wss://plane")
        agent.hear(events.LetterCame(settings))

    def order(self, worker_id: str, node: str = "n1") -> None:
        self.agent.hear(order(worker_id, node, self.uid(node)))

    def uid(self, node: str) -> str:
        return next(one.uid for one in self.reports[-1].nodes if one.name == node)

    @property
    def reports(self) -> list[ClusterReported]:
        return [message for _, message in self.heard if isinstance(message, ClusterReported)]

    def standing(self, worker_id: str) -> JobReport | None:
        return next((one for one in self.reports[-1].jobs if one.worker_id == worker_id), None)

    async def until(self, condition: Callable[[], bool], within_s: float = 1.0) -> None:
        """Fails when it does not hold within so long."""
        with trio.fail_after(within_s):
            while not (self.reports and condition()):
                await self.said.park()

    async def seen(self) -> None:
        await self.until(lambda: not self.reports[-1].blind)

    def phase(self, worker_id: str) -> JobPhase | None:
        standing = self.standing(worker_id)
        return standing.phase if standing is not None else None

    def free(self, node: str) -> int:
        return next(one.free.gpu_count for one in self.reports[-1].nodes if one.name == node)


async def test_the_first_report_has_all_nodes_and_each_change_is_told_within_a_second(
    autojump_clock: MockClock,
) -> None:
    world = World()
    async with world.living():
        await world.seen()
        assert [(one.name, one.free.gpu_count) for one in world.reports[-1].nodes] == [("n1", 4), ("n2", 4)]
        world.cluster.add_pod("team/train", "n1", cards=3)
        await world.until(lambda: world.free("n1") == 1)
        world.cluster.end_pod("team/train")
        await world.until(lambda: world.free("n1") == 4)
        world.cluster.cordon("n2")
        await world.until(lambda: world.reports[-1].nodes[1].state is NodeState.CORDONED)
        world.cluster.remove_node("n2")
        await world.until(lambda: len(world.reports[-1].nodes) == 1)
    assert isinstance(world.heard[0][1], AgentReady)


async def test_a_report_comes_every_ten_seconds(autojump_clock: MockClock) -> None:
    world = World()
    async with world.living():
        await world.seen()
        await trio.sleep(100)
    times = [at for at, message in world.heard if isinstance(message, ClusterReported)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times[1:])]
    assert gaps
    assert all(9.9 < gap < 10.1 for gap in gaps)


async def test_a_large_report_is_finished_over_a_slow_link_before_a_newer_one_begins(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("levers9.actors.agent.reporting._PART_BYTES", 600)
    world = World(nodes=8, part_s=0.4)
    async with world.living():
        await world.until(lambda: world.reports[-1].parts > 2, 15.0)
        for number in range(60):
            world.cluster.add_pod(f"team/train-{number}", "n1", cpu="1m")
            await trio.sleep(0.5)
        parts = {one.sequence: one.parts for one in world.reports if one.parts > 1}
        heard = Counter(one.sequence for one in world.reports if one.parts > 1)
        *whole, _ = sorted(parts)
        assert [sequence for sequence in whole if heard[sequence] < parts[sequence]] == []
        assert len(whole) > 5
        assert whole[-1] > 2 * len(whole)  # those between were replaced by newer ones, and did not wait behind


async def test_an_order_becomes_a_worker_and_its_end_is_told(autojump_clock: MockClock) -> None:
    world = World()
    async with world.ordered("w1"):
        (pod,) = world.cluster.pods_of_job("w1", "levers9")
        assert pod.spec.node_name == "n1"
        assert world.free("n1") == 4
        world.cluster.start_pod(f"levers9/{pod.metadata.name}")
        await world.until(lambda: world.phase("w1") is JobPhase.RUNNING)
        world.cluster.end_pod(f"levers9/{pod.metadata.name}", 3)
        await world.until(lambda: world.phase("w1") is JobPhase.ENDED)
        told = world.standing("w1")
        assert told is not None
        assert (told.why, told.pod_uid) == ("It exited with code 3", pod.metadata.uid)
        world.cluster.remove_finished_jobs()
        await trio.sleep(20)
        assert world.phase("w1") is JobPhase.ENDED
        world.agent.hear(removal("w1"))
        await trio.sleep(2)
        world.agent.hear(removal("w1"))
        await world.until(lambda: world.phase("w1") is None)


async def test_a_worker_that_is_not_wanted_goes_with_its_job(autojump_clock: MockClock) -> None:
    world = World()
    async with world.ordered("w1"):
        world.agent.hear(removal("w1"))
        await world.until(lambda: world.phase("w1") is JobPhase.ENDED)
        assert world.cluster.all_of(JOBS, "levers9") == ()


async def test_a_job_whose_pod_has_not_started_is_removed_after_twenty_minutes(autojump_clock: MockClock) -> None:
    world = World()
    async with world.ordered("w1"):
        (pod,) = world.cluster.pods_of_job("w1", "levers9")
        world.cluster.fail_pull(f"levers9/{pod.metadata.name}")
        await trio.sleep(1190)
        assert len(world.cluster.all_of(JOBS, "levers9")) == 1
        await trio.sleep(25)
        assert world.cluster.all_of(JOBS, "levers9") == ()
        told = world.standing("w1")
        assert told is not None
        assert told.phase is JobPhase.ENDED
        assert "cannot be pulled" in told.why


async def test_a_later_life_of_the_agent_knows_the_workers_of_an_earlier_one(autojump_clock: MockClock) -> None:
    world = World()
    async with world.ordered("w1"):
        assert world.reports[-1].epoch == 1
    world.heard.clear()
    world.agent = world.new_agent(epoch=2)
    async with world.living():
        await world.until(lambda: world.phase("w1") is JobPhase.PENDING)
        assert world.reports[-1].epoch == 2
        world.order("w2")
        await world.until(lambda: world.phase("w2") is JobPhase.REFUSED)


async def test_a_job_without_a_pod_is_told_as_not_admitted(autojump_clock: MockClock) -> None:
    world = World()
    world.cluster.hold_pods()
    async with world.living():
        await world.seen()
        world.order("w1")
        await world.until(lambda: world.phase("w1") is JobPhase.NO_POD)
        await trio.sleep(45)
        told = world.standing("w1")
        assert told is not None
        assert "not admitted" in told.why


async def test_while_the_api_server_is_away_the_view_grows_old_and_nothing_is_thought_dead(
    autojump_clock: MockClock,
) -> None:
    world = World()
    async with world.ordered("w1"):
        world.cluster.go_away()
        await trio.sleep(30)
        report = world.reports[-1]
        assert 15 <= report.view_age_s <= 31
        assert "has not seen" in report.problem
        assert len(report.nodes) == 2
        assert world.phase("w1") is JobPhase.PENDING
        world.cluster.come_back()
        await world.until(lambda: world.reports[-1].view_age_s == 0.0, 32.0)
        assert world.reports[-1].problem == ""


async def test_an_order_while_the_api_server_is_away_is_carried_out_when_it_is_given_again(
    autojump_clock: MockClock,
) -> None:
    world = World()
    async with world.living():
        await world.seen()
        world.cluster.go_away()
        world.order("w1")
        await trio.sleep(15)
        assert world.phase("w1") is None
        world.cluster.come_back()
        world.order("w1")
        await world.until(lambda: world.phase("w1") is JobPhase.PENDING, 32.0)
        assert len(world.cluster.all_of(JOBS, "levers9")) == 1


async def test_a_job_that_was_made_without_our_hearing_of_it_is_made_once(autojump_clock: MockClock) -> None:
    world = World()
    async with world.living():
        await world.seen()
        world.cluster.lose_next_answer()
        world.order("w1")
        world.order("w1")
        await world.until(lambda: world.phase("w1") is JobPhase.PENDING)
        world.order("w1")
        await trio.sleep(12)
        assert len(world.cluster.all_of(PODS, "levers9")) == 1


async def test_a_job_of_the_same_name_that_is_not_ours_is_neither_taken_nor_deleted(autojump_clock: MockClock) -> None:
    world = World()
    await world.cluster.create(JOBS, {"metadata": {"name": "w1"}, "spec": {"template": {}}}, "levers9")
    async with world.living():
        await world.seen()
        world.order("w1")
        await world.until(lambda: world.phase("w1") is JobPhase.REFUSED)
        world.agent.hear(removal("w1"))
        await trio.sleep(15)
        assert world.cluster.find(JOBS, "w1", "levers9") is not None


async def test_a_right_that_is_missing_is_named(autojump_clock: MockClock) -> None:
    world = World()
    world.cluster.forbid("list", "pods")
    async with world.living():
        await world.until(lambda: "pods of all namespaces" in world.reports[-1].problem, 12.0)
        assert world.reports[-1].blind
        world.cluster.permit("list", "pods")
        await world.until(lambda: not world.reports[-1].blind, 35.0)


async def test_a_job_that_the_api_server_forbids_is_refused(autojump_clock: MockClock) -> None:
    world = World()
    world.cluster.forbid("create", "jobs")
    async with world.living():
        await world.seen()
        world.order("w1")
        await world.until(lambda: world.phase("w1") is JobPhase.REFUSED)


@pytest.mark.parametrize("cleanly", [True, False])
async def test_watches_that_are_cut_at_every_event_lose_nothing(autojump_clock: MockClock, cleanly: bool) -> None:
    world = World()
    async with world.living():
        await world.seen()

        async def step(change: Callable[[], object], seen: Callable[[], bool]) -> None:
            change()
            world.cluster.cut_watches(cleanly=cleanly)
            await world.until(seen, 35.0)

        pod = "team/train"
        await step(lambda: world.cluster.add_pod(pod, "n1", cards=2), lambda: world.free("n1") == 2)
        await step(lambda: world.order("w1", "n2"), lambda: world.phase("w1") is JobPhase.PENDING)
        own = f"levers9/{world.cluster.pods_of_job('w1', 'levers9')[0].metadata.name}"
        await step(lambda: world.cluster.start_pod(own), lambda: world.phase("w1") is JobPhase.RUNNING)
        await step(lambda: world.cluster.remove_pod(pod), lambda: world.free("n1") == 4)
        world.cluster.compact()
        await step(lambda: world.cluster.end_pod(own), lambda: world.phase("w1") is JobPhase.ENDED)
        await step(lambda: world.cluster.remove_node("n1"), lambda: len(world.reports[-1].nodes) == 1)


async def test_inside_a_brain_it_lives_on_a_mailbox(autojump_clock: MockClock) -> None:
    world = World()
    mailbox = Mailbox("agent/c1")
    async with trio.open_nursery() as nursery:
        await nursery.start(world.agent.serve, mailbox)
        settings = AgentSettings(cluster_id="c1", leader_epoch=1, spec=SPEC)
        mailbox.post_nowait(Letter(settings, source="clusters", target="agent/c1"))
        await world.seen()
        statistics = world.agent.statistics()
        assert statistics.reports == len(world.reports)
        assert [name for name, _ in statistics.views] == ["nodes", "pods", "jobs"]
        nursery.cancel_scope.cancel()


def test_what_is_kept_of_a_pod_is_what_it_takes() -> None:
    plain = {
        "metadata": {"name": "p", "uid": "u", "namespace": "team", "labels": {"a": "b"}},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "1"}}}], "priority": 5},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }
    pod = msgspec.convert(plain, SeenPod)
    assert pod.uses is not None
    assert (pod.uses.cpu_milli, pod.spec.containers, pod.metadata.labels, pod.spec.priority) == (1000, (), {}, 5)
    own = msgspec.convert(plain | {"metadata": {"labels": {"app.kubernetes.io/managed-by": "levers9"}}}, SeenPod)
    assert own.uses is None
    assert own.spec.containers


async def test_it_ends_once_a_newer_life_has_reported(autojump_clock: MockClock) -> None:
    world = World()
    settings = AgentSettings(cluster_id="c1", leader_epoch=1, spec=SPEC, agent_epoch=1_000_000)
    with pytest.RaisesGroup(EpochSuperseded, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(world.agent.run)
            world.agent.hear(events.LinkOpened())
            world.agent.hear(events.LetterCame(msgspec.structs.replace(settings, agent_epoch=0)))
            await world.seen()
            world.agent.hear(events.LetterCame(settings))
            await trio.sleep_forever()
