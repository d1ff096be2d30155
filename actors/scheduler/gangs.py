"""A gang's members on nodes and cards, all or nothing, and which cards it would have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from ...model.resources import Shape
from .capacity import Node
from .placement import Spot


@lru_cache(maxsize=4096)
def of_one_type(shape: Shape) -> tuple[Shape, ...]:
    """A shape for each card type of its preference list: all members of a gang get the same, the first that will do."""
    types = tuple(gpu_type for gpu_type in shape.gpu_types if shape.takes_type(gpu_type))
    if not shape.gpu_count or len(types) < 2:
        return (shape,)
    return tuple(msgspec.structs.replace(shape, gpu_types=(gpu_type,)) for gpu_type in types)


def seat(nodes: Sequence[str], shape: Shape, known: Mapping[str, Node]) -> tuple[Spot, ...] | None:
    """The cards of each rank on its node; None where not all have room there. Nothing is taken."""
    trials: dict[str, Node] = {}
    spots: list[Spot] = []
    for rank, node_id in enumerate(nodes):
        if node_id not in trials:
            node = known.get(node_id)
            if node is None:
                return None
            trials[node_id] = copy_of(node)
        trial = trials[node_id]
        if not trial.fits(shape):
            return None
        cards = trial.pick_cards(shape)
        trial.take(f"rank {rank}", shape, cards)
        spots.append(Spot(node_id, cards))
    return tuple(spots)


def copy_of(node: Node) -> Node:
    """The same node, to try things on."""
    return msgspec.structs.replace(
        node, free_cards=[*node.free_cards], lost_cards=[*node.lost_cards], uses={**node.uses}
    )
