"""Calls that run on several machines together: how near those are to each other, and who this one is among them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ..errors import INVALID, Refused
from ..model.gangs import GANG_MAX, NODE_LEVEL, Together, TopologyMode

Mode: TypeAlias = Literal["required", "preferred", "none"]
_MODES: Final = ", ".join(f'"{mode}"' for mode in TopologyMode)


@dataclass(frozen=True, slots=True)
class Topology:
    """How near to each other the containers of one call are to be.

    `level` is a node label such as "accelerator.topograph.run/domain", or "node". `mode` "required" waits until all fit
    into one domain of that level, "preferred" spreads them where they don't. With a `slice_size`, only so many
    neighbours by rank need share a domain.
    """

    level: str
    mode: Mode = "required"
    slice_size: int = 1


@dataclass(frozen=True, slots=True)
class Gang:
    """The containers that run this call: which of them this is, how many there are, and where rank 0 is reached.

    `address` is `host:port`; the port was free when rank 0 became ready, and is for its code to listen on.
    """

    rank: int
    world_size: int
    address: str


def gang() -> Gang:
    """Who this container is among those of the call that runs now; rank 0 of 1 where `nodes` is 1, and elsewhere."""
    environ = os.environ
    return Gang(
        rank=int(environ.get("LEVERS9_RANK", "0")),
        world_size=int(environ.get("LEVERS9_WORLD_SIZE", "1")),
        address=environ.get("LEVERS9_RANK0_ADDRESS", ""),
    )


def checked_nodes(nodes: object) -> int:
    """How many containers run one call. Raises `Refused` for what is no such number."""
    if not isinstance(nodes, int) or isinstance(nodes, bool) or not 1 <= nodes <= GANG_MAX:
        raise Refused(
            f"nodes={nodes!r} is not a number of containers.", fix=f"Give one from 1 to {GANG_MAX}.", code=INVALID
        )
    return nodes


def checked_topology(topology: object, nodes: int) -> Together:
    """How near a call's containers are to be. Raises `Refused` naming what is wrong."""
    if topology is None or topology == "":
        return Together()
    asked = Topology(topology) if isinstance(topology, str) else topology
    if not isinstance(asked, Topology):
        raise Refused(
            f"topology={topology!r} is not a topology.",
            fix='Give a node label, "node", or levers9.Topology(…).',
            code=INVALID,
        )
    if asked.mode not in tuple(TopologyMode):
        raise Refused(f"topology has mode={asked.mode!r}.", fix=f"Modes are {_MODES}.", code=INVALID)
    mode = TopologyMode(asked.mode)
    return Together(mode, _level(asked.level, mode), _slice_size(asked.slice_size, nodes))


def _level(level: object, mode: TopologyMode) -> str:
    is_label = isinstance(level, str) and level.isascii() and level.isprintable() and " " not in level
    if not isinstance(level, str) or not is_label or (not level and mode is not TopologyMode.NONE):
        raise Refused(
            f"topology has level={level!r}.",
            fix=f'Give a node label such as "accelerator.topograph.run/domain", or "{NODE_LEVEL}".',
            code=INVALID,
        )
    return level


def _slice_size(size: object, nodes: int) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1 or nodes % size:
        raise Refused(
            f"topology has slice_size={size!r} for nodes={nodes}.",
            "Every container belongs to one slice.",
            "Give a size that divides the number of nodes.",
            INVALID,
        )
    return size
