"""Where a container goes: the policies that choose a node and its cards, behind one face."""

from .simple import best_fit, shortfall

__all__ = ["best_fit", "shortfall"]
