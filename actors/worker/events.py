"""What happens to a worker, and what it decides: the words between its policy and its shell."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ...model.states import End
from ...wire.client import StubSpec
from ...wire.message import Failure, Message, Payload
from ...wire.work import AttemptKey, AttemptOrder, AttemptResult

# Events


class MessageArrived(msgspec.Struct, frozen=True):
    """The control plane says something."""

    message: Message


class LinkOpened(msgspec.Struct, frozen=True):
    """There is a stream to the control plane. Not `resumed`: the other end knows nothing of what we sent before."""

    resumed: bool


class LinkQuiet(msgspec.Struct, frozen=True):
    """The stream has ended, or nothing was heard over it for a while."""


class LinkHeard(msgspec.Struct, frozen=True):
    """The control plane is heard again over the same stream."""


class CapacityChanged(msgspec.Struct, frozen=True):
    """The machine has another size now; the report tells it."""


class ContainerLoaded(msgspec.Struct, frozen=True):
    """The person's function is there and can be called; `port` is free for the other ranks of its gang to meet at."""

    container_id: str
    port: int = 0


class AttemptsReturned(msgspec.Struct, frozen=True):
    """These have run. A result is inline, whatever its size."""

    container_id: str
    results: tuple[AttemptResult, ...]


class AttemptsRevoked(msgspec.Struct, frozen=True):
    """The answer to `Revoke`: `dropped` never start; `started` have, and are unreported, in order.

    Calls run one after another, so the last of `started` runs now, and the results of the others are on their way.
    """

    container_id: str
    dropped: tuple[AttemptKey, ...]
    started: tuple[AttemptKey, ...]


class ContainerExited(msgspec.Struct, frozen=True):
    """Nothing of the container's tree is left. `started` is as in `AttemptsRevoked`; what else it held never starts."""

    container_id: str
    end: End
    why: str = ""
    started: tuple[AttemptKey, ...] = ()


class ArgumentsFetched(msgspec.Struct, frozen=True):
    """Large arguments are here, or can't be had."""

    container_id: str
    key: AttemptKey
    arguments: Payload | None
    failure: Failure | None = None


class ResultStored(msgspec.Struct, frozen=True):
    """A large result is in the object store, or could not be brought there."""

    container_id: str
    key: AttemptKey
    result: Payload | None
    failure: Failure | None = None


class LeaveAsked(msgspec.Struct, frozen=True):
    """The worker's process is to end; what runs has `grace_s` to finish."""

    why: str
    grace_s: float


class TimePassed(msgspec.Struct, frozen=True):
    """The time that `next_deadline_s` named has come."""


Event: TypeAlias = (
    MessageArrived
    | LinkOpened
    | LinkQuiet
    | LinkHeard
    | CapacityChanged
    | ContainerLoaded
    | AttemptsReturned
    | AttemptsRevoked
    | ContainerExited
    | ArgumentsFetched
    | ResultStored
    | LeaveAsked
    | TimePassed
)

# Decisions


class Send(msgspec.Struct, frozen=True):
    """Tell the control plane."""

    message: Message


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Start a container."""

    container_id: str
    spec: StubSpec
    workspace_id: str = ""
    token: str = ""  # what the code sees as LEVERS9_TOKEN
    gang_id: str = ""
    rank: int = 0
    world_size: int = 1
    cards: tuple[int, ...] = ()  # numbers of the worker's cards


class Give(msgspec.Struct, frozen=True):
    """Have the container run these after those given before."""

    container_id: str
    orders: tuple[AttemptOrder, ...]


class Revoke(msgspec.Struct, frozen=True):
    """Take back those of `keys` (None: all) that have not started. Answered at once by `AttemptsRevoked`."""

    container_id: str
    keys: frozenset[AttemptKey] | None


class Terminate(msgspec.Struct, frozen=True):
    """Ask the container's whole tree to end (SIGTERM); what has not come so far as to have a tree is given up."""

    container_id: str


class Kill(msgspec.Struct, frozen=True):
    """End the container's whole tree (SIGKILL)."""

    container_id: str


class Fetch(msgspec.Struct, frozen=True):
    """Get large arguments from the object store. Answered by `ArgumentsFetched`."""

    container_id: str
    key: AttemptKey
    arguments: Payload


class Store(msgspec.Struct, frozen=True):
    """Bring a large result to the object store. Answered by `ResultStored`."""

    container_id: str
    key: AttemptKey
    result: Payload


class Leave(msgspec.Struct, frozen=True):
    """Nothing is left to do: end the process."""

    why: str


Decision: TypeAlias = Send | Launch | Give | Revoke | Terminate | Kill | Fetch | Store | Leave
