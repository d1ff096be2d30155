"""The truth in dicts: the same operations, for policies, worlds in virtual time, and as the model of the real one."""

from .store import MemoryStore

__all__ = ["MemoryStore"]
