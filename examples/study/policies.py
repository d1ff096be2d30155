"""The policies that are compared: the six of the FGD paper (USENIX ATC 2023), and the scheduler's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from levers9.actors.scheduler.placement import PLACEMENTS, Placement, PublishedBestFit

OURS: Final = "ours"
POLICIES: Final[dict[str, Callable[[], Placement]]] = {
    "random": PLACEMENTS["random"],
    "dot_product": PLACEMENTS["dot_product"],
    "clustering": PLACEMENTS["clustering"],
    "packing": PLACEMENTS["packing"],
    "best_fit": PublishedBestFit,
    "fgd": PLACEMENTS["fgd"],
    OURS: PLACEMENTS["ours"],
}
