"""Small clusters, and the choice of a policy as a look at every node would make it."""

from fractions import Fraction

from levers9.actors.scheduler.capacity import Node, new_node
from levers9.actors.scheduler.placement.index import Indexed
from levers9.actors.scheduler.placement.rooms import Rooms
from levers9.model.nodes import Traits
from levers9.model.resources import CARD_MILLI, Capacity, Shape


def shape(
    cpu: int = 1, cards: int = 0, milli: int = CARD_MILLI, types: str = "", any_order: bool = False, memory: int = 1
) -> Shape:
    """What a container asks for: CPUs, cards, GiB of memory."""
    return Shape(
        cpu_milli=1000 * cpu,
        memory_mib=1024 * memory,
        gpu_count=cards,
        gpu_milli=milli,
        gpu_types=tuple(types.split()),
        gpu_any_order=any_order,
    )


def node(
    name: str, cards: list[int] | int = 0, cpu: int = 64, memory: int = 256, gpu_type: str = "T4", sharing: bool = True
) -> Node:
    """An open node. `cards` is their number, or what is free on each, in thousandths."""
    free = [CARD_MILLI] * cards if isinstance(cards, int) else cards
    capacity = Capacity(
        cpu_milli=1000 * cpu, memory_mib=1024 * memory, gpu_count=len(free), gpu_type=gpu_type if free else ""
    )
    made = new_node(name, "lab", capacity, Traits(gpu_sharing=sharing))
    made.free_cards = list(free)
    return made


def chosen_by_looking(
    policy: Indexed, nodes: dict[str, Node], asked: Shape, without: frozenset[str] = frozenset()
) -> list[str]:
    """Every node that is as good as any for this policy, by identity."""
    found: dict[tuple[int, int], list[str]] = {}
    for node_id, one in sorted(nodes.items()):
        if node_id not in without and one.fits(asked):
            preference = asked.preference(one.kind.capacity.gpu_type) if asked.gpu_count else 0
            found.setdefault((preference, -score_of(policy, one, asked)), []).append(node_id)
    return found[min(found)] if found else []


def score_of(policy: Indexed, one: Node, asked: Shape) -> int:
    """The score of a node, seen for the first time."""
    rooms = Rooms(policy.mark)
    rooms.put(one)
    return policy.score(asked, rooms.members[one.node_id].room)


def useful(typical: list[tuple[Shape, int]], one: Node) -> Fraction:
    """What typical containers can use of a node's free cards, in the mean: word by word as it was published."""
    total = sum(count for _, count in typical)
    usable = Fraction(0)
    for wanted, count in typical:
        roomy = [free for free in one.free_cards if free >= wanted.gpu_milli]
        runs = one.cpu_milli >= wanted.cpu_milli and wanted.takes_type(one.kind.capacity.gpu_type)
        if wanted.gpu_count and runs and len(roomy) >= wanted.gpu_count:
            usable += Fraction(count * sum(roomy), total)
    return usable
