"""Where a container goes: the policies that choose a node and its cards, behind one face."""

from collections.abc import Callable
from typing import Final

from .face import Placement, Spot
from .fgd import Fgd
from .published import BestFit, Clustering, DotProduct, Packing, PublishedBestFit, Random
from .simple import best_fit, shortfall

PLACEMENTS: Final[dict[str, Callable[[], Placement]]] = {
    "best_fit": BestFit,
    "fgd": Fgd,
    "packing": Packing,
    "dot_product": DotProduct,
    "clustering": Clustering,
    "random": Random,
}

__all__ = ["PLACEMENTS", "Placement", "PublishedBestFit", "Spot", "best_fit", "shortfall"]
