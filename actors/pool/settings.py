"""A pool as its actor knows it: how many workers, of which size, on which nodes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...model.figures import IDLE_WORKER_S
from ...model.nodes import NodeOffer, NodeState, Traits
from ...model.resources import Amount, Capacity
from ...store import operations as ops
from ...wire import scheduling
from ...wire.cluster import NodesKnown


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A pool. Its workers are all of the size `worker`, or each stands on one of `nodes` and has what that has.

    `keep_free` is ordered ahead of anybody's wish, within `max_workers`. A pool that is `retiring` orders nothing, has
    its workers drained, and is gone with the last of them.
    """

    name: str
    worker: Capacity | None
    nodes: tuple[NodeOffer, ...] = ()
    traits: Traits = Traits()  # of workers that stand on no named node
    min_workers: int = 0
    max_workers: int = 1
    keep_free: Amount = Amount()
    idle_s: float = IDLE_WORKER_S
    serves: str = ""
    placement: str = ""
    rank: int = 0
    retiring: bool = False
    owner: str = ""  # the workspace that attached its cluster, "" for the platform's own
    known_as: str = ""  # what that workspace calls it
    gpu_type: str = ""  # the cards that its nodes are said to have, while none is known
    attached: bool = False  # its nodes are those of a cluster, which says what they are
    whole: tuple[NodeOffer, ...] = ()  # of a cluster, its nodes with all that they have: what can ever fit

    @property
    def offers(self) -> tuple[NodeOffer, ...]:
        """What a worker may stand on; one without a name stands for any number of workers."""
        if self.nodes or self.worker is None:
            return self.nodes
        return (NodeOffer(capacity=self.worker, traits=self.traits),)

    @property
    def token_workspace(self) -> str:
        """The one workspace for which tokens of its workers are good, "" where they are the platform's own."""
        return self.serves if self.attached else ""


def retiring(name: str, *, attached: bool = False) -> PoolSettings:
    """A pool that is taken away: nothing is known of it but its name, and nothing else is needed."""
    return PoolSettings(name=name, worker=None, max_workers=0, retiring=True, attached=attached)


def on_nodes(settings: PoolSettings, message: NodesKnown) -> PoolSettings:
    """A pool as its cluster knows it now: one worker a node."""
    return msgspec.structs.replace(
        settings,
        nodes=message.offers,
        whole=message.whole,
        serves=message.serves,
        max_workers=len(message.offers),
    )


def declarations(settings: PoolSettings) -> tuple[ops.PutPool, ...]:
    """What a pool declares, for what can never fit to be refused: a record for each type of card that it has."""
    by_type: dict[str, list[NodeOffer]] = {}
    for offer in settings.whole or settings.offers:
        by_type.setdefault(offer.capacity.gpu_type, []).append(offer)
    return tuple(
        ops.PutPool(
            pool=settings.name,
            largest=_largest(gpu_type, offers),
            offers=tuple(offers),
            max_workers=settings.max_workers,
        )
        for gpu_type, offers in sorted(by_type.items())
    )


def declared(settings: PoolSettings) -> scheduling.PoolDeclared:
    """What a pool says of itself, before anything else."""
    return scheduling.PoolDeclared(
        pool=settings.name,
        size=None if settings.nodes or settings.attached else settings.worker,
        traits=settings.traits,
        serves=settings.serves,
        placement=settings.placement,
        rank=settings.rank,
        keep_workers=settings.min_workers,
        idle_s=settings.idle_s,
        min_free=settings.keep_free,
        max_workers=settings.max_workers,
        owner=settings.owner,
        known_as=settings.known_as,
        gpu_type=settings.gpu_type,
    )


def _largest(gpu_type: str, offers: Iterable[NodeOffer]) -> Capacity:
    sizes = [offer.capacity for offer in offers]
    return Capacity(
        cpu_milli=max(size.cpu_milli for size in sizes),
        memory_mib=max(size.memory_mib for size in sizes),
        gpu_count=max(size.gpu_count for size in sizes),
        gpu_type=gpu_type,
    )


def ready(offer: NodeOffer) -> bool:
    """Whether a worker may be started there: a cordoned node offers nothing."""
    return offer.state is NodeState.READY
