"""The supervision tree: what dies, what restarts, who is told.

OTP's semantics on Trio. A child is an async function in a cancel scope of its own; children are started in order, each
once the one before says that it is ready, and stopped in reverse order, each with a budget. What a child raises is
judged outside its scope (`supervision.judge`), and nothing but the supervisor catches `Exception`.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Final

import trio

from .child import Child, ChildSpec, Life, StartChild
from .child_process import ProcessChild
from .errors import ChildFailed, SupervisorGaveUp
from .model.ids import Chance
from .supervision import (
    HISTORY,
    Backoff,
    Ending,
    GiveUp,
    Intensity,
    Lifetime,
    Restart,
    Stop,
    Strategy,
    Terms,
    judge,
)
from .wire.control import ChildStanding, Down, StopAsked
from .wire.dead_letters import Cause
from .wire.letter import Letter
from .wire.mailbox import Mailbox
from .wire.post import Post

__all__ = ["Backoff", "ChildSpec", "Intensity", "Lifetime", "Nested", "StartChild", "Strategy", "Supervisor", "subtree"]

_log: Final = logging.getLogger("levers9.supervisor")


class Supervisor:
    """Starts children in order, judges how they end, and stops them in reverse order. See `run`."""

    def __init__(
        self,
        name: str,
        children: Iterable[ChildSpec] = (),
        *,
        strategy: Strategy = Strategy.ONE_FOR_ONE,
        intensity: Intensity = Intensity(),  # noqa: B008  # frozen
        rebuild: Callable[[], Awaitable[Iterable[ChildSpec]]] | None = None,
        stop_together: bool = False,
        post: Post | None = None,
        chance: Chance | None = None,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        """`rebuild` is asked at the start for the children that the store knows of: they follow after `children`.

        With `stop_together` the children stop at the same time instead of one after the other.
        """
        self.name = name
        self._specs = tuple(children)
        self._strategy = strategy
        self._intensity = intensity
        self._rebuild = rebuild
        self._stop_together = stop_together
        self._post = post
        self._chance = chance or Chance()
        self._clock = clock
        self._children: dict[str, Child] = {}
        self._watchers: dict[str, list[Mailbox]] = {}
        self._history: deque[Ending] = deque(maxlen=HISTORY)
        self._ended: deque[tuple[Child, Life]] = deque()
        self._news = trio.Event()
        self._working = trio.CancelScope()
        self._watching = trio.CancelScope()
        self._group_lock = trio.Lock()
        self._nursery: trio.Nursery | None = None
        self._gave_up: SupervisorGaveUp | None = None
        self._state = "starting"

    # --- Life of the supervisor --------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the children, say that they are ready, and keep them alive until `stop`, or until it is cancelled.

        Children are stopped in order even when it is cancelled. Raises `SupervisorGaveUp` after too many failures.
        """
        async with trio.open_nursery() as outside:
            outside.start_soon(self._hear_of_cancel)
            with trio.CancelScope(shield=True):
                await self._supervise(task_status)
            outside.cancel_scope.cancel(reason=f"{self.name} has stopped")
        if self._gave_up is not None:
            raise self._gave_up

    def stop(self, reason: str = "it was asked to stop") -> None:
        """Stop the children in order and let `run` return. Returns at once."""
        self._working.cancel(reason=reason)

    async def _hear_of_cancel(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.stop("it was cancelled")

    async def _supervise(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as self._nursery:
            try:
                with self._working:
                    if self._strategy is Strategy.ONE_FOR_ONE:
                        # A child may wait for one before it, which has ended since it was ready.
                        self._nursery.start_soon(self._watch_over)
                    await self._start_all()
                    self._state = "running"
                    task_status.started()
                    if self._strategy is not Strategy.ONE_FOR_ONE:  # a group restarts as a whole, once it is whole
                        await self._watch_over()
                    await trio.sleep_forever()
            finally:
                self._watching.cancel(reason=f"{self.name} stops")
                with trio.CancelScope(shield=True):  # each child has a deadline of its own
                    await self._stop_all()
                self._state = "gave up" if self._gave_up is not None else "stopped"

    async def _start_all(self) -> None:
        found = tuple(await self._rebuild()) if self._rebuild is not None else ()
        children = [self._add(spec) for spec in (*self._specs, *found)]
        for child in children:
            await self._bring_up(child)

    def _add(self, spec: ChildSpec) -> Child:
        assert spec.name not in self._children, f"{self.name} has a child {spec.name} already"
        child = self._children[spec.name] = Child(spec, self._clock)
        if self._post is not None and spec.post_address:
            self._post.register(spec.post_address, child.mailbox)
        return child

    def _remove(self, child: Child) -> None:
        del self._children[child.spec.name]
        self._watchers.pop(child.spec.name, None)
        self._retire(child)

    def _retire(self, child: Child) -> None:
        child.state = "stopped"
        left = child.mailbox.close(f"{child.spec.name} has stopped")
        if self._post is not None:
            self._post.unregister(child.spec.post_address, child.mailbox)
            for letter in left:
                self._post.bounce(letter, Cause.DISCARDED)

    # --- One life of a child -----------------------------------------------------------------------------------

    async def _start(self, child: Child) -> Ending | None:
        """Begin a life and wait until it is ready: None; or until it has ended without having been."""
        assert self._nursery is not None, f"{self.name} does not run"
        life = child.life = Life(child, self._clock)
        child.lives += 1
        child.state = "starting"
        self._nursery.start_soon(self._live, child, life, name=f"{self.name}/{child.spec.name}")
        try:
            with trio.move_on_after(child.spec.start_within_s):
                await life.settled.wait()
        except BaseException:
            life.cancel("it was stopped before it was ready")
            raise
        if not life.settled.is_set():
            life.cancel(f"it was not ready within {child.spec.start_within_s:g} s", late=True)
            await life.settled.wait()
        return None if life.ready_at_s is not None else life.ending

    async def _live(self, child: Child, life: Life) -> None:
        try:
            with life.scope:
                await child.spec.start(child.mailbox, task_status=life)
        except Exception as error:
            life.failure = error
        finally:
            self._conclude(child, life)

    def _conclude(self, child: Child, life: Life) -> None:
        ending = life.conclude()
        child.state = "stopped"
        if ending.crashed:
            child.last_failure = ending.why
            _log.warning("%s/%s", self.name, ending.sentence(), exc_info=life.failure)
        self._take_letters_back(child, life, ending)
        for mailbox in self._watchers.get(child.spec.name, ()):
            mailbox.post_control(Letter(Down(name=child.spec.name, reason=ending.why), source=self.name))
        if life.ready_at_s is not None and not life.asked_to_end:
            self._ended.append((child, life))
            self._news.set()
        life.settled.set()
        life.ended.set()

    def _take_letters_back(self, child: Child, life: Life, ending: Ending) -> None:
        if not ending.crashed and not life.scope.cancelled_caught:
            child.mailbox.finished()
        in_hand, discarded = child.mailbox.end_life(
            ending.why, suspicious=life.suspicious, keep=child.spec.keep_mailbox
        )
        if self._post is None:
            return
        for letter in in_hand:
            self._post.bounce(letter, Cause.CRASHED, f"its receiver {child.spec.name} ended: {ending.why}")
        for letter in discarded:
            self._post.bounce(letter, Cause.DISCARDED)

    # --- Judging -----------------------------------------------------------------------------------------------

    async def _watch_over(self) -> None:
        with self._watching:
            while True:
                while self._ended:
                    child, life = self._ended.popleft()
                    if child.life is life and life.ending is not None:  # else a group restart was quicker
                        await self._react(child, life.ending)
                self._news = trio.Event()
                await self._news.wait()

    async def _react(self, child: Child, ending: Ending) -> None:
        verdict = self._judge(child, ending)
        if not isinstance(verdict, Restart):
            self._let_go(child)
        elif self._strategy is Strategy.ONE_FOR_ONE:
            assert self._nursery is not None
            child.coming_back = trio.CancelScope()
            self._nursery.start_soon(self._come_back, child, verdict.after_s)
        else:
            async with self._group_lock:
                await self._restart_group(child, verdict.after_s)

    def _judge(self, child: Child, ending: Ending) -> Restart | Stop | GiveUp:
        self._history.append(ending)
        terms = Terms(child.spec.restart, child.spec.backoff, self._intensity)
        verdict = judge(self._clock(), tuple(self._history), terms, self._chance.uniform(0.0, 1.0))
        if isinstance(verdict, GiveUp):
            self._gave_up = SupervisorGaveUp(self.name, verdict.history)
            self.stop("it gave up")
        elif isinstance(verdict, Restart):
            child.state = "waiting"
        return verdict

    def _let_go(self, child: Child) -> None:
        """Its time is over. A temporary child is forgotten; a transient one stands in the tree as stopped."""
        if child.spec.restart is Lifetime.TEMPORARY:
            self._remove(child)
        if child.spec.significant:
            self.stop(f"{child.spec.name} has ended")

    async def _come_back(self, child: Child, after_s: float) -> None:
        with child.coming_back:
            await trio.sleep(after_s)
            await self._bring_up(child)

    async def _bring_up(self, child: Child) -> None:
        """Start a child until it is ready, or is not to be started again."""
        while (ending := await self._start(child)) is not None:
            verdict = self._judge(child, ending)
            if not isinstance(verdict, Restart):
                self._let_go(child)
                return
            await trio.sleep(verdict.after_s)

    async def _restart_group(self, crashed: Child, after_s: float) -> None:
        everyone = list(self._children.values())
        first = 0 if self._strategy is Strategy.ONE_FOR_ALL else everyone.index(crashed)
        group = everyone[first:]
        for child in reversed(group):
            await self._end(child, f"{crashed.spec.name} crashed, and they restart together")
        await trio.sleep(after_s)
        for child in group:
            if child.spec.restart is Lifetime.TEMPORARY:
                self._let_go(child)
            else:
                await self._bring_up(child)

    # --- Stopping ----------------------------------------------------------------------------------------------

    async def _stop_all(self) -> None:
        children = list(reversed(self._children.values()))
        if self._stop_together:
            async with trio.open_nursery() as nursery:
                for child in children:
                    nursery.start_soon(self._end, child, f"{self.name} stops")
        else:
            for child in children:
                await self._end(child, f"{self.name} stops")
        for child in children:
            self._retire(child)

    async def _end(self, child: Child, reason: str) -> None:
        """End the life of a child: ask where it wants to be asked, cancel, and wait; each within its budget."""
        child.coming_back.cancel(reason=reason)
        life = child.life
        if life is None or life.ended.is_set():
            return
        life.asked_to_end = life.asked_to_end or reason
        spec = child.spec
        try:
            if spec.finish_s > 0:
                child.mailbox.post_control(Letter(StopAsked(reason=reason), source=self.name, target=spec.name))
                with trio.move_on_after(spec.finish_s):
                    await life.ended.wait()
        finally:
            life.cancel(reason)
        with trio.move_on_after(spec.shutdown_s):
            await life.ended.wait()
        if not life.ended.is_set():
            child.last_failure = f"it did not end within {spec.shutdown_s:g} s of being cancelled"
            _log.error("%s/%s: %s", self.name, spec.name, child.last_failure)

    # --- Children at run time ----------------------------------------------------------------------------------

    async def start_child(self, spec: ChildSpec) -> None:
        """Add a child after the others and start it; returns when it is ready.

        Raises `ChildFailed` when its first life ends before that: then it is not added. Not to be awaited by a child of
        the same supervisor in its start, unless the strategy is one for one.
        """
        async with self._alone():
            await self._start_new(self._add(spec))

    async def _start_new(self, child: Child) -> None:
        try:
            ending = await self._start(child)
        except BaseException:
            self._remove(child)
            raise
        if ending is not None:
            self._remove(child)
            raise ChildFailed(child.spec.name, ending.why)

    async def stop_child(self, name: str, reason: str = "it is no longer needed") -> None:
        """Stop a child and forget it; nothing happens if there is none of that name."""
        async with self._alone():
            child = self._children.get(name)
            if child is not None:
                await self._end(child, reason)
                self._remove(child)

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        """A group restart and a change of the children exclude each other."""
        if self._strategy is Strategy.ONE_FOR_ONE:
            yield
        else:
            async with self._group_lock:
                yield

    # --- Looking on --------------------------------------------------------------------------------------------

    def watch(self, name: str, mailbox: Mailbox) -> None:
        """From now on, each end of a life of this child is told on the control lane of `mailbox`, as `Down`."""
        self._watchers.setdefault(name, []).append(mailbox)

    def unwatch(self, name: str, mailbox: Mailbox) -> None:
        """Tell it no more."""
        self._watchers[name].remove(mailbox)

    def mailbox(self, name: str) -> Mailbox:
        """The mailbox of a child; it stays the same over all its lives. Raises `KeyError` if there is no such child."""
        return self._children[name].mailbox

    def inspect(self, path: str = "", *, restarts: int = 0) -> tuple[ChildStanding, ...]:
        """The live tree below this supervisor, itself first, depth first; `path` is where it stands: at the top."""
        own = ChildStanding(path=path or self.name, kind="supervisor", state=self._state, restarts=restarts)
        return (own, *self.below(own.path))

    def below(self, path: str) -> tuple[ChildStanding, ...]:
        """The live tree of the children, depth first, for a supervisor that stands at `path`."""
        found: list[ChildStanding] = []
        for child in self._children.values():
            start = child.spec.start
            found.append(_standing(f"{path}/{child.spec.name}", child))
            if isinstance(start, Nested) and start.supervisor is not None:
                found.extend(start.supervisor.below(f"{path}/{child.spec.name}"))
        return tuple(found)


class Nested:
    """A supervisor as a child of another. `build` makes it anew for each life, so that it remembers nothing."""

    def __init__(self, build: Callable[[], Supervisor]) -> None:
        self._build = build
        self.supervisor: Supervisor | None = None

    async def __call__(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        """Run a new supervisor."""
        self.supervisor = self._build()
        await self.supervisor.run(task_status=task_status)


def subtree(name: str, build: Callable[[], Supervisor], restart: Lifetime = Lifetime.PERMANENT) -> ChildSpec:
    """The spec of a nested supervisor: no address, and as much time to stop as its children take."""
    return ChildSpec(name, Nested(build), restart, shutdown_s=math.inf, start_within_s=math.inf, address="")


def _standing(path: str, child: Child) -> ChildStanding:
    start, numbers = child.spec.start, child.mailbox.statistics()
    is_process = isinstance(start, ProcessChild)
    return ChildStanding(
        path=path,
        kind="supervisor" if isinstance(start, Nested) else "process" if is_process else "actor",
        state="quarantined" if numbers.quarantined and child.state == "running" else child.state,
        restarts=max(0, child.lives - 1),
        mailbox_depth=numbers.depth,
        mailbox_slots=0 if is_process else numbers.slots,  # nobody writes to a process here
        received=numbers.received,
        handled=numbers.handled,
        failed=numbers.failed,
        received_per_s=numbers.received_per_s,
        last_failure=numbers.quarantined[-1] if numbers.quarantined else child.last_failure,
        process_id=start.process_id if isinstance(start, ProcessChild) else 0,
    )
