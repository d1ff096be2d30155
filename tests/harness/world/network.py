"""Cables instead of sockets: who listens where, what is cut and stalled, and every frame that arrives noted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import trio

from levers9.errors import BrokenByPeer, PeerProtocolError
from levers9.model.ids import Chance
from levers9.wire.carrier import Carrier, CarrierStatistics
from levers9.wire.carriers.memory import MemoryCable, MemoryCarrier

from .journal import Journal

Serve: TypeAlias = Callable[[Carrier], Awaitable[None]]
Admit: TypeAlias = Callable[[str], Awaitable[Serve]]  # takes a token, like the upgrade of a WebSocket does

REDIALLED_WITHIN_S: Final = 60.0  # after an isolation


@dataclass(frozen=True)
class _Listener:
    owner: str
    admit: Admit
    nursery: trio.Nursery


@dataclass(frozen=True, eq=False)
class Cable:
    """A cable with the names of the processes at its ends."""

    name: str
    dialler: str
    listener: str
    cable: MemoryCable


class NotedCarrier:
    """A carrier whose arrivals are in the journal."""

    def __init__(self, inner: MemoryCarrier, journal: Journal, name: str) -> None:
        self._inner = inner
        self._journal = journal
        self._name = name

    @property
    def ordered(self) -> bool:
        return self._inner.ordered

    async def send(self, frame: bytes) -> None:
        await self._inner.send(frame)

    async def receive(self) -> bytes:
        frame = await self._inner.receive()
        self._journal.note("arrived", self._name, frame)
        return frame

    async def aclose(self) -> None:
        await self._inner.aclose()

    def watch_peer(self, changed: Callable[[], None]) -> bool:
        return self._inner.watch_peer(changed)

    def peer_heard(self) -> bool:
        return self._inner.peer_heard()

    def statistics(self) -> CarrierStatistics:
        return self._inner.statistics()


class Network:
    """All listeners and all live cables. `violated` hears of a peer that broke the protocol: here that is a bug."""

    def __init__(self, journal: Journal, chance: Chance, violated: Callable[[str], None]) -> None:
        self._journal = journal
        self._chance = chance
        self._violated = violated
        self._listeners: dict[str, _Listener] = {}
        self._cables: dict[Cable, None] = {}
        self._isolated: dict[str, tuple[float, float]] = {}  # since when, and until when
        self._dialled = 0
        self.unordered: dict[str, Chance] = {}  # of these diallers frames overtake each other

    async def listen(
        self, url: str, owner: str, admit: Admit, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Take carriers at `url` until cancelled."""
        async with trio.open_nursery() as nursery:
            listener = self._listeners[url] = _Listener(owner, admit, nursery)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                if self._listeners.get(url) is listener:
                    del self._listeners[url]

    async def dial(self, url: str, dialler: str, token: str = "") -> Carrier:
        """A carrier to whoever listens at `url`. Raises `BrokenByPeer` when nobody does, or what `admit` raises."""
        await trio.sleep(self._chance.uniform(0.001, 0.01))
        listener = self._listeners.get(url)
        if self._isolated.get(dialler, (0.0, 0.0))[1] > trio.current_time():
            raise BrokenByPeer(f"{dialler} reaches nobody")
        if listener is None:
            raise BrokenByPeer(f"nobody listens at {url}")
        serve = await listener.admit(token)
        if self._listeners.get(url) is not listener:
            raise BrokenByPeer(f"nobody listens at {url} any more")
        self._dialled += 1
        name = f"{dialler}>{listener.owner}#{self._dialled}"
        delay_s = self._chance.uniform(0.0002, 0.003)
        wire = MemoryCable(delay_s=delay_s, reorder=self.unordered.get(dialler))
        cable = Cable(name, dialler, listener.owner, wire)
        self._cables[cable] = None
        listener.nursery.start_soon(self._serve, cable, serve)
        return NotedCarrier(cable.cable.left, self._journal, f"{name}/left")

    async def _serve(self, cable: Cable, serve: Serve) -> None:
        carrier = NotedCarrier(cable.cable.right, self._journal, f"{cable.name}/right")
        try:
            await serve(carrier)
        except PeerProtocolError as error:
            self._violated(f"{cable.name} broke the protocol: {error}")
        finally:
            del self._cables[cable]
            cable.cable.cut("its listener is done with it")

    def cables(self) -> tuple[Cable, ...]:
        """The live ones, oldest first."""
        return tuple(self._cables)

    def isolate(self, name: str, for_s: float) -> None:
        """A process lives on, and for a while reaches nobody and is reached by nobody."""
        now = trio.current_time()
        since, until = self._isolated.get(name, (now, now))
        begins = now if now > until + REDIALLED_WITHIN_S else since
        self._isolated[name] = (begins, max(until, now + for_s))
        for cable in self.cables():
            if name in (cable.dialler, cable.listener):
                cable.cable.cut(f"{name} is isolated")

    def isolated_for_s(self, name: str) -> float:
        """For how long nobody can have heard of this process."""
        now = trio.current_time()
        since, until = self._isolated.get(name, (now, now))
        return now - since if now <= until + REDIALLED_WITHIN_S else 0.0

    def cut_process(self, name: str) -> None:
        """The kernel closes what a dead process had open."""
        for cable in self.cables():
            if name in (cable.dialler, cable.listener):
                cable.cable.cut(f"{name} was killed")
        self._listeners = {url: one for url, one in self._listeners.items() if one.owner != name}
