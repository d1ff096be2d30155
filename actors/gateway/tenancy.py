"""Whose containers are where: what a worker's token may touch of the workspaces that it serves."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from ...errors import FORBIDDEN, INVALID, Refused
from ...model.states import ContainerState, TokenKind
from ...model.tokens import Principal
from ...store.face import Store
from ...store.operations import ContainerRow, ReadContainers, rows_of

CONTAINERS_KEPT: Final = 50_000


class Tenancy:
    """Answers from the containers that it read of the store, and reads one more when it does not know it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: OrderedDict[str, ContainerRow] = OrderedDict()
        self._served: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def container(self, container_id: str) -> ContainerRow | None:
        """The container as it is now; one whose end is known is not read again."""
        known = self._rows.get(container_id)
        if not container_id or (known is not None and known.state is ContainerState.ENDED):
            return known
        await self._read(ReadContainers(container_ids=(container_id,)))
        return self._rows.get(container_id)

    async def workspace_of(self, container_id: str, worker: Principal) -> str:
        """The workspace of a container on this worker.

        Raises `Refused` when the container is not this worker's, or its token is for another workspace.
        """
        worker_id = worker.subject
        known = self._rows.get(container_id)
        if known is None or known.worker_id != worker_id:
            await self._read(ReadContainers(container_ids=(container_id,)))
            known = self._rows.get(container_id)
        if known is None or known.worker_id != worker_id:
            raise Refused(f"Container {container_id!r} is not on worker {worker_id!r}.", code=FORBIDDEN)
        if worker.workspace_id not in ("", known.workspace_id):
            raise Refused(f"The token of worker {worker_id!r} is for another workspace.", code=FORBIDDEN)
        return known.workspace_id

    async def workspace_for(self, principal: Principal, asked: str) -> str:
        """The workspace whose objects a request means. Raises `Refused` for one that this token has no part in."""
        if principal.workspace_id:
            return _own(principal.workspace_id, asked)
        if not asked:
            raise Refused("Which workspace?", "This token belongs to none.", "Add ?workspace=ID.", INVALID)
        if principal.kind is not TokenKind.CLUSTER_ADMIN and not await self._serves(principal.subject, asked):
            raise Refused(f"Worker {principal.subject!r} has no container of this workspace.", code=FORBIDDEN)
        return asked

    async def _serves(self, worker_id: str, workspace_id: str) -> bool:
        """A container's last logs and results may come after its end, so one that was there is enough."""
        if worker_id and (worker_id, workspace_id) not in self._served:
            await self._read(ReadContainers(worker_id=worker_id, workspace_id=workspace_id, limit=1))
        return (worker_id, workspace_id) in self._served

    async def _read(self, operation: ReadContainers) -> None:
        (rows,) = await self._store.apply(operation)
        for row in rows_of(rows, ContainerRow):
            self._rows[row.container_id] = row
            self._rows.move_to_end(row.container_id)
            if row.worker_id:
                self._served[row.worker_id, row.workspace_id] = None
        for kept in (self._rows, self._served):
            while len(kept) > CONTAINERS_KEPT:
                kept.popitem(last=False)


def _own(workspace_id: str, asked: str) -> str:
    if asked not in ("", workspace_id):
        raise Refused("This token is for another workspace.", fix="Leave ?workspace out.", code=FORBIDDEN)
    return workspace_id
