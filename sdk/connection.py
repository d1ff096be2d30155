"""One connection to a control plane, shared by all threads: a thread of its own, a Trio loop in it, and one link.

A caller's thread hands its request to the loop and waits on a plain lock; what arrives is handed back the same way. So
it works in scripts, notebooks, and inside running asyncio and Trio programs.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from ..errors import (
    BrokenByPeer,
    ClosedByUs,
    DeadlinePassed,
    LeversError,
    PeerProtocolError,
    Refused,
    WouldBlock,
)
from ..model.ids import Chance
from ..wire.carrier import Carrier
from ..wire.client import (
    CancelAccepted,
    NewTask,
    RegisterStub,
    StubRegistered,
    StubSpec,
    TasksProgressed,
    TaskStanding,
)
from ..wire.codec import Envelope, pack, unpack
from ..wire.control import ReportAgain
from ..wire.link import DialledLink, Opened, Received
from ..wire.message import Message
from ..wire.redial import Redial
from .config import Settings
from .ledger import Ledger, Receiver, Request
from .project import Project
from .rest import Rest
from .sync import send_code

M = TypeVar("M", bound=Message)
Dial = Callable[[Settings], Awaitable[Carrier]]

CONNECT_LIMIT_S: Final = 10.0
ANSWER_LIMIT_S: Final = 120.0  # a request is said again until then, through restarts of the other side
SETTLE_LIMIT_S: Final = 2.0
CLOSE_LIMIT_S: Final = 5.0
_TICK_S: Final = 0.25


class Connection:
    """See the module. Raises `Refused` where the control plane cannot be reached, or does not want us.

    `settings` is asked at each dial, so that a `levers9 dev` that came back on another port is found again.
    """

    def __init__(
        self, settings: Callable[[], Settings], dial: Dial | None = None, chance: Chance | None = None
    ) -> None:
        self._settings = settings
        first = settings()
        self.rest = Rest(first.http_url, first.token)
        self.chance = chance or Chance()
        self.process_id = os.getpid()
        self.age = 0  # what was prepared at another age is prepared again
        self._dial = dial or dial_websocket
        self._ledger = Ledger(lambda: self.chance.id("m"))
        self._lock = threading.Lock()
        self._code_lock = threading.Lock()
        self._stubs: dict[StubSpec, str] = {}
        self._code: dict[Project, str] = {}
        self._progress: dict[str, TasksProgressed] = {}
        self._thread: threading.Thread | None = None
        self._opened = threading.Event()  # set too when it failed
        self._token: trio.lowlevel.TrioToken | None = None
        self._link: DialledLink | None = None
        self._waiting: deque[Envelope] = deque()  # what found the window full; bounded by what callers have in flight
        self._more = trio.Event()
        self._stop = trio.Event()
        self._heard = trio.Event()
        self._ended_by: LeversError | None = None
        self._was_open = False

    # What callers' threads use.

    def submit(self, stub_id: str, tasks: tuple[NewTask, ...], receiver: Receiver) -> None:
        """Submit calls; results go to `receiver`. Never waits, except for the first connection."""
        self.soon(lambda: self.submit_here(stub_id, tasks, receiver))

    def watch(self, task_id: str, receiver: Receiver) -> None:
        """Send the result of a task that was submitted earlier, here or elsewhere, to `receiver`."""
        self.soon(lambda: self._send(self._ledger.watch((task_id,), receiver)))

    def taken(self, task_ids: list[str]) -> None:
        """These results were fetched from the object store."""
        self.soon(lambda: self._ledger.taken(task_ids))

    def abandon(self, task_ids: tuple[str, ...]) -> None:
        """Nobody waits for these any more; they are cancelled, and nobody waits for that either."""
        self.soon(lambda: self._abandon(task_ids))

    def cancel(self, task_ids: tuple[str, ...], wait_s: float) -> tuple[TaskStanding, ...]:
        """Cancel; returns how each stands once that is committed. Raises `DeadlinePassed`."""
        answer = Answer()
        self.soon(lambda: self._send(self._ledger.cancel(task_ids, answer.come, trio.current_time())))
        return answer.wait(CancelAccepted, wait_s).standings

    def ask(self, message: Message, kind: type[M], wait_s: float = ANSWER_LIMIT_S) -> M:
        """The answer to a request. Raises `Refused`, or `DeadlinePassed`."""
        answer = Answer()
        self.soon(lambda: self._send(self._ledger.ask(message, answer.come, trio.current_time())))
        return answer.wait(kind, wait_s)

    def stub_id(self, spec: StubSpec) -> str:
        """The identity of a function; asked for once a connection."""
        known = self._stubs.get(spec)
        if known is None:
            known = self._stubs[spec] = self.ask(RegisterStub(spec=spec), StubRegistered).stub_id
        return known

    def code_key(self, project: Project) -> str:
        """The object key of a project's code; sent once a connection."""
        with self._code_lock:
            known = self._code.get(project)
            if known is None:
                known = self._code[project] = send_code(project, self.rest)
            return known

    def forget(self) -> None:
        """Send code and register functions anew: the control plane does not know what it knew."""
        self.age += 1
        self._stubs.clear()
        self._code.clear()

    def progress(self, stub_id: str) -> TasksProgressed | None:
        """What was last told about the calls of a function."""
        return self._progress.get(stub_id)

    @property
    def ended_by(self) -> LeversError | None:
        """Why this connection is over, or None."""
        return self._ended_by

    def close(self) -> None:
        """Send what is due, say goodbye, and end; bounded in time."""
        thread, token = self._thread, self._token
        self.rest.close()
        if thread is None or token is None or self.process_id != os.getpid():
            return
        try:
            token.run_sync_soon(self._stop.set)
        except trio.RunFinishedError:
            pass  # it has ended by itself
        thread.join(CLOSE_LIMIT_S)

    def begin(self) -> None:
        """Begin to connect, if that has not begun."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="levers9", daemon=True)
                self._thread.start()

    def start(self) -> None:
        """Connect, and wait until that is done. Raises `BrokenByPeer` or `Refused`."""
        self.begin()
        self._opened.wait()
        if self._ended_by is not None:
            raise self._ended_by

    def soon(self, step: Callable[[], None]) -> None:
        """Run a step in the connection's thread. Raises as `start` when the connection is over."""
        if not self._opened.is_set() or self._ended_by is not None:
            self.start()
        assert self._token is not None
        try:
            self._token.run_sync_soon(step)
        except trio.RunFinishedError:
            raise self._ended_by or ClosedByUs("The connection to the control plane was closed.") from None

    # What runs in the thread.

    def submit_here(self, stub_id: str, tasks: tuple[NewTask, ...], receiver: Receiver) -> None:
        """As `submit`, for a step that `soon` runs."""
        self._send(self._ledger.submit(stub_id, tasks, receiver, trio.current_time()))

    def _run(self) -> None:
        try:
            trio.run(self._main)
            error: LeversError = ClosedByUs("The connection to the control plane was closed.")
        except LeversError as told:
            error = told
        except BaseException as bug:  # the edge of the thread: whoever waits must hear of anything
            error = BrokenByPeer(f"The connection to the control plane broke: {bug!r}.")
            error.__cause__ = bug
        self._ended_by = self._ended_by or error
        self.rest.close()
        self._ledger.fail(self._ended_by)
        self._opened.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        link = self._link = DialledLink(
            name="the control plane",
            dial=self._dial_once,
            chance=self.chance,
            redial=Redial(first_min_s=0.05, first_max_s=1.0, max_s=5.0),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep, link, nursery.cancel_scope)
            nursery.start_soon(self._take_events, link)
            nursery.start_soon(self._send_waiting, link)
            nursery.start_soon(self._look_for_overdue)
            await self._stop.wait()
            self._send(self._ledger.acks())
            with trio.move_on_after(SETTLE_LIMIT_S):
                while self._ledger.standing().requests:  # a program that ends right after `submit` has submitted
                    self._heard = trio.Event()
                    await self._heard.wait()
            await link.aclose()
            nursery.cancel_scope.cancel()
        if self._ended_by is not None:
            raise self._ended_by

    async def _keep(self, link: DialledLink, scope: trio.CancelScope) -> None:
        try:
            await link.run()
        except LeversError as error:
            self._end(error)
        except BaseExceptionGroup as group:
            refused = group.subgroup(LeversError)
            if refused is None:
                raise
            self._end(_first(refused))
        scope.cancel()

    def _end(self, error: LeversError) -> None:
        if self._ended_by is None:
            self._ended_by = error

    async def _dial_once(self) -> Carrier:
        settings = self._settings()
        try:
            with trio.fail_after(CONNECT_LIMIT_S):
                return await self._dial(settings)
        except (OSError, BrokenByPeer, trio.TooSlowError) as error:
            if not self._was_open:  # a person is waiting: say at once that nothing is there
                raise Refused(*_unreachable(settings, error), code="broken") from error
            raise

    async def _take_events(self, link: DialledLink) -> None:
        try:
            while True:
                event = await link.next_event()
                if isinstance(event, Received):
                    self._take(event.envelopes)
                elif isinstance(event, Opened) and not event.resumed:
                    self._open_anew()
        except PeerProtocolError as error:
            self._end(error)
            self._stop.set()
        except (BrokenByPeer, ClosedByUs, Refused):
            return  # `_keep` says why

    def _open_anew(self) -> None:
        self._was_open = True
        self._waiting.clear()
        self._send(self._ledger.resync(trio.current_time()))
        self._opened.set()

    def _take(self, envelopes: tuple[Envelope, ...]) -> None:
        for envelope in envelopes:
            message = unpack(envelope.payload)
            if isinstance(message, TasksProgressed):
                self._progress[message.stub_id] = message
            elif isinstance(message, ReportAgain):
                self._send(self._ledger.resync(trio.current_time()))
            else:
                self._send(self._ledger.handle(message, envelope.correlation, trio.current_time()))
        self._heard.set()

    def _abandon(self, task_ids: tuple[str, ...]) -> None:
        self._send(self._ledger.cancel(task_ids, lambda _: None, trio.current_time()))
        self._ledger.abandon(task_ids)

    def _send(self, requests: list[Request]) -> None:
        if not requests or self._link is None:
            return
        envelopes = [Envelope(one.id, "client", one.message.receiver, pack(one.message)) for one in requests]
        try:
            if self._waiting:
                raise WouldBlock
            self._link.send_nowait(*envelopes)
        except WouldBlock:
            self._waiting += envelopes
            self._more.set()
        except (BrokenByPeer, ClosedByUs):
            return  # `fail` tells whoever waits

    async def _send_waiting(self, link: DialledLink) -> None:
        try:
            while True:
                await self._more.wait()
                self._more = trio.Event()
                while self._waiting:
                    await link.send(self._waiting[0])
                    if self._waiting:
                        self._waiting.popleft()
        except (BrokenByPeer, ClosedByUs, Refused):
            return  # `_keep` says why

    async def _look_for_overdue(self) -> None:
        while True:
            await trio.sleep(_TICK_S)
            if self._was_open:
                self._send(self._ledger.acks() + self._ledger.overdue(trio.current_time()))


class Answer:
    """One answer, for one waiting thread."""

    def __init__(self) -> None:
        self._come = threading.Event()
        self._outcome: Message | LeversError | None = None

    def come(self, outcome: Message | LeversError) -> None:
        """Called by the connection."""
        self._outcome = outcome
        self._come.set()

    def wait(self, kind: type[M], wait_s: float) -> M:
        """The answer. Raises what it says, or `DeadlinePassed`."""
        if not self._come.wait(wait_s):
            raise DeadlinePassed(
                f"The control plane did not answer within {wait_s:g} s. It may be restarting: try again."
            )
        if isinstance(self._outcome, LeversError):
            raise self._outcome
        if not isinstance(self._outcome, kind):
            raise PeerProtocolError(f"The control plane answered {type(self._outcome).__name__}, not {kind.__name__}.")
        return self._outcome


async def dial_websocket(settings: Settings) -> Carrier:
    """A WebSocket to the control plane's stream port."""
    import os

    from ..wire.carriers import proxy, trust, websocket

    url = settings.stream_url
    context = trust.client_context(trust.ca_of()) if url.startswith("wss") else None
    through = proxy.proxy_for(url, os.environ)
    return await websocket.connect(url, token=settings.token, ssl_context=context, proxy=through)


def _first(group: BaseExceptionGroup[LeversError]) -> LeversError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, LeversError)
    return error


def _unreachable(settings: Settings, error: Exception) -> tuple[str, str, str]:
    address = settings.stream_url.partition("?")[0]
    why = str(error) or f"no answer within {CONNECT_LIMIT_S:g} s"
    return (
        f"The control plane at {address} cannot be reached: {why}.",
        f"The address comes from {settings.origin}." if settings.origin else "",
        "Start `levers9 dev` here, or correct it with `levers9 config set controlplane_host HOST`.",
    )
