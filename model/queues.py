"""What decides who goes first and who may have how much: queues, quotas in cohorts, shares, priorities, topologies.

All of it is configuration: it comes from a file and over REST, is checked as a whole, and is journaled as a whole.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

DEFAULT: Final = "default"  # the name of the queue, the quota and the priority that stand in for none
UNLIMITED: Final = None


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of one resource a quota has, may borrow and lends. None: without a limit.

    Units as in `Amount`: thousandths of CPUs, MiB, thousandths of cards.
    """

    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None


class FlavorLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one flavor; a resource without limits (None) is not counted against the quota."""

    flavor: str
    cpu: Limits | None = None
    memory: Limits | None = None
    gpu: Limits | None = None


class Flavor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes of one make: those of this pool, with this card type and these labels (each: any where empty).

    A node belongs to one flavor at most. `topology` names how its nodes hang together.
    """

    name: str
    pool: str = ""
    gpu_type: str = ""
    labels: dict[str, str] = {}
    topology: str = ""


class Reclaim(enum.StrEnum):
    """From whom of its cohort a quota takes back by preemption what it lent."""

    NEVER = "never"
    LOWER_PRIORITY = "lower_priority"
    ANY = "any"


class Within(enum.StrEnum):
    """Whom of its own quota a request may preempt."""

    NEVER = "never"
    LOWER_PRIORITY = "lower_priority"
    LOWER_OR_NEWER_EQUAL = "lower_or_newer_equal_priority"


class Quota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So much of each flavor, in the order in which flavors are tried; no flavors: everything, without a limit."""

    name: str
    cohort: str = ""
    flavors: tuple[FlavorLimits, ...] = ()
    reclaim: Reclaim = Reclaim.NEVER
    preempt: Within = Within.NEVER
    held: bool = False  # admits nothing new; what runs stays


class Cohort(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Quotas, and cohorts, that lend each other what they do not use. May have quota of its own."""

    name: str
    parent: str = ""
    flavors: tuple[FlavorLimits, ...] = ()


class Queue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workspace's line for a quota. `weight` counts among the queues of its workspace."""

    name: str
    workspace: str
    quota: str = DEFAULT
    weight: int = 1


class Share(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a workspace may: its weight in fair share, and how much of it may run at a time (None: no limit)."""

    workspace: str
    weight: int = 1
    max_containers: int | None = None
    max_cpu_milli: int | None = None
    max_gpus: int | None = None


class PriorityClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name for a priority; higher goes first. `default` is 0 unless it is given here."""

    name: str
    value: int


class Topology(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Node labels from coarse to fine, at most 16; the node itself is below the last one."""

    name: str
    levels: tuple[str, ...]


class FairShare(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the past counts, and how waiting does: each `ageing_s` of waiting adds `ageing_step` to a priority.

    For whoever is first of all that draw on a cohort, and has waited for quota for `patience_s`, freed quota is saved.
    """

    half_life_s: float = 3600.0
    ageing_s: float = 300.0
    ageing_step: int = 100
    patience_s: float = 60.0


class Queueing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration. Names are unique within their kind; `check_queueing` says what is wrong with one."""

    flavors: tuple[Flavor, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    quotas: tuple[Quota, ...] = ()
    queues: tuple[Queue, ...] = ()
    shares: tuple[Share, ...] = ()
    priorities: tuple[PriorityClass, ...] = ()
    topologies: tuple[Topology, ...] = ()
    fair_share: FairShare = FairShare()
