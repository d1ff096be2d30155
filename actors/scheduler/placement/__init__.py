"""Where a container goes: the policies that choose a node and its cards, behind one face."""

from collections.abc import Callable
from typing import Final

from .face import Placement, Spot
from .fgd import Fgd
from .published import BestFit, Clustering, DotProduct, Packing, PublishedBestFit, Random


def _ours() -> Placement:
    from .ours import Ours  # it loads numpy, which only this policy needs

    return Ours()


PLACEMENTS: Final[dict[str, Callable[[], Placement]]] = {
    "best_fit": BestFit,
    "fgd": Fgd,
    "packing": Packing,
    "dot_product": DotProduct,
    "clustering": Clustering,
    "random": Random,
    "ours": _ours,
}

DEFAULT: Final = "ours"


def new_placement(name: str) -> Placement:
    """A policy by its name; "" is the default. Raises KeyError for a name that there is not."""
    return PLACEMENTS[name or DEFAULT]()


__all__ = ["DEFAULT", "PLACEMENTS", "Placement", "PublishedBestFit", "Spot", "new_placement"]
