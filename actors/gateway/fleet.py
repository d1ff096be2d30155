"""What an operator's metrics tell beyond one gateway: the actors of the brain that leads, workers and containers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from ...errors import LeversError, StoreUnavailable
from ...model.states import TokenKind
from ...model.tokens import Principal
from ...store.face import Store
from ...store.operations import ContainerRow, LoadContainers, LoadWorkers, WorkerRow
from ...wire.control import Inspect, Inspected
from .questions import Questions

ANSWER_WITHIN_S: Final = 3.0  # well within the 10 s that Prometheus waits; what is late is left out
_ASKER: Final = Principal(token_id="metrics", workspace_id="", kind=TokenKind.CLUSTER_ADMIN)


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. `tree` is None when no brain answered, `store_read_s` when the store did not."""

    tree: Inspected | None
    workers: tuple[tuple[str, str, int], ...] = ()
    containers: tuple[tuple[str, int], ...] = ()
    store_read_s: float | None = None


class FleetObserver:
    """Looks when asked; nothing is kept."""

    def __init__(self, store: Store, questions: Questions, clock: Callable[[], float] = trio.current_time) -> None:
        self._store = store
        self._questions = questions
        self._clock = clock

    async def look(self) -> Fleet:
        """The platform now, as far as it answers within 3 s."""
        tree = await self._tree()
        began_s = self._clock()
        with trio.move_on_after(ANSWER_WITHIN_S):
            try:
                workers, containers = await self._store.apply(LoadWorkers(), LoadContainers())
            except StoreUnavailable:
                return Fleet(tree=tree)
            return Fleet(
                tree=tree,
                workers=_workers(workers),
                containers=_containers(containers),
                store_read_s=self._clock() - began_s,
            )
        return Fleet(tree=tree)

    async def _tree(self) -> Inspected | None:
        answer: object = None
        with trio.move_on_after(ANSWER_WITHIN_S):
            try:
                answer = await self._questions.ask(Inspect(), _ASKER)
            except LeversError:
                return None  # the metric that says whether the brain is linked tells it
        return answer if isinstance(answer, Inspected) else None


def _workers(rows: object) -> tuple[tuple[str, str, int], ...]:
    found = Counter((row.pool, str(row.state)) for row in _rows(rows) if isinstance(row, WorkerRow))
    return tuple((pool, state, count) for (pool, state), count in sorted(found.items()))


def _containers(rows: object) -> tuple[tuple[str, int], ...]:
    found = Counter(str(row.state) for row in _rows(rows) if isinstance(row, ContainerRow))
    return tuple(sorted(found.items()))


def _rows(rows: object) -> tuple[object, ...]:
    return rows if isinstance(rows, tuple) else ()
