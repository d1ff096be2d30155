"""The pools there are, pure: those of the configuration, and those that people create and delete while it runs.

A pool is a row before it is an actor. One that is taken away keeps its row, emptied, until its last worker has gone:
a new leader goes on draining it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ...errors import FORBIDDEN, INVALID, NOT_FOUND, Refused
from ...model.clusters import JOB_HANDLE, pool_of
from ...model.states import TokenKind, WorkerState
from ...store import operations as ops
from ...wire import scheduling
from ...wire.client import RequestRefused
from ...wire.letter import Letter
from ...wire.message import Failure, Message, Send
from ...wire.operating import CreatePool, DeletePool, PoolsStand, PoolStanding, PoolTold, ReadPools
from .settings import PoolSettings, retiring

POOLS_MAX: Final = 1_000  # each is an actor
CONFLICT: Final = "conflict"
_LEAVING: Final = ""  # instead of a pool's keys, when it is taken away


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """Start this pool's actor, in place of one of that name."""

    settings: PoolSettings


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """Stop this pool's actor: it has no worker any more."""

    name: str


class RegistryPlan(msgspec.Struct, kw_only=True):
    """Operations of one transaction, and what follows from it."""

    operations: list[ops.Operation]
    sends: list[Send]
    changes: list[Begin | Finish]


class PoolRegistry:
    """Owns the list of pools. `read(name, table)` makes settings of a pool's keys, or raises `Refused`."""

    def __init__(self, configured: Iterable[str], read: Callable[[str, str, int], PoolSettings]) -> None:
        self._configured = tuple(configured)
        self._read = read
        self._created: dict[str, bool] = {}  # by name, whether it is leaving
        self._standings: dict[str, PoolStanding] = {}
        self._operations: list[ops.Operation] = []
        self._sends: list[Send] = []
        self._changes: list[Begin | Finish] = []

    def load(
        self,
        rows: Iterable[ops.PoolSpecRow],
        workers: Iterable[ops.WorkerRow],
        clusters: Iterable[ops.ClusterRow] = (),
    ) -> None:
        """Begin from the store. Workers of a pool that nobody declares any more are drained; those of clusters are
        not our business, but for those that a cluster left behind: it went, and their end was not kept.
        """
        attached = [pool_of(row.workspace_id, row.spec.name) for row in clusters]
        for row in rows:
            if row.name in self._configured:
                self._operations.append(ops.DropPoolSpec(name=row.name))  # the file has taken it over
            elif row.table == _LEAVING:
                self._leave(row.name)
            else:
                self._begin(row.name, row.table)
        for worker in workers:
            known = (*self._configured, *self._created, *attached)
            if worker.state is not WorkerState.GONE and worker.pool not in known:
                self._leave(worker.pool, attached=worker.handle.startswith(JOB_HANDLE))

    def _leave(self, name: str, *, attached: bool = False) -> None:
        self._created[name] = True
        self._changes.append(Begin(settings=retiring(name, attached=attached)))

    def _begin(self, name: str, table: str) -> None:
        """A pool whose keys are good no more, in a newer program, is taken away rather than forgotten."""
        try:
            settings = self._read(name, table, len(self._configured) + len(self._created))
        except Refused:
            self._leave(name)
            return
        self._created[name] = False
        self._changes.append(Begin(settings=settings))

    @property
    def names(self) -> tuple[str, ...]:
        """All pools that are not being taken away."""
        created = (name for name, leaving in self._created.items() if not leaving)
        return (*self._configured, *created, *self._attached())

    def _attached(self) -> tuple[str, ...]:
        """The pools of clusters, which begin and end elsewhere, as they came."""
        return tuple(
            name
            for name, standing in self._standings.items()
            if standing.attached and name not in self._configured and name not in self._created
        )

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter in: wishes of the platform's admins, and pools that have ended."""
        match letter.message:
            case CreatePool() | DeletePool() | ReadPools() as message:
                self._answer(letter, message)
            case PoolTold(standing=standing) if letter.source == f"pool/{standing.name}":
                self._standings[standing.name] = standing
            case scheduling.PoolRetired(pool=name) if letter.source == f"pool/{name}":
                self._standings.pop(name, None)
                if self._created.pop(name, False):
                    self._operations.append(ops.DropPoolSpec(name=name))
                    self._changes.append(Finish(name=name))

    def _answer(self, letter: Letter, message: CreatePool | DeletePool | ReadPools) -> None:
        said: Message
        try:
            if letter.kind != TokenKind.CLUSTER_ADMIN:
                raise Refused("Pools are the platform's.", fix="Use a token of kind cluster_admin.", code=FORBIDDEN)
            if isinstance(message, CreatePool):
                self._create(message.spec.name, message.spec.table)
            elif isinstance(message, DeletePool):
                self._delete(message.name)
            said = PoolsStand(names=self.names, pools=self._standing())
        except Refused as refused:
            said = RequestRefused(failure=Failure.of(refused))
        self._sends.append(Send(letter.source, said, letter.id))

    def _standing(self) -> tuple[PoolStanding, ...]:
        """Those of the file first, then the created ones and those of clusters as they came."""
        return tuple(
            msgspec.structs.replace(self._standings[name], created=name in self._created)
            for name in (*self._configured, *self._created, *self._attached())
            if name in self._standings
        )

    def _create(self, name: str, table: str) -> None:
        if self._created.get(name):
            fix = "Try again once its last worker has gone, or take another name."
            raise Refused(f"Pool {name!r} is being taken away.", fix=fix, code=CONFLICT)
        if name in self.names:
            raise Refused(f"There is a pool {name!r} already.", fix="Take another name.", code=CONFLICT)
        if len(self.names) >= POOLS_MAX:
            raise Refused(f"There are {POOLS_MAX} pools already.", fix="Delete one first.", code=INVALID)
        settings = self._read(name, table, len(self._configured) + len(self._created))
        self._created[name] = False
        self._operations.append(ops.PutPoolSpec(name=name, table=table))
        self._changes.append(Begin(settings=settings))

    def _delete(self, name: str) -> None:
        if name in self._configured:
            fix = "Take it out of the file, and start the control plane again."
            raise Refused(f"Pool {name!r} is in the configuration file.", fix=fix, code=CONFLICT)
        if name not in self._created:
            raise Refused(f"There is no pool {name!r}.", fix="See: levers9 pool list.", code=NOT_FOUND)
        if not self._created[name]:
            self._operations.append(ops.PutPoolSpec(name=name, table=_LEAVING))
            self._leave(name)

    def tick(self, now_s: float) -> None:
        """Nothing is owed to time."""

    def plan(self, now_s: float) -> RegistryPlan | None:
        """What the letters since the last plan amount to; None when there is nothing to do."""
        plan = RegistryPlan(operations=self._operations, sends=self._sends, changes=self._changes)
        self._operations, self._sends, self._changes = [], [], []
        return plan if plan.operations or plan.sends or plan.changes else None

    @staticmethod
    def settle(plan: RegistryPlan, answers: tuple[ops.Answer, ...]) -> list[Send]:
        """What to send now that the plan is committed."""
        return plan.sends
