"""The face of a runtime: what every way to run a container does, whether it is a process tree or simulated."""

from __future__ import annotations

from typing import Protocol

import msgspec
import trio

from ....model.states import End
from ....wire.work import AttemptKey, AttemptOrder, AttemptResult
from ..events import Launch


class Revoked(msgspec.Struct, frozen=True, kw_only=True):
    """What became of attempts taken back, as in `AttemptsRevoked`."""

    dropped: tuple[AttemptKey, ...]
    started: tuple[AttemptKey, ...]


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a container ended by itself, as in `ContainerExited`; its whole tree is gone."""

    end: End
    why: str = ""
    started: tuple[AttemptKey, ...] = ()


class Sink(Protocol):
    """Who hears from a container. Called from the runtime's tasks; never blocks."""

    def loaded(self) -> None:
        """The person's function is there and can be called."""
        ...

    def finished(self, results: tuple[AttemptResult, ...]) -> None:
        """These attempts have run; a result is inline, whatever its size."""
        ...


class RunningContainer(Protocol):
    """A started container. Nothing here blocks."""

    def give(self, orders: tuple[AttemptOrder, ...]) -> None:
        """Run these after those given before. Arguments are inline."""
        ...

    def revoke(self, keys: frozenset[AttemptKey] | None) -> Revoked:
        """Take back those of `keys` (None: all) that have not started."""
        ...

    def terminate(self) -> None:
        """Ask the whole tree to end (SIGTERM)."""
        ...

    def kill(self) -> None:
        """End the whole tree (SIGKILL)."""
        ...


class Runtime(Protocol):
    """Runs containers."""

    async def run(self, launch: Launch, sink: Sink, *, task_status: trio.TaskStatus[RunningContainer]) -> Exit:
        """Run one to its end. Cancelling ends its tree at once.

        Raises `Refused` when it cannot be started, or `LeversError` when its code could not be fetched.
        """
        ...
