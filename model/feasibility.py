"""Whether a shape, and a gang of it, can ever fit: judged by what pools declare or have had, never by what is free.

A pool that is away still counts, and so do a node that is cordoned, and a cluster's domain that is split: that may end.
What is refused here is only what could not fit on an empty, whole platform.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ..errors import FORBIDDEN, INVALID, NEVER_FITS, UNKNOWN_GPU, Refused
from .gangs import GANG_MAX, NODE_LEVEL, Together, TopologyMode
from .nodes import NodeOffer
from .pool_names import called, resolved
from .resources import CARD_MILLI, Capacity, Shape

ANYWHERE: Final = Together()
ENDLESS: Final = 1 << 40  # members that a pool without a maximum has room for


class PoolTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a pool serves ("" is anybody), and what its own workspace calls it where that is not its name.

    `gpu_type` are the cards that its nodes are said to have: a cluster that has not reported any is judged by that.
    `reported`: a cluster says what its nodes' labels are, and tomorrow they may be others.
    """

    serves: str = ""
    known_as: str = ""
    owner: str = ""
    gpu_type: str = ""
    reported: bool = False


class PoolOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The largest worker a pool declares or has ever had, allocatable; several of one pool for its types of cards.

    `offers` are its nodes as it declared them last; one without a name stands for `max_workers` such workers (0: any
    number). Without any, nothing but the largest worker is known. `serves` is the one workspace whose work it takes,
    `owner` the one that attached it, and knows it as `known_as`.

    Not `known`, only the type of its cards is: it is to have such nodes, and has never said how large they are.
    Where its nodes are `reported`, a domain that is too small now may be split for a while.
    """

    pool: str
    largest: Capacity
    serves: str = ""
    offers: tuple[NodeOffer, ...] = ()
    max_workers: int = 0
    owner: str = ""
    known_as: str = ""
    known: bool = True
    reported: bool = False


def unknown_offer(pool: str, terms: PoolTerms) -> PoolOffer:
    """Of a cluster that has never reported a card of the type that it is said to have."""
    return PoolOffer(
        pool=pool,
        largest=Capacity(cpu_milli=0, memory_mib=0, gpu_type=terms.gpu_type),
        serves=terms.serves,
        owner=terms.owner,
        known_as=terms.known_as,
        known=False,
        reported=terms.reported,
    )


class _Pool(msgspec.Struct, frozen=True):
    """What is known of one pool: its rows, and their nodes, each once. `unknown`: the types of cards not seen yet."""

    name: str
    rows: tuple[PoolOffer, ...]
    nodes: tuple[NodeOffer, ...]
    unknown: tuple[str, ...] = ()
    secret: bool = False  # the values of its nodes' labels are its owner's to know
    reported: bool = False

    def allowing(self, shape: Shape) -> tuple[NodeOffer, ...]:
        """The nodes on which the shape may run, if it fits."""
        return tuple(node for node in self.nodes if node.traits.allows(shape))

    def may_have(self, shape: Shape) -> bool:
        """Whether nothing is known that stands against it: its nodes, or those with such cards, were never seen."""
        if not shape.gpu_count:
            return not self.rows and bool(self.unknown)
        return not shape.shared and any(shape.takes_type(kind) for kind in self.unknown)

    def holds(self, shape: Shape) -> bool:
        """Whether one container fits on a worker that is empty."""
        if self.may_have(shape):
            return True
        if not self.nodes:
            return not shape.shared and any(size.fits(shape) for size in self.sizes(shape))
        return any(size.fits(shape) for size in self.sizes(shape))

    def sizes(self, shape: Shape) -> Iterator[Capacity]:
        """The sizes of workers that may run the shape; a larger one than is declared now may have been there."""
        allowing = self.allowing(shape)
        yield from (node.capacity for node in allowing)
        if allowing or not self.nodes:
            yield from (row.largest for row in self.rows)

    def rooms(self, shape: Shape) -> Iterator[tuple[NodeOffer | None, int]]:
        """How many containers of a shape fit, empty, by node."""
        if self.may_have(shape):
            yield None, ENDLESS
        if not self.nodes and self.rows:
            yield from ((None, self._many(_members(row.largest, shape))) for row in self.rows)
        allowing = self.allowing(shape)
        for node in allowing:
            each = _members(node.capacity, shape)
            yield node, each if node.traits.node else self._many(each)
        if allowing and self.away:
            yield None, self.away * max(_members(row.largest, shape) for row in self.rows)

    @property
    def away(self) -> int:
        """Nodes that a cluster had once, and may have again: one is mended, or its autoscaler makes others."""
        return max(0, self._most - len(self.nodes)) if self.reported else 0

    @property
    def _most(self) -> int:
        """Workers that it ever might have at once; 0 where nothing says."""
        return max((row.max_workers for row in self.rows), default=0)

    def _many(self, each: int) -> int:
        return each * self._most if self._most else (ENDLESS if each else 0)


def check_feasible(
    shape: Shape,
    offers: tuple[PoolOffer, ...],
    workspace_id: str = "",
    nodes: int = 1,
    together: Together = ANYWHERE,
) -> None:
    """Raises `Refused` with the numbers when no pool could ever hold so many containers of this shape.

    While no pool is known, every gang of every shape that is one passes.
    """
    _refuse_nonsense(shape)
    _refuse_odd_gang(nodes, together)
    if not offers:
        return
    offers = _serving(offers, workspace_id)
    named = tuple(offer for offer in offers if shape.pool in ("", offer.pool))
    if not named:
        meant = resolved(shape.pool, offers, workspace_id)
        named = tuple(offer for offer in offers if offer.pool == meant)
    pools = tuple(_pools(named, workspace_id))
    holding = tuple(pool for pool in pools if pool.holds(shape))
    if not holding:
        _refuse_gpu(shape, named)
        _refuse_traits(shape, pools)
        _refuse_size(shape, pools)
    if nodes > 1:
        _refuse_gang(shape, holding, nodes, together)


def pool_meant(name: str, offers: tuple[PoolOffer, ...], workspace_id: str) -> str:
    """The pool that a workspace means by a name; the name itself while no pool is known. Raises `Refused`."""
    return resolved(name, _serving(offers, workspace_id), workspace_id) if name and offers else name


def _pools(offers: tuple[PoolOffer, ...], workspace_id: str) -> Iterator[_Pool]:
    for name in dict.fromkeys(offer.pool for offer in offers):
        every = tuple(offer for offer in offers if offer.pool == name)
        rows = tuple(offer for offer in every if offer.known)
        yield _Pool(
            called(every[0], offers, workspace_id),
            rows,
            tuple(dict.fromkeys(node for row in rows for node in row.offers)),
            tuple(dict.fromkeys(offer.largest.gpu_type for offer in every if not offer.known)),
            every[0].owner not in ("", workspace_id),
            every[0].reported,
        )


def _members(capacity: Capacity, shape: Shape) -> int:
    """How many containers of a shape an empty worker holds."""
    if not capacity.fits(shape):
        return 0
    rooms = [capacity.cpu_milli // shape.cpu_milli, capacity.memory_mib // shape.memory_mib]
    if shape.gpu_count:
        rooms.append(capacity.gpu_count * (CARD_MILLI // shape.gpu_milli) // shape.gpu_count)
    return min(rooms)


def _serving(offers: tuple[PoolOffer, ...], workspace_id: str) -> tuple[PoolOffer, ...]:
    serving = tuple(offer for offer in offers if offer.serves in ("", workspace_id))
    if not serving:
        raise Refused(
            "No pool serves this workspace.",
            "A cluster serves those who attached it until it is shared, and without isolation a pool serves one "
            "workspace, since code runs as plain processes there.",
            "Attach a cluster with `levers9 cluster join`, have one shared or a pool added, or set isolation = "
            '"trusted" where all workspaces trust each other.',
            FORBIDDEN,
        )
    return serving


def _refuse_nonsense(shape: Shape) -> None:
    """A negative quantity would make room instead of taking it."""
    if shape.cpu_milli <= 0 or shape.memory_mib <= 0 or shape.gpu_count < 0:
        raise Refused(
            f"cpu={shape.cpu_milli / 1000:g}, memory={shape.memory_mib} MiB, gpu_count={shape.gpu_count} is no shape.",
            fix="Ask for some CPU and memory, and for no fewer than 0 cards.",
            code=INVALID,
        )
    if not 0 < shape.gpu_milli <= CARD_MILLI:
        raise Refused(
            f"{shape.gpu_milli / 1000:g} is no share of a card.", fix="Give one above 0, up to 1.", code=INVALID
        )


def _refuse_odd_gang(nodes: int, together: Together) -> None:
    if not 1 <= nodes <= GANG_MAX:
        raise Refused(f"nodes={nodes} is no number of containers.", fix=f"Give one from 1 to {GANG_MAX}.", code=INVALID)
    if together.slice_size < 1 or nodes % together.slice_size:
        raise Refused(
            f"{nodes} containers do not come in slices of {together.slice_size}.",
            fix="Give a number of nodes that the size of a slice divides.",
            code=INVALID,
        )


def _refuse_gpu(shape: Shape, offers: tuple[PoolOffer, ...]) -> None:
    """Cards of types that nobody has."""
    types = sorted({offer.largest.gpu_type for offer in offers if offer.largest.gpu_count or not offer.known} - {""})
    if not shape.gpu_count or any(shape.takes_type(kind) for kind in types):
        return
    what = f"No pool has GPUs of type {' or '.join(shape.gpu_types)}." if shape.gpu_types else "No pool has GPUs."
    if not types:
        fix = "Attach a cluster that has some (`levers9 cluster join`), or leave gpu and gpu_count out."
        raise Refused(what, "There are no GPUs that you may use.", fix, UNKNOWN_GPU)
    why = f"GPU types you may use: {', '.join(types)}."
    if shape.accelerator and shape.accelerator not in types:
        what = f"No pool has {shape.accelerator} cards, on which the checkpoint was taken."
        raise Refused(what, why, "Start anew, without the checkpoint.", UNKNOWN_GPU)
    raise Refused(what, why, "Ask for one of those.", UNKNOWN_GPU)


def _refuse_traits(shape: Shape, pools: tuple[_Pool, ...]) -> None:
    """What no node allows, whatever its size; a pool whose nodes are not known is not judged by them."""
    traits = tuple(node.traits for pool in pools for node in pool.nodes)
    if shape.shared and not any(each.gpu_sharing for each in traits):
        types = "".join(f"{kind} " for kind in [" or ".join(shape.gpu_types)] if kind)
        raise Refused(
            f"No pool shares its {types}cards.",
            f"{shape.gpu_milli / 1000:g} of a card is given in pools that say `gpu_sharing = true`.",
            "Ask for whole cards, or let a pool share its cards.",
            NEVER_FITS,
        )
    if len(traits) == 0 or any(each.allows(shape) for each in traits):
        return
    for key, value in shape.labels:
        values = sorted({each.label(key) for each in traits if each.label(key)})
        if value not in values:
            told = sorted({node.traits.label(key) for pool in pools for node in pool.nodes if not pool.secret} - {""})
            why = f"Its values are: {', '.join(told)}." if told else "No node has that label at all."
            why = "Nodes of shared clusters have other values of it." if values and not told else why
            raise Refused(f"No node has the label {key}={value}.", why, "Correct it, or leave it out.", NEVER_FITS)
    runtimes = sorted({runtime for each in traits for runtime in each.runtimes})
    if shape.runtime and shape.runtime not in runtimes:
        fix = f"Runtimes you may ask for: {', '.join(runtimes)}."
        raise Refused(f"No pool runs containers with {shape.runtime}.", fix=fix, code=NEVER_FITS)
    wishes = [f"the labels {_labels(shape)}"] * bool(shape.labels) + [f"the runtime {shape.runtime}"] * bool(
        shape.runtime
    )
    wishes += ["shared cards"] * shape.shared
    raise Refused(f"No one node has {' and '.join(wishes)}.", fix="Ask for fewer of these at once.", code=NEVER_FITS)


def _labels(shape: Shape) -> str:
    return ", ".join(f"{key}={value}" for key, value in shape.labels)


def _refuse_size(shape: Shape, pools: tuple[_Pool, ...]) -> None:
    sizes = [size for pool in pools for size in pool.sizes(shape)]
    cpu = max((size.cpu_milli for size in sizes), default=0) / 1000
    memory = max((size.memory_mib for size in sizes), default=0)
    cards = max((size.gpu_count for size in sizes), default=0)
    where = f" on nodes with {_labels(shape)}" if shape.labels else ""
    raise Refused(
        f"No worker{where} was ever large enough for cpu={shape.cpu_milli / 1000:g}, memory={shape.memory_mib} MiB, "
        f"gpu_count={shape.gpu_count}.",
        f"The largest had {cpu:g} CPUs, {memory} MiB and {cards} card{'' if cards == 1 else 's'}.",
        "Ask for less, or add a pool with larger workers.",
        NEVER_FITS,
    )


def _refuse_gang(shape: Shape, pools: tuple[_Pool, ...], nodes: int, together: Together) -> None:
    """A gang stays within one pool, and where it requires that, within one domain."""
    rooms = {pool.name: sum(room for _, room in pool.rooms(shape)) for pool in pools}
    widest = max(rooms, key=lambda name: (rooms[name], name))
    if rooms[widest] < nodes:
        raise Refused(
            f"{nodes} containers of this size never fit together.",
            f"Pool {widest}, all of it, has room for {rooms[widest]}.",
            "Ask for fewer nodes, or for less on each.",
            NEVER_FITS,
        )
    level = together.level
    unseen = any(pool.may_have(shape) or not pool.nodes or pool.away for pool in pools)
    if together.mode is TopologyMode.NONE or not level or unseen:
        return
    if level != NODE_LEVEL and not any(node.traits.label(level) for pool in pools for node in pool.allowing(shape)):
        known = sorted({key for pool in pools for node in pool.nodes for key, _ in node.traits.labels})
        fix = f"Levels are labels of nodes: {', '.join([*known, NODE_LEVEL])}."
        raise Refused(f"No node has the topology level {level}.", fix=fix, code=NEVER_FITS)
    may_be_joined = any(pool.reported and rooms[pool.name] >= nodes for pool in pools)
    if together.mode is TopologyMode.REQUIRED and (level == NODE_LEVEL or not may_be_joined):
        _refuse_domains(shape, pools, nodes, together)


def _refuse_domains(shape: Shape, pools: tuple[_Pool, ...], nodes: int, together: Together) -> None:
    fits = max(_fits(_domains(pool, shape, together.level), together.slice_size) for pool in pools)
    if fits < nodes:
        each = f"slices of {together.slice_size}" if together.slice_size > 1 else "containers of this size"
        raise Refused(
            f"{nodes} containers never fit into one {together.level}.",
            f"In {each}, {fits} of {nodes} fit on nodes that are empty.",
            f'Ask for fewer nodes, or for "{TopologyMode.PREFERRED}" instead of "{TopologyMode.REQUIRED}".',
            NEVER_FITS,
        )


def _fits(domains: Iterable[int], slice_size: int) -> int:
    """How many members fit: within the widest domain, or slice by slice in any of them."""
    rooms = tuple(domains)
    if slice_size > 1:
        return sum(room // slice_size * slice_size for room in rooms)
    return max(rooms, default=0)


def _domains(pool: _Pool, shape: Shape, level: str) -> tuple[int, ...]:
    if level == NODE_LEVEL:
        return tuple(_members(size, shape) for size in pool.sizes(shape))
    rooms: dict[str, int] = {}
    for node, room in pool.rooms(shape):
        domain = node.traits.label(level) if node is not None else ""
        if domain:
            rooms[domain] = rooms.get(domain, 0) + room
    return tuple(rooms.values())
