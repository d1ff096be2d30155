"""What every world has: one control plane, brain and gateway, over a network and a store in memory, by one seed."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import structlog
import trio
import trio._core._run
import trio.abc
import trio.lowlevel
import trio.testing

from levers9.actors.gateway.gateway import Gateway
from levers9.actors.gateway.gateway import Surroundings as GatewaySurroundings
from levers9.actors.gateway.questions import Questions
from levers9.actors.gateway.streams import Knock
from levers9.actors.pool import PoolSettings, Processes
from levers9.daemons.brain import Brain
from levers9.daemons.orders import BrainOrders, gateway_ipc
from levers9.daemons.settings import Settings
from levers9.errors import BrokenByPeer, StoreUnavailable, SupervisorGaveUp
from levers9.model.ids import Chance
from levers9.model.states import TokenKind
from levers9.model.tokens import make_token
from levers9.store.wakeups import MemoryWakeups
from levers9.wire.carrier import Carrier
from levers9.wire.carriers.memory import MemoryCable
from levers9.wire.post import Post

from .journal import Journal, seed_of
from .machines import Process
from .network import Network, Serve
from .truth import Handle, Truth

BASE_S: Final = 1_800_000_000.0  # Unix time at the beginning of a world
SILENCE_S: Final = 20.0
STEPS_MAX: Final = 10_000  # of all tasks at one moment
SHRINKS_FOR_S: Final = 45.0
RUN_DIR: Final = "/run/world"
LOOKS_EVERY_S: Final = 5.0  # whether a world is at rest


class Violation(AssertionError):
    """A world broke an invariant."""


class Stillness(trio.abc.Instrument):
    """Looks whether virtual time goes on: actors that answer each other at once, without end, would stop it."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._token = trio.lowlevel.current_trio_token()
        self._steps = 0
        self._looked_at_s = -1.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        self._steps += 1
        if self._steps % STEPS_MAX:
            return
        now_s = trio.current_time()
        if now_s == self._looked_at_s:
            self._token.run_sync_soon(self._violated, f"time stands still: {task.name} and others go on without end")
        self._looked_at_s = now_s


class ControlPlane:
    """A brain and a gateway that can be killed, and what is between them and everybody else.

    A world says how the control plane is set up (`_settings`) and what runs its pools' workers (`_machines`).
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.violations: list[str] = []
        self.journal = Journal(trio.current_time)
        self.truth = Truth(self.journal, self.chance("store"), self.violated)
        self.network = Network(self.journal, self.chance("network"), self.violated)
        self.admin_token = make_token(TokenKind.CLUSTER_ADMIN, self.chance("admin").secret(32))
        self.replica_token = make_token(TokenKind.REPLICA, self.chance("replica").secret(32))
        self.nursery: trio.Nursery
        self.brain: Process | None = None
        self.gateway: Process | None = None
        self.questions: Questions | None = None  # what HTTP handlers of the gateway that lives ask by
        self._brains = self._gateways = 0
        self._leader_known = trio.Event()
        self._scope = trio.CancelScope()

    def chance(self, *part: object) -> Chance:
        """The chance of one part."""
        return Chance(seed_of(self.seed, *part))

    def watch_time(self) -> None:
        """From now on a world whose time stands still is a broken one."""
        trio.lowlevel.add_instrument(Stillness(self.violated))

    @staticmethod
    def clock() -> float:
        """Unix seconds."""
        return BASE_S + trio.current_time()

    def violated(self, what: str) -> None:
        """An invariant is broken: the world ends."""
        self.violations.append(f"at {trio.current_time():.3f} s: {what}")
        self._scope.cancel(reason=what)

    async def live(self, life: Callable[[], Awaitable[None]]) -> None:
        """Live this life, once there is a leader. Raises `Violation` where an invariant was broken."""
        self.watch_time()
        with self._scope:
            async with trio.open_nursery() as self.nursery:
                self.nursery.start_soon(self._keep, "brain", self._start_brain)
                self.nursery.start_soon(self._keep, "gateway", self._start_gateway)
                await self._leader_known.wait()
                await life()
                self.nursery.cancel_scope.cancel()
        if self.violations:
            raise Violation("; ".join(self.violations))

    async def until_at_rest(self, within_s: float) -> None:
        """Until nothing is left to happen. What is so after `within_s` breaks an invariant."""
        deadline = trio.current_time() + within_s
        while unrest := self._unrest():
            if trio.current_time() > deadline:
                self.violated(f"I7: no rest: {unrest[:8]}")
            await trio.sleep(LOOKS_EVERY_S)

    def _unrest(self) -> list[str]:
        """What keeps this world from being at rest, in words."""
        return self.truth.unrest()

    # Processes

    async def _keep(self, name: str, start: Callable[[Process], Awaitable[int]]) -> None:
        """What the root does: start a process again whenever it has ended."""
        chance = self.chance("root", name)
        for number in range(1_000):
            process = Process(self, f"{name}-{number}")
            setattr(self, name, process)
            await process.run(partial(start, process))
            await trio.sleep(chance.uniform(0.05, 1.0))

    async def _start_brain(self, process: Process) -> int:
        self._brains += 1
        orders = BrainOrders(
            settings=self._settings(),
            root_pid=1,
            worker_urls=(),
            worker_http_url="",
            replica_id="replica-0",
            replica_token=self.replica_token,
            admin_token=self.admin_token,
        )
        brain = Brain(
            orders=orders,
            store=Handle(self.truth, lambda: process.dead),
            chance=self.chance("brain", self._brains),
            clock=self.clock,
            machines=self._machines,
            listen=partial(self._listen_brain, process),
        )
        try:
            await brain.run()
        except SupervisorGaveUp as error:
            self.journal.note("gave up", str(error))
        return 1

    def _settings(self) -> Settings:
        """What the control plane is told."""
        return Settings(run_dir=RUN_DIR)

    def _machines(self, kind: str, pool: PoolSettings, post: Post) -> Processes:
        """What runs the workers of a pool."""
        raise LookupError(f"there is no pool {pool.name} in this world")

    async def _listen_brain(
        self,
        process: Process,
        url: str,
        handler: Callable[[Carrier], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        async def admit(_: str) -> Serve:
            await trio.lowlevel.checkpoint()
            return handler

        await self.network.listen(url, process.name, admit, task_status=task_status)

    async def _start_gateway(self, process: Process) -> int:
        self._gateways += 1
        chance = self.chance("gateway", self._gateways)
        given = GatewaySurroundings(
            gateway_id="replica-0-0",
            store=Handle(self.truth, lambda: process.dead),
            objects=_NoObjects(),  # type: ignore[arg-type]
            wakeups=MemoryWakeups(),
            dial_brain=partial(self.network.dial, gateway_ipc(Path(RUN_DIR), 0), process.name),
            dial_replica=self._no_replica,
            chance=chance,
            clock=self.clock,
            secret=chance.secret,
            replica_token=self.replica_token,
        )
        gateway = Gateway(given)

        async def admit(token: str) -> Serve:
            role, name, value = token.split(" ")
            query = {"peer": role} | ({} if role == "client" else {"id": name})
            knock = Knock(
                path="/v1/stream",
                query=query,
                headers={"authorization": f"Bearer {value}"},
                address="127.0.0.1",
                secure=False,
            )
            try:
                visitor = await gateway.door.admit(knock)
            except StoreUnavailable as error:
                raise BrokenByPeer(f"503: {error}") from error
            return partial(gateway.door.serve, visitor)

        async with trio.open_nursery() as nursery:
            await nursery.start(gateway.run_without_listeners)
            await nursery.start(self.network.listen, "gateway-0", process.name, admit)
            await gateway.relay.leader_known.wait()
            self.questions = gateway._questions
            self._leader_known.set()
        return 1

    async def dial_gateway(self, role: str, name: str, token: str, *, process: str = "") -> Carrier:
        """A stream to the gateway, with a token in the upgrade, of a process that is called otherwise, perhaps."""
        return await self.network.dial("gateway-0", process or name, f"{role} {name} {token}")

    @staticmethod
    async def _no_replica(url: str) -> Carrier:
        await trio.lowlevel.checkpoint()
        raise BrokenByPeer(f"there is no other replica at {url!r}")


class _NoObjects:
    """Nobody asks a gateway for objects here: there is no HTTP."""


def counted(outcomes: Iterable[object]) -> dict[str, int]:
    """How many calls ended in which state."""
    return Counter(str(getattr(outcome, "state", type(outcome).__name__)) for outcome in outcomes)


async def silence(cable: MemoryCable) -> None:
    """Nothing arrives over it for a while."""
    cable.stall()
    await trio.sleep(SILENCE_S)
    cable.resume()


def fewest(faults: int, live: Callable[[tuple[int, ...]], object]) -> tuple[int, ...]:
    """The numbers of a few faults with which `live` still raises `Violation`: each was tried to be left out once.

    Where worlds take long to break, only the first few are tried.
    """
    kept = tuple(range(faults))
    ends_s = time.monotonic() + SHRINKS_FOR_S
    for number in range(faults):
        if time.monotonic() > ends_s:
            break
        fewer = tuple(one for one in kept if one != number)
        try:
            live(fewer)
        except Violation:
            kept = fewer
    return kept


@contextlib.contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Trio's scheduler in the order of task numbers, shuffled by a seeded generator, and no log on the terminal.

    Trio has the switch for Hypothesis (`_hypothesis_plugin_setup`), and nothing public to turn it.
    """
    run = trio._core._run
    before, state = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate()
    run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    run._r.seed(seed_of(seed, "scheduler"))
    chance_of_others = random.getstate()
    try:
        with structlog.testing.capture_logs():
            yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
        run._r.setstate(state)
        random.setstate(chance_of_others)
