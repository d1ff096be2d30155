"""What files say of queues and quotas: read, checked, and with the identities of the workspaces that it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from ..actors.committing import Surroundings
from ..errors import ConfigError, Refused
from ..model.ids import Chance
from ..model.queue_tables import QueueingTable, queueing_of
from ..model.queueing_checks import check_queueing
from ..model.queues import Queueing
from ..store import operations as ops
from ..store.operations import rows_of

_PLACE: Final = re.compile(r" - at `\$\.?(.*)`$")


def read_queueing(found: object, path: Path) -> QueueingTable:
    """`[queueing]` of a configuration file. Raises `ConfigError` with the place and what is wrong there."""
    try:
        table = msgspec.convert(found, QueueingTable)
        check_queueing(queueing_of(table))
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        where = f"queueing.{place[1]}".rstrip(".") if place else "queueing"
        raise ConfigError(f"{path}: {where}: {_PLACE.sub('', str(error))}. See docs/configuration.md.") from error
    except Refused as refused:
        raise ConfigError(f"{path}: queueing: {refused}") from refused
    return table


async def queueing_of_files(around: Surroundings, table: QueueingTable, chance: Chance) -> Queueing:
    """The configuration for the actors. Workspaces that it names and that are not there are made: twice is once."""
    named = {queue.workspace for queue in table.queues} | {share.workspace for share in table.shares}
    known = await _workspaces(around)
    missing = sorted(named - known.keys() - set(known.values()))
    if missing:
        now_s = around.clock()
        made = [ops.CreateWorkspace(workspace_id=chance.id("ws"), name=name, now_s=now_s) for name in missing]
        await around.store.apply(*made, epoch=around.epoch)
        known = await _workspaces(around)
    return queueing_of(table, known)


async def _workspaces(around: Surroundings) -> dict[str, str]:
    (rows,) = await around.store.apply(ops.ListWorkspaces())
    return {row.name: row.workspace_id for row in rows_of(rows, ops.WorkspaceRow)}
