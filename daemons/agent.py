"""An agent's process, `levers9 agent`: it dials the control plane out of a cluster, reports nodes, starts worker Jobs.

The manifest of `levers9 cluster join` starts it with all it needs in its environment. A token that is refused is no
reason to end: somebody may apply the manifest anew. Nor is a control plane that is away, or an API server.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog
import trio

from .. import __version__
from ..actors.agent import AgentActor, Place
from ..actors.agent.events import Event, LetterCame, LinkOpened, LinkQuiet
from ..errors import ClosedByUs, ConfigError, EpochSuperseded, LeversError, PeerProtocolError, Refused
from ..kube.client import open_kube
from ..kube.config import load_config
from ..kube.face import Kube
from ..model.clusters import NAMESPACE
from ..model.ids import Chance
from ..wire.carriers.trust import ca_of
from ..wire.letter import Letter, open_envelope, seal
from ..wire.link import DialledLink, LinkStatistics, Lost, Opened, PeerBack, PeerSilent, Received
from ..wire.message import Message
from . import given_secrets
from .dialling import Dialler
from .edge import leaves
from .first_process import in_container
from .logs import set_up_logs
from .standstill import end_when_still

TOKEN: Final = "LEVERS9_AGENT_TOKEN"
CLUSTER_ID: Final = "LEVERS9_CLUSTER_ID"
URL: Final = "LEVERS9_URL"
IN_NAMESPACE: Final = "LEVERS9_NAMESPACE"
REFUSED_AGAIN_S: Final = (30.0, 60.0)  # a refused token is tried again after this
_PROXIES: Final = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy")
_BY_HAND: Final = (
    "An agent is started by the manifest of a cluster: run `levers9 cluster join NAME --gpu TYPE` where your "
    "kubeconfig is, or `levers9 cluster manifest NAME` to see it."
)
_SET_DUMPABLE: Final = 4
_log: Final = structlog.get_logger()


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """An agent. `environment` has the proxy that it dials through."""

    cluster_id: str
    url: str
    token: str
    namespace: str = NAMESPACE
    ca_pem: str = ""
    environment: Mapping[str, str] = {}

    @property
    def place(self) -> Place:
        """Where it stands; its workers go out as it does."""
        ways_out = tuple((name, self.environment[name]) for name in _PROXIES if self.environment.get(name))
        return Place(cluster_id=self.cluster_id, namespace=self.namespace, environment=ways_out)


def configure(environment: Mapping[str, str] = os.environ) -> AgentConfig:
    """What the environment says; the token is taken out of it. Raises `ConfigError` for what is missing."""
    token = given_secrets.take(TOKEN)
    given = {CLUSTER_ID: environment.get(CLUSTER_ID, ""), URL: environment.get(URL, ""), TOKEN: token}
    missing = [name for name, value in given.items() if not value.strip()]
    if missing:
        raise ConfigError(f"{' and '.join(missing)} must be in the environment. {_BY_HAND}")
    return AgentConfig(
        cluster_id=given[CLUSTER_ID].strip(),
        url=given[URL].strip(),
        token=token.strip(),
        namespace=environment.get(IN_NAMESPACE, "").strip() or NAMESPACE,
        ca_pem=ca_of(environment),
        environment={name: environment[name] for name in _PROXIES if name in environment},
    )


class Line:
    """The agent's line to the control plane: dialled, dialled again, and tried again slowly where it is refused."""

    def __init__(self, config: AgentConfig, chance: Chance) -> None:
        self._address = f"agent/{config.cluster_id}"
        self._chance = chance
        self._dial = Dialler(
            peer="agent",
            own_id=config.cluster_id,
            urls=(config.url,),
            token=config.token,
            ca_pem=config.ca_pem,
            environment=config.environment,
        )
        self._link: DialledLink | None = None

    async def say(self, message: Message) -> None:
        """Tell the control plane; lost while there is no line: what an agent says is a level, and is said again."""
        link = self._link
        if link is None:
            await trio.lowlevel.checkpoint()
            return
        letter = Letter(message, source=self._address, target=type(message).receiver)
        try:
            await link.send(seal(letter, self._chance))
        except LeversError as error:
            _log.info("what was to be said is lost", message=type(message).__name__, why=str(error))

    async def run(self, hear: Callable[[Event], None]) -> None:
        """Keep the line until it is closed."""
        closed = False
        while not closed:
            try:
                await self._follow(hear)
            except* ClosedByUs:
                closed = True
            except* Refused as errors:
                for error in leaves(errors):
                    _log.error(
                        "the control plane refuses this agent: join again, which renews its token", why=str(error)
                    )
            hear(LinkQuiet())
            if not closed:
                await trio.sleep(self._chance.uniform(*REFUSED_AGAIN_S))

    async def _follow(self, hear: Callable[[Event], None]) -> None:
        link = self._link = DialledLink(name=self._address, dial=self._dial, chance=self._chance)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(link.run)
                while True:
                    event = await link.next_event()
                    for told in _told(event):
                        hear(told)
        finally:
            self._link = None

    def statistics(self) -> LinkStatistics | None:
        """The link that there is, if any."""
        return None if self._link is None else self._link.statistics()

    async def aclose(self) -> None:
        """Say goodbye."""
        if self._link is not None:
            await self._link.aclose()


def _told(event: object) -> list[Event]:
    match event:
        case Received():
            return list(_letters(event))
        case Opened():
            return [LinkOpened(event.resumed)]
        case PeerBack():
            return [LinkOpened(resumed=True)]
        case PeerSilent() | Lost():
            return [LinkQuiet()]
    return []


def _letters(received: Received) -> list[Event]:
    events: list[Event] = []
    for envelope in received.envelopes:
        try:
            events.append(LetterCame(open_envelope(envelope).message))
        except PeerProtocolError as error:
            _log.warning("a message could not be read", error=str(error))
    return events


async def run_agent(config: AgentConfig, kube: Kube) -> None:
    """Work until a signal asks to end."""
    chance = Chance()
    line = Line(config, chance)
    actor = AgentActor(
        kube=kube,
        place=config.place,
        say=line.say,
        epoch=int(time.time()),
        version=__version__,
        chance=chance,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_end_on_signal, line, nursery.cancel_scope)
        await nursery.start(actor.run)
        nursery.start_soon(line.run, actor.hear)
        _log.info("the agent works", cluster_id=config.cluster_id, namespace=config.namespace, url=config.url)


async def _end_on_signal(line: Line, scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            _log.info("asked to end", by=signal.Signals(number).name)
            await line.aclose()
            scope.cancel(reason="asked to end")


async def _in_cluster(config: AgentConfig) -> None:
    endpoint = await load_config()
    async with trio.open_nursery() as nursery, open_kube(endpoint, Chance()) as kube:
        nursery.start_soon(end_when_still)
        await run_agent(config, kube)
        nursery.cancel_scope.cancel(reason="the agent has ended")


def main(argv: Sequence[str] | None = None) -> int:
    """Run an agent; exits with 0 when it was asked to end, 1 when another works, 2 for a wrong configuration."""
    set_up_logs()
    if sys.argv[1:] if argv is None else argv:
        print(f"levers9 agent takes no options. {_BY_HAND}", file=sys.stderr)
        return 2
    try:
        config = configure()
    except ConfigError as error:
        print(f"levers9 agent: {error}", file=sys.stderr)
        return 2
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # only root reads our memory, descriptors and environment
    return in_container(partial(_run, config))


def _run(config: AgentConfig) -> int:
    code = 0
    try:
        trio.run(_in_cluster, config)
    except* ConfigError as errors:
        _log.error("the agent cannot work", errors=[str(one) for one in leaves(errors)])
        code = 2
    except* EpochSuperseded as errors:
        _log.error("another agent of this cluster works", errors=[str(one) for one in leaves(errors)])
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
