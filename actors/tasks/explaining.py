"""Why a call is where it is, in sentences; and how far a caller's calls are."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.reasons import Reason
from ...model.sentences import plural, sentence
from ...model.states import TaskState
from ...wire import client
from .ledger import Call, Stub


def reasons(call: Call, stub: Stub, now_s: float) -> Iterator[str]:
    """The sentences of `task why`, outermost reason first."""
    if call.state is TaskState.RUNNING:
        ranks = f"{call.container_id}, rank 0 of {stub.spec.nodes}" if stub.spec.nodes > 1 else call.container_id
        yield f"It runs as attempt {call.attempt} in {ranks}."
    elif call.state is TaskState.CANCELLING:
        yield f"It was cancelled, and {call.container_id} has not confirmed yet that its code stopped."
    else:
        yield from _waits(call, stub, now_s)


def _waits(call: Call, stub: Stub, now_s: float) -> Iterator[str]:
    ahead = next(place for place, other in enumerate(stub.waiting) if other == call.task_id)
    what = f"{stub.spec.nodes} free containers" if stub.spec.nodes > 1 else "a free container"
    yield (
        f"It waits for {what} of {stub.spec.name}: {stub.available} {_are(stub.available)} warm, "
        f"{stub.coming} on {'its' if stub.coming == 1 else 'their'} way, "
        f"{ahead} {plural('call', ahead)} {_are(ahead)} ahead."
    )
    if stub.blocked_until_s > now_s:
        left_s = round(stub.blocked_until_s - now_s)
        yield f"Its containers failed to start {stub.failed_starts} times in a row; next try in {left_s} s."
        yield stub.why_failed
    elif stub.why_held and stub.holds:
        yield from (sentence(hold, now_s) for hold in stub.holds)
    elif stub.why_held:
        yield stub.why_held


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def holds(call: Call, stub: Stub, now_s: float) -> tuple[Reason, ...]:
    """What the scheduler said of the room that a call waits for."""
    return stub.holds if call.waits and stub.why_held and stub.blocked_until_s <= now_s else ()


def progress(stub: Stub) -> client.TasksProgressed:
    """How many of a stub's calls wait and run."""
    pending = len(stub.waiting)
    return client.TasksProgressed(
        stub_id=stub.stub_id,
        pending=pending,
        running=stub.unfinished - pending,
        containers=stub.available,
        waiting_because=stub.why_held if pending else "",
    )
