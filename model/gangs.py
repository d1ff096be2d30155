"""Containers that are admitted together: how near to each other they must be."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

NODE_LEVEL: Final = "node"  # below the last level of every topology
LEVELS_MAX: Final = 16
GANG_MAX: Final = 4096  # members


class TopologyMode(enum.StrEnum):
    """How strictly a gang keeps to one domain."""

    REQUIRED = "required"  # one domain of the level, or it waits
    PREFERRED = "preferred"  # one domain of the level if there is one, else of a coarser one, else spread
    NONE = "none"


class Together(msgspec.Struct, frozen=True):
    """A gang's wish for nearness: a level is a node label, or "node"; slices of members stay in one domain of it.

    `topology` is the name of a topology; "": any that has the level.
    """

    mode: TopologyMode = TopologyMode.NONE
    level: str = ""
    slice_size: int = 1
    topology: str = ""
