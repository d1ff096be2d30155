"""Workspaces and tokens: who may do what. A token's value is shown once, when it is made."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from starlette.responses import Response

from ....errors import FORBIDDEN, INVALID, NOT_FOUND, Refused
from ....model.routes import GRANTABLE, grants
from ....model.states import TokenKind
from ....model.tokens import SECRET_BYTES, make_token
from ....store.operations import (
    Applied,
    CreateToken,
    CreateWorkspace,
    ListTokens,
    ListWorkspaces,
    RevokeTokens,
    TokenRow,
    WorkspaceRow,
)
from ....store.wakeups import TOKENS_CHANNEL
from .answers import CONFLICT, Answer, json_answer
from .bodies import read_json
from .desk import Call

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NAME_MAX: Final = 200
_BOUND_TO_A_SUBJECT: Final = frozenset({TokenKind.WORKER, TokenKind.WORKER_PRIVATE})
_OF_THE_PLATFORM: Final = frozenset(
    {TokenKind.CLUSTER_ADMIN, TokenKind.WORKER, TokenKind.MACHINE, TokenKind.AGENT, TokenKind.REPLICA}
)


class NewWorkspace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workspace to make."""

    name: str


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to make. `workspace` is a workspace's id or name; left out, it is the caller's own."""

    kind: TokenKind = TokenKind.WORKSPACE
    name: str = ""
    workspace: str = ""
    subject: str = ""


class WorkspaceView(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace."""

    workspace_id: str
    name: str
    created_at_s: float


class WorkspaceCreated(Answer, frozen=True, kw_only=True):
    """A new workspace, and its first token, which is shown here and never again."""

    workspace_id: str
    name: str
    token: str


class WorkspaceList(Answer, frozen=True, kw_only=True):
    """Workspaces, by name."""

    workspaces: tuple[WorkspaceView, ...]


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without its value."""

    token_id: str
    workspace_id: str
    kind: TokenKind
    name: str
    hint: str
    active: bool
    created_at_s: float
    subject: str


class TokenCreated(TokenView, frozen=True, kw_only=True):
    """A new token: its value is shown here and never again."""

    ok: bool = True
    token: str


class TokenList(Answer, frozen=True, kw_only=True):
    """Tokens, oldest first."""

    tokens: tuple[TokenView, ...]


class TokenRevoked(Answer, frozen=True, kw_only=True):
    """This token is good for nothing from now on."""

    token_id: str


class Whoami(Answer, frozen=True, kw_only=True):
    """Who the caller is."""

    token_id: str
    workspace_id: str
    workspace: str
    kind: TokenKind
    subject: str


async def workspaces(call: Call) -> Response:
    """All workspaces."""
    shown = (
        WorkspaceView(workspace_id=row.workspace_id, name=row.name, created_at_s=row.created_at_s)
        for row in await _workspaces(call)
    )
    return json_answer(WorkspaceList(workspaces=tuple(shown)))


async def create_workspace(call: Call) -> Response:
    """Make a workspace and its primary token, in one transaction."""
    wanted = await read_json(call.request, NewWorkspace)
    if not _NAME.fullmatch(wanted.name):
        rule = "A name has 1 to 63 of a-z, 0-9 and -, and neither begins nor ends with -."
        raise Refused(f"{wanted.name[:80]!r} is not a name for a workspace.", fix=rule, code=INVALID)
    workspace_id, now_s = call.desk.chance.id("ws"), call.desk.clock()
    create = CreateWorkspace(workspace_id=workspace_id, name=wanted.name, now_s=now_s)
    (made,) = await call.desk.store.apply(create)
    if not isinstance(made, Applied) or not made.ids:
        raise Refused(f"There is a workspace {wanted.name!r} already.", fix="Choose another name.", code=CONFLICT)
    row, value = _draw(call, NewToken(kind=TokenKind.WORKSPACE_PRIMARY, name="primary"), workspace_id)
    await call.desk.store.apply(CreateToken(token=row))
    return json_answer(WorkspaceCreated(workspace_id=workspace_id, name=wanted.name, token=value), 201)


async def tokens(call: Call) -> Response:
    """The tokens of the caller's workspace, with hints in place of values."""
    (rows,) = await call.desk.store.apply(ListTokens(workspace_id=call.scope))
    shown = (_view(row) for row in rows if isinstance(row, TokenRow)) if isinstance(rows, tuple) else ()
    return json_answer(TokenList(tokens=tuple(shown)))


async def create_token(call: Call) -> Response:
    """Make a token of a kind that the caller may grant."""
    wanted = await read_json(call.request, NewToken)
    _check_grant(call, wanted)
    row, value = _draw(call, wanted, await _workspace_of(call, wanted))
    await call.desk.store.apply(CreateToken(token=row))
    created = TokenCreated(**msgspec.structs.asdict(_view(row)), token=value)
    return json_answer(created, 201)


async def revoke_token(call: Call) -> Response:
    """Revoke a token. Its open streams are closed, on every gateway."""
    token_id = call.parameter("token_id")
    (rows,) = await call.desk.store.apply(ListTokens(workspace_id=call.scope))
    known = [row for row in rows if isinstance(row, TokenRow)] if isinstance(rows, tuple) else []
    row = next((one for one in known if one.token_id == token_id), None)
    if row is None:
        raise Refused(f"There is no token {token_id!r}.", fix="`levers9 token list` shows them.", code=NOT_FOUND)
    if row.token_id != call.principal.token_id and not grants(call.principal.kind, row.kind):
        raise Refused(f"A token of kind {call.principal.kind} may not revoke one of kind {row.kind}.", code=FORBIDDEN)
    await call.desk.store.apply(RevokeTokens(token_ids=(token_id,), workspace_id=call.scope))
    call.desk.gate.forget((token_id,))
    await call.desk.wakeups.publish(TOKENS_CHANNEL, token_id)
    return json_answer(TokenRevoked(token_id=token_id))


async def whoami(call: Call) -> Response:
    """Who the caller is."""
    who = call.principal
    names = {row.workspace_id: row.name for row in await _workspaces(call)} if who.workspace_id else {}
    answer = Whoami(
        token_id=who.token_id,
        workspace_id=who.workspace_id,
        workspace=names.get(who.workspace_id, ""),
        kind=who.kind,
        subject=who.subject,
    )
    return json_answer(answer)


async def _workspaces(call: Call) -> list[WorkspaceRow]:
    (rows,) = await call.desk.store.apply(ListWorkspaces())
    return [row for row in rows if isinstance(row, WorkspaceRow)] if isinstance(rows, tuple) else []


async def _workspace_of(call: Call, wanted: NewToken) -> str:
    """The id of the workspace in which a token is made."""
    if not wanted.workspace:
        return "" if wanted.kind in _OF_THE_PLATFORM else _own_workspace(call)
    for row in await _workspaces(call):
        if wanted.workspace in (row.workspace_id, row.name) and call.scope in (None, row.workspace_id):
            return row.workspace_id
    raise Refused(f"There is no workspace {wanted.workspace!r}.", "It does not exist, or is not yours.", code=NOT_FOUND)


def _own_workspace(call: Call) -> str:
    if not call.principal.workspace_id:
        raise Refused("For which workspace?", "Your token belongs to none.", "Say `workspace`.", INVALID)
    return call.principal.workspace_id


def _check_grant(call: Call, wanted: NewToken) -> None:
    if not grants(call.principal.kind, wanted.kind):
        kinds = ", ".join(sorted(GRANTABLE.get(call.principal.kind, ())))
        raise Refused(f"You may not make a token of kind {wanted.kind}.", f"You may make: {kinds}.", code=FORBIDDEN)
    if wanted.kind in _BOUND_TO_A_SUBJECT and not wanted.subject:
        raise Refused("For which worker?", "A worker's token is for one worker.", "Say `subject`.", INVALID)
    if len(wanted.name) > _NAME_MAX or len(wanted.subject) > _NAME_MAX:
        raise Refused("The name is too long.", f"The limit is {_NAME_MAX} characters.", code=INVALID)


def _draw(call: Call, wanted: NewToken, workspace_id: str) -> tuple[TokenRow, str]:
    value = make_token(wanted.kind, call.desk.secret(SECRET_BYTES))
    row = TokenRow.of(
        value,
        wanted.kind,
        workspace_id,
        wanted.name or str(wanted.kind),
        token_id=call.desk.chance.id("token"),
        now_s=call.desk.clock(),
        subject=wanted.subject,
    )
    return row, value


def _view(row: TokenRow) -> TokenView:
    return TokenView(
        token_id=row.token_id,
        workspace_id=row.workspace_id,
        kind=row.kind,
        name=row.name,
        hint=row.hint,
        active=row.active,
        created_at_s=row.created_at_s,
        subject=row.subject,
    )
