"""What can happen to an agent, and what it decides."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from ...kube.objects import Job, Node, Pod
from ...wire.message import Message


class View(enum.StrEnum):
    """What the agent watches of its cluster."""

    NODES = "nodes"
    PODS = "pods"
    JOBS = "jobs"


# Events


class LinkOpened(msgspec.Struct, frozen=True):
    """The control plane is there; without `resumed` it may know nothing of us."""

    resumed: bool = False


class LinkQuiet(msgspec.Struct, frozen=True):
    """The control plane is not heard: what we would tell it now is told once it is back."""


class LetterCame(msgspec.Struct, frozen=True):
    """The control plane said something."""

    message: Message


class ListBegan(msgspec.Struct, frozen=True):
    """All objects of a view are about to be told anew.

    `served_at_s` is Unix time by the API server's clock, 0 where it did not say.
    """

    view: View
    served_at_s: float = 0.0


class ListEnded(msgspec.Struct, frozen=True):
    """They were: what was not among them is not there."""

    view: View


class ViewLost(msgspec.Struct, frozen=True):
    """A view is not kept up to date any more, and as old as `age_s`. `forbidden` when we may not have it."""

    view: View
    why: str
    forbidden: bool = False
    age_s: float = 0.0


class ViewKept(msgspec.Struct, frozen=True):
    """A view is kept up to date again."""

    view: View


class NodeIs(msgspec.Struct, frozen=True):
    """A node as it is, or as it was when it went."""

    node: Node
    gone: bool = False


class PodIs(msgspec.Struct, frozen=True):
    """A pod as it is, or as it was when it went."""

    pod: Pod
    gone: bool = False


class JobIs(msgspec.Struct, frozen=True):
    """A Job of our namespace as it is, or as it was when it went."""

    job: Job
    gone: bool = False


class JobMade(msgspec.Struct, frozen=True):
    """The Job of an order is there, made now or before."""

    worker_id: str
    job: Job


class JobNotMade(msgspec.Struct, frozen=True):
    """It was refused for good, or nobody knows (`unsure`)."""

    worker_id: str
    why: str
    unsure: bool = False


class JobDropped(msgspec.Struct, frozen=True):
    """A Job was asked to go, or not `found`; `why` says why it could not be asked."""

    worker_id: str
    found: bool = True
    why: str = ""


class TimePassed(msgspec.Struct, frozen=True):
    """The deadline has come."""


Event = (
    LinkOpened
    | LinkQuiet
    | LetterCame
    | ListBegan
    | ListEnded
    | ViewLost
    | ViewKept
    | NodeIs
    | PodIs
    | JobIs
    | JobMade
    | JobNotMade
    | JobDropped
    | TimePassed
)

# Decisions


class Tell(msgspec.Struct, frozen=True):
    """Say this to the control plane."""

    message: Message


class MakeJob(msgspec.Struct, frozen=True):
    """Create a worker's Job."""

    worker_id: str
    body: Mapping[str, object]


class DropJob(msgspec.Struct, frozen=True):
    """Delete a worker's Job and its pod; `uid` "" where it was not seen: only if it is ours."""

    worker_id: str
    uid: str
    why: str


class End(msgspec.Struct, frozen=True):
    """A newer life of this cluster's agent has reported: this one is over."""

    epoch: int  # this one's


Decision = Tell | MakeJob | DropJob | End
