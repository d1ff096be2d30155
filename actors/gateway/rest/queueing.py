"""Queues and quotas: how they are configured, and how they stand. The scheduler decides; the gateway translates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from ....errors import INVALID, NOT_FOUND, LeversError, Refused
from ....model.queue_tables import QueueingTable, queueing_of, table_of
from ....model.resources import Amount
from ....store.operations import ListWorkspaces, WorkspaceRow, rows_of
from ....wire.message import Message
from ....wire.operating import (
    ChangeQueueing,
    QueueingPart,
    QueueingStands,
    QueueStanding,
    QuotaStanding,
    ReadQueueing,
)
from .answers import Answer, json_answer
from .bodies import read_json
from .desk import Call

_OF_A_WORKSPACE: Final = {QueueingPart.QUEUES: "workspace/name", QueueingPart.SHARES: "workspace"}


class AmountView(msgspec.Struct, frozen=True, kw_only=True):
    """So much: CPUs, MiB, cards."""

    cpu: float
    memory_mib: int
    gpu: float


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: requests that wait, those that have room, and what they use. `share` is of all there is, from 0 to 1."""

    name: str
    workspace: str
    quota: str
    pending: int
    admitted: int
    used: AmountView
    share: float


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    """A flavor of a quota. What it has and borrows is the platform's: others see None."""

    name: str
    flavor: str
    pending: int
    admitted: int
    used: AmountView
    cohort: str | None = None
    nominal: AmountView | None = None
    borrowed: AmountView | None = None


class QueueingAnswer(Answer, frozen=True, kw_only=True):
    """How it stands; the configuration itself is for the platform's admin only."""

    queues: tuple[QueueView, ...]
    quotas: tuple[QuotaView, ...]
    queueing: QueueingTable | None = None


async def read(call: Call) -> Response:
    """The whole of it, or the caller's own part."""
    return await _ask(call, ReadQueueing())


async def apply(call: Call) -> Response:
    """Put everything that a file says; what it does not name stays."""
    table = await read_json(call.request, QueueingTable)
    return await _ask(call, ChangeQueueing(put=queueing_of(table, await _identities(call))))


async def put(call: Call) -> Response:
    """Put one thing, in place of what had its name."""
    part, name = _part(call), call.parameter("name")
    thing = await read_json(call.request, dict[str, msgspec.Raw])
    thing.update({key: msgspec.Raw(msgspec.json.encode(value)) for key, value in _keys(part, name).items()})
    try:
        table = msgspec.json.decode(msgspec.json.encode({str(part): [thing]}), type=QueueingTable)
    except msgspec.ValidationError as error:
        raise Refused("The body cannot be read.", str(error).replace(f"$.{part}[0]", "$"), code=INVALID) from error
    return await _ask(call, ChangeQueueing(put=queueing_of(table, await _identities(call))))


async def drop(call: Call) -> Response:
    """Take one thing away."""
    part, name = _part(call), call.parameter("name")
    if part in _OF_A_WORKSPACE:
        workspace, slash, rest = name.partition("/")
        name = (await _identities(call)).get(workspace, workspace) + slash + rest
    return await _ask(call, ChangeQueueing(drop=((part, name),)))


def _part(call: Call) -> QueueingPart:
    asked = call.parameter("part")
    try:
        return QueueingPart(asked)
    except ValueError:
        parts = ", ".join(QueueingPart)
        raise Refused(f"There is nothing named {asked[:40]!r} here.", fix=f"Parts: {parts}.", code=NOT_FOUND) from None


def _keys(part: QueueingPart, name: str) -> Mapping[str, str]:
    """The keys by which a thing of this part is known."""
    if part not in _OF_A_WORKSPACE:
        return {"name": name}
    if part is QueueingPart.SHARES:
        return {"workspace": name}
    workspace, _, queue = name.partition("/")
    if not queue:
        raise Refused(f"{name!r} is no queue.", fix=f"Say {_OF_A_WORKSPACE[part]}.", code=INVALID)
    return {"workspace": workspace, "name": queue}


async def _identities(call: Call) -> dict[str, str]:
    """The workspaces by their names."""
    (rows,) = await call.desk.store.apply(ListWorkspaces())
    return {row.name: row.workspace_id for row in rows_of(rows, WorkspaceRow)}


async def _ask(call: Call, question: Message) -> Response:
    names = {identity: name for name, identity in (await _identities(call)).items()}
    try:
        answer = await call.desk.questions.ask(question, call.principal)
    except Refused as refused:
        raise Refused(_named(refused.what, names), refused.why, refused.fix, refused.code) from refused
    if not isinstance(answer, QueueingStands):
        raise LeversError(f"the scheduler answered about queues with {type(answer).__name__}")
    if call.scope is None:
        return json_answer(
            QueueingAnswer(
                queues=tuple(_queue(each, names) for each in answer.queues),
                quotas=tuple(_quota(each) for each in answer.quotas),
                queueing=table_of(answer.queueing, names),
            )
        )
    return json_answer(_own(answer, call.scope, names))


def _named(words: str, names: Mapping[str, str]) -> str:
    """The scheduler knows workspaces by their identities, people by their names."""
    for identity, name in names.items():
        words = words.replace(identity, name)
    return words


def _own(answer: QueueingStands, workspace_id: str, names: Mapping[str, str]) -> QueueingAnswer:
    """What a workspace may see: its queues, and of their quotas what is used and waits."""
    queues = [each for each in answer.queues if each.workspace == workspace_id]
    mine = {each.quota for each in queues}
    quotas = [_quota(each) for each in answer.quotas if each.name in mine]
    return QueueingAnswer(
        queues=tuple(_queue(each, names) for each in queues),
        quotas=tuple(msgspec.structs.replace(each, cohort=None, nominal=None, borrowed=None) for each in quotas),
    )


def _queue(each: QueueStanding, names: Mapping[str, str]) -> QueueView:
    return QueueView(
        name=each.name,
        workspace=names.get(each.workspace, each.workspace),
        quota=each.quota,
        pending=each.pending,
        admitted=each.admitted,
        used=_amount(each.used),
        share=each.share_milli / 1000,
    )


def _quota(each: QuotaStanding) -> QuotaView:
    return QuotaView(
        name=each.name,
        flavor=each.flavor,
        pending=each.pending,
        admitted=each.admitted,
        used=_amount(each.used),
        cohort=each.cohort,
        nominal=_amount(each.nominal),
        borrowed=_amount(each.borrowed),
    )


def _amount(amount: Amount) -> AmountView:
    return AmountView(cpu=amount.cpu_milli / 1000, memory_mib=amount.memory_mib, gpu=amount.gpu_milli / 1000)
