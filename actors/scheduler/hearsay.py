"""What workers say, before anybody counts with it: one runs where others rule, and its token can be read there."""

from __future__ import annotations

from typing import Final

import msgspec

from ...model.figures import CREDIT_WINDOW_MAX
from ...model.hearsay import COUNT_MAX, INT4_MAX, count, sentence
from ...model.resources import Capacity
from ...wire import scheduling
from .ledger import Host

WHY_MAX: Final = 4_000  # of how a container ended: the tail of what it printed may be in it
ADDRESS_MAX: Final = 300  # characters of an address, and of an identity
_CARDS_MAX: Final = 4_096  # each is looked at by itself
_TYPE_MAX: Final = 63


def believed(message: scheduling.WorkerReported, host: Host) -> scheduling.WorkerReported | None:
    """A worker's report with what can be true of it; None where it counts for nothing."""
    if not 0 <= message.epoch <= COUNT_MAX:
        return None
    containers = tuple([_contained(one) for one in message.containers if len(one.container_id) <= ADDRESS_MAX])
    capacity, lacks = _capacity(message.capacity, host), sentence(message.lacks)
    return msgspec.structs.replace(message, capacity=capacity, containers=containers, lacks=lacks)


def _contained(report: scheduling.ContainerReport) -> scheduling.ContainerReport:
    return msgspec.structs.replace(report, window=window(report.window), address=address(report.address))


def _capacity(said: Capacity, host: Host) -> Capacity:
    """On a named node never more than was ordered, of that type: whoever owns the node may say more of it."""
    most = host.ordered if host.traits.node and host.ordered is not None else _LARGEST
    gpu_type = sentence(said.gpu_type, _TYPE_MAX) if most is _LARGEST else most.gpu_type
    cards = count(said.gpu_count, most.gpu_count)
    return Capacity(
        cpu_milli=count(said.cpu_milli, most.cpu_milli),
        memory_mib=count(said.memory_mib, most.memory_mib),
        gpu_count=cards,
        gpu_type=gpu_type if cards or most is _LARGEST else "",
    )


_LARGEST: Final = Capacity(cpu_milli=INT4_MAX, memory_mib=INT4_MAX, gpu_count=_CARDS_MAX)


def window(said: int) -> int:
    """How many calls a container takes ahead: never below none, nor more than any is given."""
    return count(said, CREDIT_WINDOW_MAX)


def address(said: str) -> str:
    """Where a container is reached, "" where that is none."""
    return said if len(said) <= ADDRESS_MAX and said.isascii() and said.isprintable() else ""


def why(said: str) -> str:
    """How a container ended, as long as people read it: its lines stay, and what drives a terminal goes."""
    return "\n".join(sentence(line, WHY_MAX) for line in said[:WHY_MAX].split("\n"))
