"""Everything a worker decides: which attempts go to which container, what ends when, and what it must tell.

Delivery is the claim: an attempt that came runs, unless it is taken back before it starts. Every message may come
twice. A result is kept, and told again to whoever leads, until it is committed; so is the end of a container.
Cut off for almost a lease, a worker takes back what has not started, and asks before it starts anything of that.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...model.figures import CONTAINER_START_LIMIT_S, INLINE_MAX_BYTES, STARTING_STOP_GRACE_S, STOP_GRACE_S
from ...model.states import ContainerEvent, ContainerState, End
from ...wire import control, scheduling, work
from ...wire.message import Message, Payload
from ...wire.work import AttemptKey, AttemptOrder, AttemptResult
from . import events
from .events import Decision, Event
from .fence import Fence
from .ledger import Attempt, Held, Results, Stage, Step
from .outcomes import as_wanted, dropped, ended_with, handed_back, not_started
from .reports import Identity
from .telling import Telling

GOODBYE_S: Final = 2.0  # a worker that leaves waits this long for its last results to be committed


class WorkerPolicy:
    """The worker's state and its rules. `handle` moves it; the shell performs what it returns, in order."""

    def __init__(self, identity: Identity, *, stop_grace_s: float = STOP_GRACE_S, goodbye_s: float = GOODBYE_S) -> None:
        self.identity = identity
        self.containers: dict[str, Held] = {}
        self.results = Results()
        self._stop_grace_s = stop_grace_s
        self._goodbye_s = goodbye_s
        self._leader_epoch = 0
        self._fence = Fence()
        self._leaving = ""
        self._leave_by_s: float | None = None
        self._left = False
        self._now_s = 0.0
        self._telling = Telling(identity, self.containers, self.results, self._fence)

    def handle(self, event: Event, now_s: float) -> list[Decision]:  # noqa: C901 - one case an event
        """Take in one event; `now_s` never goes back."""
        self._now_s = now_s
        match event:
            case events.MessageArrived(message):
                self._message(message)
            case events.AttemptsReturned(container_id, results):
                self._returned(container_id, results)
            case events.AttemptsRevoked():
                self._revoked(event)
            case events.ContainerLoaded(container_id, port):
                self._loaded(container_id, port)
            case events.ContainerExited():
                self._exited(event)
            case events.ArgumentsFetched():
                self._fetched(event)
            case events.ResultStored():
                self._stored(event)
            case events.LinkOpened(resumed):
                self._heard_again(resumed)
            case events.LinkHeard():
                self._heard_again(True)
            case events.LinkQuiet():
                self._fence.quiet(now_s)
            case events.CapacityChanged():
                self._telling.report()
            case events.LeaveAsked(why, grace_s):
                self._leave(why, now_s + grace_s)
            case _:
                assert isinstance(event, events.TimePassed)
                self._time_passed()
        self._telling.tell_results()
        self._leave_if_done()
        return self._telling.take()

    def next_deadline_s(self) -> float | None:
        """When `TimePassed` is due next, if at all."""
        times = [time_s for held in self.containers.values() for time_s in self._times(held) if time_s is not None]
        times += [time_s for time_s in (self._leave_by_s, self._fence.due_s) if time_s is not None]
        return min(times, default=None)

    @staticmethod
    def _times(held: Held) -> tuple[float | None, ...]:
        start_by_s = held.start_by_s if held.state is ContainerState.PLACED else None
        if held.state is not ContainerState.READY:
            return (start_by_s, held.kill_at_s)
        return (held.kill_at_s, held.deadline_s(), held.hand_back_at_s())

    def _decide(self, decision: Decision) -> None:
        self._telling.decisions.append(decision)

    # Messages

    def _message(self, message: Message) -> None:  # noqa: C901 - one case a message
        match message:
            case work.RunAttempts(container_id=container_id, attempts=orders):
                self._run_attempts(container_id, orders)
            case work.ResultsCommitted(container_id=container_id, attempts=keys):
                self._committed(container_id, keys)
            case work.CancelAttempts():
                self._cancel(message)
            case work.AttemptsConfirmed():
                self._confirmed(message)
            case scheduling.StartContainer():
                self._start(message)
            case scheduling.StopContainer(container_id=container_id, why=why, preempted=preempted):
                self._stop_asked(container_id, why, preempted)
            case scheduling.ContainerForgotten(container_id=container_id):
                self._forgotten(container_id)
            case scheduling.WorkerAccepted(stop=container_ids):
                for container_id in container_ids:
                    self._stop_asked(container_id, "the control plane does not know this container")
            case scheduling.StopWorker(why=why):
                self._leave(why, None)
            case control.ReportAgain(epoch=epoch):
                if epoch >= self._leader_epoch:
                    self._leader_epoch = epoch
                    self._telling.tell_everything()
            case _:  # a newer control plane may say what this worker need not know
                pass

    def _start(self, message: scheduling.StartContainer) -> None:
        known = self.containers.get(message.container_id)
        if known is not None:
            if known.ended is not None:
                self._telling.send(known.ended)
            return
        held = Held(message.container_id, message.stub_id, self._now_s + CONTAINER_START_LIMIT_S)
        self.containers[message.container_id] = held
        if self._leaving:
            self._end(held, End.DISCONNECTED, f"the worker is leaving: {self._leaving}")
            return
        launch = events.Launch(
            container_id=message.container_id,
            spec=message.spec,
            workspace_id=message.workspace_id,
            token=message.token,
            gang_id=message.gang_id,
            rank=message.rank,
            world_size=message.world_size,
            cards=message.cards,
        )
        self._decide(launch)

    def _run_attempts(self, container_id: str, orders: tuple[AttemptOrder, ...]) -> None:
        held = self.containers.get(container_id)
        fresh = [order for order in orders if not self._repeated(held, container_id, order)]
        if held is None or self._leaving or held.state in (ContainerState.STOPPING, ContainerState.ENDED):
            why = self._leaving or "its container has ended"
            for order in fresh:
                self._finish(container_id, not_started(order, End.DISCONNECTED, why))
            return
        for order in fresh:
            self._accept(held, order)
        if self._fence.up and fresh:
            self._telling.tell_held(held)
        self._give_waiting(held)

    def _repeated(self, held: Held | None, container_id: str, order: AttemptOrder) -> bool:
        key = AttemptKey(order.task_id, order.attempt)
        result = self.results.of(container_id).get(key)
        if result is not None:
            self._telling.tell(container_id, result)
            return True
        return held is not None and (key in held.attempts or held.remembers(key))

    def _accept(self, held: Held, order: AttemptOrder) -> None:
        large = bool(order.arguments.object_key)
        attempt = Attempt(order, Stage.FETCHING if large else Stage.WAITING, unsure=self._fence.up)
        held.attempts[attempt.key] = attempt
        if large:
            self._decide(events.Fetch(held.container_id, attempt.key, order.arguments))

    def _give_waiting(self, held: Held) -> None:
        waiting = [one for one in held.attempts.values() if one.stage is Stage.WAITING and not one.unsure]
        if held.state is not ContainerState.READY or not waiting or self._fence.holds(self._now_s):
            return
        for attempt in waiting:
            attempt.move(Step.GIVEN)
            held.attempts[attempt.key] = held.attempts.pop(attempt.key)  # in the order in which they are given
        self._decide(events.Give(held.container_id, tuple(attempt.order for attempt in waiting)))
        held.follow(self._now_s)

    def _committed(self, container_id: str, keys: tuple[AttemptKey, ...]) -> None:
        held = self.containers.get(container_id)
        for key in keys:
            self.results.forget(container_id, key)
            if held is not None:
                held.remember(key)

    def _forgotten(self, container_id: str) -> None:
        held = self.containers.get(container_id)
        if held is not None and held.ended is not None:
            held.forgotten = True
            self._drop_if_over(held)

    def _drop_if_over(self, held: Held) -> None:
        if held.forgotten and not held.attempts:
            self.containers.pop(held.container_id, None)

    def _stop_asked(self, container_id: str, why: str, preempted: bool = False) -> None:
        held = self.containers.get(container_id)
        if held is None:
            self._telling.send(
                scheduling.ContainerEnded(container_id=container_id, end=End.DISCONNECTED, why="it is not here")
            )
        elif held.ended is not None:
            self._telling.send(held.ended)
        else:
            held.preempted |= preempted
            self._stop(held, End.OK, why)

    # Cancels

    def _cancel(self, message: work.CancelAttempts) -> None:
        held = self.containers.get(message.container_id)
        asked: list[AttemptKey] = []
        for key in message.attempts:
            attempt = None if held is None else held.attempts.get(key)
            if held is None or attempt is None:
                self._cancel_absent(held, message.container_id, key, message.superseded)
                continue
            attempt.superseded |= message.superseded
            if attempt.wanted_end is None:
                attempt.wanted_end = End.CANCELLED
            if attempt.stage in (Stage.FETCHING, Stage.WAITING):
                self._finish_attempt(held, attempt, not_started(attempt.order, End.CANCELLED, "it was cancelled"))
            elif attempt.stage is Stage.GIVEN:
                asked.append(key)
        if asked:
            self._decide(events.Revoke(message.container_id, frozenset(asked)))
        if held is not None:
            self._stop_if_idle(held)

    def _hand_back(self, held: Held) -> None:
        """The last one first: each is then the next of its function."""
        held.credit.learn((self._now_s - held.since_s,))
        behind = tuple(held.behind())
        for attempt in reversed(behind):
            attempt.goes_back = True
            if attempt.stage is not Stage.GIVEN:
                self._finish_attempt(held, attempt, handed_back(attempt.order))
        given = frozenset(attempt.key for attempt in behind if attempt.stage is Stage.GIVEN)
        if given:
            self._decide(events.Revoke(held.container_id, given))

    def _cancel_absent(self, held: Held | None, container_id: str, key: AttemptKey, superseded: bool) -> None:
        """It has finished, or never came: then it must not start when it comes."""
        result = self.results.of(container_id).get(key)
        if superseded:
            self.results.forget(container_id, key)
            if held is not None:
                held.remember(key)
        elif result is not None:
            self._telling.tell(container_id, result)
        elif held is None or not held.remembers(key):
            order = AttemptOrder(key.task_id, key.attempt, Payload("msgpack"), 0.0)
            self._finish(container_id, not_started(order, End.CANCELLED, "it was cancelled"))

    def _revoked(self, event: events.AttemptsRevoked) -> None:
        held = self.containers[event.container_id]
        for key in reversed(event.dropped):
            attempt = held.attempts.get(key)
            if (
                attempt is not None
                and attempt.wanted_end is None
                and not attempt.goes_back
                and held.state is ContainerState.READY
                and not self._leaving
            ):
                attempt.take_back()
            elif attempt is not None:
                self._finish_attempt(held, attempt, dropped(attempt, held.stop_why or self._leaving))
        held.follow(self._now_s)
        self._judge_running(held, event.started)
        self._stop_if_idle(held)

    def _judge_running(self, held: Held, started: tuple[AttemptKey, ...]) -> None:
        """The last that started runs now; those before it have run, and their results are on their way."""
        if not started:
            held.since_s = self._now_s
            return
        if started[-1] != held.running:
            held.running, held.since_s = started[-1], self._now_s
        attempt = held.attempts[started[-1]]
        deadline_s = held.deadline_s()
        if attempt.stage is not Stage.GIVEN:
            return
        if attempt.wanted_end is not None:
            attempt.move(Step.END_ASKED)
            self._stop(held, End.CANCELLED, f"{attempt.order.task_id} was cancelled")
        elif deadline_s is not None and deadline_s <= self._now_s:
            attempt.wanted_end = End.TIMED_OUT
            attempt.move(Step.END_ASKED)
            self._stop(held, End.TIMED_OUT, f"{attempt.order.task_id} ran longer than {attempt.order.timeout_s:g} s")

    # Cut off

    def _heard_again(self, resumed: bool) -> None:
        if self._fence.goes_up(self._now_s):
            self._take_back()
        self._fence.heard()
        if self._fence.up or not resumed:
            self._telling.tell_everything()

    def _take_back(self) -> None:
        """Nobody may have heard of us for a lease: what has not started may be cancelled, or may run elsewhere."""
        for held in self.containers.values():
            held.doubt()
            if held.state is ContainerState.READY and held.given():
                self._decide(events.Revoke(held.container_id, None))

    def _confirmed(self, message: work.AttemptsConfirmed) -> None:
        if message.question != self._fence.number:
            return
        self._fence.lower()
        held = self.containers.get(message.container_id)
        if held is not None:
            held.trust(message.attempts)
            self._give_waiting(held)

    # What the container does

    def _loaded(self, container_id: str, port: int) -> None:
        held = self.containers[container_id]
        held.move(ContainerEvent.BECAME_READY)
        held.address = self.identity.address(port) if port else ""
        if held.state is ContainerState.READY:
            ready = scheduling.ContainerReady(container_id=container_id, window=held.window, address=held.address)
            self._telling.send(ready)
            self._give_waiting(held)

    def _returned(self, container_id: str, results: tuple[AttemptResult, ...]) -> None:
        held = self.containers[container_id]
        held.credit.learn(tuple(result.duration_s for result in results))
        for result in results:
            attempt = held.attempts.get(AttemptKey(result.task_id, result.attempt))
            if attempt is None:
                continue
            if result.result is not None and result.result.size_bytes > INLINE_MAX_BYTES and not attempt.superseded:
                attempt.move(Step.RETURNED_LARGE)
                attempt.result = result
                self._decide(events.Store(container_id, attempt.key, result.result))
            else:
                self._finish_attempt(held, attempt, as_wanted(attempt, result))
        held.follow(self._now_s)
        self._stop_if_idle(held)

    def _fetched(self, event: events.ArgumentsFetched) -> None:
        held = self.containers.get(event.container_id)
        attempt = None if held is None else held.attempts.get(event.key)
        if held is None or attempt is None or attempt.stage is not Stage.FETCHING:
            return
        if event.arguments is None:
            result = not_started(attempt.order, End.ERROR, "")
            self._finish_attempt(held, attempt, msgspec.structs.replace(result, failure=event.failure))
            return self._stop_if_idle(held)
        order = attempt.order
        attempt.order = msgspec.structs.replace(order, arguments=event.arguments)
        attempt.move(Step.FETCHED)
        return self._give_waiting(held)

    def _stored(self, event: events.ResultStored) -> None:
        held = self.containers[event.container_id]
        attempt = held.attempts.get(event.key)
        if attempt is None or attempt.result is None:
            return
        end = End.OK if event.failure is None else End.ERROR
        result = msgspec.structs.replace(attempt.result, end=end, result=event.result, failure=event.failure)
        self._finish_attempt(held, attempt, as_wanted(attempt, result))

    def _exited(self, event: events.ContainerExited) -> None:
        held = self.containers[event.container_id]
        for attempt in tuple(held.attempts.values()):
            if attempt.stage is not Stage.STORING:
                self._finish_attempt(held, attempt, ended_with(held, attempt, event))
        held.follow(self._now_s)
        self._end(held, held.stop_end or event.end, held.stop_why or event.why)

    # Ends

    def _stop(self, held: Held, end: End, why: str) -> None:
        if held.state in (ContainerState.STOPPING, ContainerState.ENDED):
            return
        had_loaded = held.state is ContainerState.READY
        held.move(ContainerEvent.STOP_ASKED)
        held.stop_end, held.stop_why = end, why
        grace_s = self._stop_grace_s if had_loaded else min(self._stop_grace_s, STARTING_STOP_GRACE_S)
        held.kill_at_s = self._now_s + grace_s
        for attempt in tuple(held.attempts.values()):
            if attempt.stage in (Stage.FETCHING, Stage.WAITING):
                self._finish_attempt(held, attempt, not_started(attempt.order, End.DISCONNECTED, why))
        if had_loaded and held.given():
            self._decide(events.Revoke(held.container_id, None))
        self._decide(events.Terminate(held.container_id))

    def _end(self, held: Held, end: End, why: str) -> None:
        held.move(ContainerEvent.ENDED)
        held.kill_at_s = None
        held.ended = scheduling.ContainerEnded(container_id=held.container_id, end=end, why=why)
        self._telling.tell_results()  # before the end itself, so that nothing of it seems lost
        self._telling.send(held.ended)

    def _stop_if_idle(self, held: Held) -> None:
        if self._leaving and held.state is ContainerState.READY and not held.busy:
            self._stop(held, End.OK, f"the worker is leaving: {self._leaving}")

    def _finish_attempt(self, held: Held, attempt: Attempt, result: AttemptResult) -> None:
        attempt.move(Step.FINISHED)
        del held.attempts[attempt.key]
        if attempt.superseded:
            held.remember(attempt.key)
        else:
            self._finish(held.container_id, result)
        self._drop_if_over(held)

    def _finish(self, container_id: str, result: AttemptResult) -> None:
        self.results.keep(container_id, result)
        self._telling.tell(container_id, result)

    # Time

    def _time_passed(self) -> None:
        if self._fence.goes_up(self._now_s):
            self._take_back()
        for held in tuple(self.containers.values()):
            self._pass_time(held)
        if self._leave_by_s is not None and self._leave_by_s <= self._now_s:
            for held in self.containers.values():
                self._stop(held, End.DISCONNECTED, f"the worker is leaving: {self._leaving}")
            if self._all_ended():
                self._go()
            else:
                self._leave_by_s = None

    def _pass_time(self, held: Held) -> None:
        if held.state is ContainerState.PLACED and held.start_by_s <= self._now_s:
            why = f"it was not ready within {CONTAINER_START_LIMIT_S / 60:g} minutes"
            self._stop(held, End.APP_FAILED_TO_LOAD, why)
        if held.kill_at_s is not None and held.kill_at_s <= self._now_s:
            held.kill_at_s = None
            self._decide(events.Kill(held.container_id))
        deadline_s = held.deadline_s()
        if held.state is ContainerState.READY and deadline_s is not None and deadline_s <= self._now_s:
            self._decide(events.Revoke(held.container_id, frozenset()))  # to learn what runs
        hand_back_at_s = held.hand_back_at_s()
        if held.state is ContainerState.READY and hand_back_at_s is not None and hand_back_at_s <= self._now_s:
            self._hand_back(held)

    # Leaving

    def _leave(self, why: str, by_s: float | None) -> None:
        self._leaving = self._leaving or why
        self._telling.leaves = True
        if by_s is not None:
            self._leave_by_s = by_s if self._leave_by_s is None else min(by_s, self._leave_by_s)
        for held in tuple(self.containers.values()):
            if held.state is ContainerState.PLACED:
                self._stop(held, End.DISCONNECTED, f"the worker is leaving: {self._leaving}")
            elif held.state is ContainerState.READY:
                for attempt in held.waiting():
                    self._finish_attempt(held, attempt, not_started(attempt.order, End.DISCONNECTED, self._leaving))
                if held.given():
                    self._decide(events.Revoke(held.container_id, None))
                self._stop_if_idle(held)

    def _all_ended(self) -> bool:
        return all(held.state is ContainerState.ENDED for held in self.containers.values())

    def _leave_if_done(self) -> None:
        if not self._leaving or self._left or not self._all_ended():
            return
        storing = any(held.attempts for held in self.containers.values())
        if not storing and not len(self.results) and not self.containers:
            self._go()
        elif self._leave_by_s is None or self._leave_by_s > self._now_s + self._goodbye_s:
            self._leave_by_s = self._now_s + self._goodbye_s

    def _go(self) -> None:
        self._left = True
        self._leave_by_s = None
        self._telling.send(scheduling.WorkerLeaving(worker_id=self.identity.worker_id, why=self._leaving))
        self._decide(events.Leave(self._leaving))
