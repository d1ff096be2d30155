"""One gateway put together: links, relay, door, REST, metrics, on sockets that are already bound."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ...model.ids import Chance
from ...store.face import Store
from ...store.objects import Objects
from ...store.wakeups import Wakeups
from ...wire.carrier import Carrier
from ...wire.carriers import proved
from ...wire.link import Acceptor, DialledLink
from ...wire.post import Post
from ...wire.redial import Redial
from .auth import Gate
from .dialling import Dialling, DialWorker
from .fleet import FleetObserver
from .leadership import reader_of
from .logs import LogReader
from .outlet import QUEUE_BYTES
from .policy import GatewayPolicy
from .questions import Questions
from .relay import Relay
from .revocation import Revocation
from .server import Tls, serve_streams
from .streams import Door
from .tenancy import Tenancy

if TYPE_CHECKING:
    from .rest import Desk


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a gateway is given. `clock` is Unix seconds; `dial_replica` dials another replica's `/v1/relay`, and
    `dial_worker` a worker that listens.

    `own_url` is where other replicas dial ours; `journal_dir` is where this host's scheduler keeps its journal.
    `external_url` is where clusters dial us, and `ca_pem` are certificates that they trust beside their system's.
    """

    gateway_id: str
    store: Store
    objects: Objects
    wakeups: Wakeups
    dial_brain: Callable[[], Awaitable[Carrier]]
    dial_replica: Callable[[str], Awaitable[Carrier]]
    chance: Chance
    clock: Callable[[], float]
    secret: Callable[[int], bytes]
    dial_worker: DialWorker = proved.dial
    replica_token: str = ""
    own_url: str = ""
    behind_tls: bool = False
    queue_bytes: int = QUEUE_BYTES
    journal_dir: Path | None = None
    external_url: str = ""
    ca_pem: str = ""


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Bound sockets. Without one for streams, they are served by path on the one for HTTP, as they are there anyway."""

    http: socket.socket
    streams: socket.socket | None = None
    metrics: socket.socket | None = None
    tls: Tls | None = None


class Gateway:
    """One gateway."""

    def __init__(self, given: Surroundings) -> None:
        self._given = given
        policy = GatewayPolicy(given.gateway_id, given.own_url)
        post = Post(chance=given.chance, clock=given.clock)
        brain = DialledLink(name="brain", dial=given.dial_brain, chance=given.chance, redial=_brain_redial())
        self.gate = Gate(given.store, given.clock, given.replica_token)
        self.relay = Relay(
            policy=policy,
            brain=brain,
            dial_upstream=self._dial_upstream,
            read_leader=reader_of(given.store),
            post=post,
            chance=given.chance,
            queue_bytes=given.queue_bytes,
        )
        self._acceptor = Acceptor(chance=given.chance)
        self.door = Door(
            gate=self.gate,
            acceptor=self._acceptor,
            relay=self.relay,
            chance=given.chance,
            behind_tls=given.behind_tls,
        )
        self.dialling = Dialling(
            store=given.store, door=self.door, chance=given.chance, dial=given.dial_worker, clock=trio.current_time
        )
        self.relay.on_dial = self.dialling.want
        self._questions = Questions(policy.address, post, self.relay)
        self._revocation = Revocation(given.store, self.gate, self.relay, given.wakeups, given.replica_token)

    def _dial_upstream(self, url: str) -> DialledLink:
        return DialledLink(
            name=f"relay to {url}", dial=partial(self._given.dial_replica, url), chance=self._given.chance
        )

    def desk(self) -> Desk:
        """What the REST handlers are given."""
        from .rest import Desk

        given = self._given
        tenancy = Tenancy(given.store)
        return Desk(
            gate=self.gate,
            store=given.store,
            objects=given.objects,
            wakeups=given.wakeups,
            tenancy=tenancy,
            logs=LogReader(given.store, given.objects, given.wakeups, tenancy, given.clock),
            questions=self._questions,
            chance=given.chance,
            clock=given.clock,
            secret=given.secret,
            statistics=self.relay.statistics,
            behind_tls=given.behind_tls,
            journal_dir=given.journal_dir,
            external_url=given.external_url,
            ca_pem=given.ca_pem,
        )

    async def run(self, listeners: Listeners, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; started once streams are served, whether or not the brain is there yet.

        Requests over HTTP wait in their socket until its modules are loaded, in a thread; so do streams where they
        share that socket.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self.run_without_listeners)
            if listeners.streams is not None:
                await nursery.start(partial(serve_streams, self.door, listeners.streams, listeners.tls))
            nursery.start_soon(self._serve_http, listeners)
            task_status.started()

    async def _serve_http(self, listeners: Listeners) -> None:
        await trio.to_thread.run_sync(_load_web)
        from .rest import build_app
        from .web import METRICS_CONNECTIONS_MAX, serve_http

        async with trio.open_nursery() as nursery:
            app = build_app(self.desk(), self.door)
            await nursery.start(partial(serve_http, app, listeners.http, listeners.tls))
            if listeners.metrics is not None:
                from .metrics import build_metrics_app  # a tenth of a second that most gateways need not wait

                look = FleetObserver(self._given.store, self._questions).look
                metrics = build_metrics_app(self.relay.statistics, self.gate.statistics, look)
                await nursery.start(partial(serve_http, metrics, listeners.metrics, None, METRICS_CONNECTIONS_MAX))

    async def run_without_listeners(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Relay what comes in by `door`, until cancelled; `run` does so on sockets, a world without any."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._acceptor.run)
            await nursery.start(self.relay.run)
            await nursery.start(self._revocation.run)
            nursery.start_soon(self.dialling.run)
            task_status.started()


def _load_web() -> None:
    """Import what HTTP needs, so that the loop goes on meanwhile."""
    from . import rest, web  # noqa: F401


def _brain_redial() -> Redial:
    """The brain is a process beside us: nobody else is crowded out. A `Redial` remembers, so each link has its own."""
    return Redial(first_min_s=0.01, first_max_s=0.1, max_s=1.0)
