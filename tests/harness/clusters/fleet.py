"""A cluster of a world: its API server, its machines, and the Deployment that keeps an agent running there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from levers9_world.functions import packed
from levers9_world.journal import seed_of
from levers9_world.machines import Process

from levers9 import __version__
from levers9.actors.agent import events
from levers9.actors.agent.actor import AgentActor
from levers9.actors.agent.jobs import Place
from levers9.actors.worker.events import Launch
from levers9.actors.worker.runtime.simulated import Ran
from levers9.errors import BrokenByPeer, ClosedByUs, EpochSuperseded, Refused
from levers9.model.clusters import NAMESPACE, ClusterSpec
from levers9.model.ids import Chance
from levers9.model.states import End
from levers9.wire.cluster import ClusterJoined
from levers9.wire.codec import Envelope, pack, unpack
from levers9.wire.link import DialledLink, Lost, Opened, PeerBack, PeerSilent, Received
from levers9.wire.message import Message
from levers9.wire.work import AttemptOrder, AttemptResult

from .machines import Api, Machines
from .plan import ClusterPlan, WorkPlan, chosen

if TYPE_CHECKING:
    from .world import ClusterWorld

RESTARTS_WITHIN_S: Final = 5.0  # a Deployment's pod that has ended
TWO_FOR_S: Final = 30.0
REMEMBERED: Final = 32  # of what an agent said


class Conduct:
    """How long calls take, by the kind of work. Each (task, attempt, rank) draws for itself."""

    def __init__(self, seed: int, work: tuple[WorkPlan, ...]) -> None:
        self._seed = seed
        self._work = {one.name: one for one in work}

    def loads(self, launch: Launch) -> bool:
        """All code can be loaded."""
        return True

    def ran(self, launch: Launch, order: AttemptOrder) -> Ran:
        """How this attempt goes: well."""
        work = self._work[launch.spec.name]
        chance = Chance(seed_of(self._seed, "call", order.task_id, order.attempt, launch.rank))
        duration_s = chance.uniform(work.least_s, work.most_s)
        result = AttemptResult(order.task_id, order.attempt, End.OK, True, packed(None), None, duration_s)
        return Ran(duration_s=duration_s, result=result)


class Meddler:
    """Stands between agents and their links: holds back what they say, and says once more what they said."""

    def __init__(self) -> None:
        self._said: list[tuple[AgentLink, Envelope]] = []
        self.holds_until_s = 0.0

    def heard(self, link: AgentLink, envelopes: tuple[Envelope, ...]) -> None:
        """An agent says something."""
        self._said += [(link, envelope) for envelope in envelopes]
        del self._said[:-REMEMBERED]

    def hold_back(self, for_s: float) -> None:
        """What is said from now on until then arrives late, and after what is said later."""
        self.holds_until_s = trio.current_time() + for_s

    async def say_again(self, luck: float) -> None:
        """Much of what was said, the newest first."""
        for link, envelope in reversed(self._said[: 1 + int(luck * len(self._said))]):
            await link.late(envelope)


class AgentLink(DialledLink):
    """An agent's link, with a meddler on it."""

    meddler: Meddler
    nursery: trio.Nursery

    async def send(self, *envelopes: Envelope) -> None:
        """As a link does, or later."""
        self.meddler.heard(self, envelopes)
        if trio.current_time() < self.meddler.holds_until_s:
            for_s = self.meddler.holds_until_s - trio.current_time()
            for envelope in envelopes:
                self.nursery.start_soon(self._send_later, envelope, for_s)
            await trio.lowlevel.checkpoint()
        else:
            await super().send(*envelopes)

    def send_nowait(self, *envelopes: Envelope) -> None:
        """As a link does, or later."""
        self.meddler.heard(self, envelopes)
        if trio.current_time() < self.meddler.holds_until_s:
            for_s = self.meddler.holds_until_s - trio.current_time()
            for envelope in envelopes:
                self.nursery.start_soon(self._send_later, envelope, for_s)
        else:
            super().send_nowait(*envelopes)

    async def _send_later(self, envelope: Envelope, for_s: float) -> None:
        await trio.sleep(for_s + 0.5)  # after something that was said later
        await self.late(envelope)

    async def late(self, envelope: Envelope) -> None:
        """Say it now, if there is still anybody who listens."""
        try:
            await super().send(envelope)
        except (BrokenByPeer, ClosedByUs, Refused):
            return


async def _say(link: AgentLink, chance: Chance, message: Message) -> None:
    """What an agent says; once its link is over, nobody hears it."""
    try:
        await link.send(Envelope(chance.id("m"), "agent", message.receiver, pack(message)))
    except (BrokenByPeer, ClosedByUs, Refused):
        return


async def _listen(link: AgentLink, actor: AgentActor) -> None:
    """What an agent hears. Raises `Refused` when nobody wants it."""
    while True:
        match await link.next_event():
            case Received(envelopes=envelopes):
                for envelope in envelopes:
                    actor.hear(events.LetterCame(unpack(envelope.payload)))
            case Opened(resumed=resumed):
                actor.hear(events.LinkOpened(resumed))
            case PeerBack():
                actor.hear(events.LinkOpened(resumed=True))
            case Lost() | PeerSilent():
                actor.hear(events.LinkQuiet())


class Cluster:
    """One cluster that a workspace attaches."""

    def __init__(self, world: ClusterWorld, number: int, plan: ClusterPlan) -> None:
        self.world = world
        self.number = number
        self.plan = plan
        self.namespace = NAMESPACE
        self.api = Api(f"cluster-{number}", world.clock)
        self.machines = Machines(self, self.api)
        self.meddler = Meddler()
        self.cluster_id = self.pool = self._token = ""
        self.left = False
        self._agents: list[Process] = []
        self._lives = 0
        self._chance = world.chance("agents", number)

    @property
    def spec(self) -> ClusterSpec:
        """What is said of it when it joins."""
        return ClusterSpec(name=self.plan.name, gpu_type=self.plan.gpu_type, namespace=self.namespace)

    def joined(self, joined: ClusterJoined) -> None:
        """It is attached, under a token that its agent has from its next start on."""
        self.cluster_id, self.pool, self._token = joined.cluster.cluster_id, joined.cluster.pool, joined.token
        self.left = False

    async def keep_agent(self) -> None:
        """What the Deployment does: start the agent again whenever it has ended."""
        while True:
            if not self.left:
                await self._run_agent()
            await trio.sleep(self._chance.uniform(0.5, RESTARTS_WITHIN_S))

    async def _run_agent(self) -> None:
        self._lives += 1
        process = Process(self.world, f"agent-{self.number}-{self._lives}")
        self._agents.append(process)
        if self.plan.unordered:
            self.world.network.unordered[process.name] = self.world.chance("order", process.name)
        await process.run(partial(self._agent, process))
        self._agents.remove(process)

    async def _agent(self, process: Process) -> int:
        """One life of an agent."""
        chance = self.world.chance("agent", process.name)
        cluster_id, token = self.cluster_id, self._token
        link = AgentLink(
            name=f"agent/{cluster_id}",
            dial=partial(self.world.dial_gateway, "agent", cluster_id, token, process=process.name),
            chance=chance,
        )
        link.meddler, link.nursery = self.meddler, self.world.nursery
        actor = AgentActor(
            kube=self.api,
            place=Place(cluster_id=cluster_id, namespace=self.namespace),
            say=partial(_say, link, chance),
            epoch=int(self.world.clock() * 1000),
            version=__version__,
            chance=chance,
            unix=self.world.clock,
        )
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(link.run)
                nursery.start_soon(actor.run)
                await _listen(link, actor)
        except* (Refused, EpochSuperseded) as errors:
            self.world.journal.note("agent refused", process.name, repr(errors.exceptions))
        return 1

    @property
    def agents(self) -> tuple[Process, ...]:
        """Those that live."""
        return tuple(self._agents)

    async def have_two_agents(self, luck: float) -> None:
        """A rollout that overlaps: for a while there is a second one, and then one of them ends."""
        self.world.nursery.start_soon(self._run_agent)
        await trio.sleep(TWO_FOR_S)
        if len(self._agents) > 1:
            chosen(self._agents, luck).kill()

    def restart_agents(self) -> None:
        """As a person does that applies another token."""
        for process in self._agents:
            process.kill()
