"""Leadership, workspaces, tokens and stubs in dicts."""

from __future__ import annotations

from msgspec.structs import replace

from ..operations import (
    Applied,
    CreateToken,
    CreateTokens,
    CreateWorkspace,
    FindToken,
    FindTokenOf,
    Leadership,
    ListTokens,
    ListWorkspaces,
    PutStub,
    ReadLeadership,
    ReadStubs,
    RenewLeadership,
    ResignLeadership,
    RevokeTokens,
    StubRow,
    TakeLeadership,
    TokenRow,
    WorkspaceRow,
)
from .tables import Tables, carries_out, in_given_order, insert_new


@carries_out(TakeLeadership)
def _take(tables: Tables, operation: TakeLeadership) -> Leadership:
    now = tables.leadership
    silent = (operation.silent_epoch, operation.silent_since_s)
    if now is not None and now.holder and (now.epoch, now.renewed_at_s) != silent:
        return now
    taken = Leadership(
        epoch=now.epoch + 1 if now else 1,
        holder=operation.holder,
        url=operation.url,
        renewed_at_s=operation.now_s,
    )
    tables.leadership = taken
    return taken


@carries_out(RenewLeadership)
def _renew(tables: Tables, operation: RenewLeadership) -> Leadership | None:
    if tables.leadership is not None and tables.leads(operation.epoch):
        tables.leadership = replace(tables.leadership, renewed_at_s=operation.now_s)
    return tables.leadership


@carries_out(ReadLeadership)
def _read_leadership(tables: Tables, _: ReadLeadership) -> Leadership | None:
    return tables.leadership


@carries_out(ResignLeadership)
def _resign(tables: Tables, operation: ResignLeadership) -> Applied:
    if tables.leadership is None or not tables.leads(operation.epoch):
        return Applied()
    tables.leadership = replace(tables.leadership, holder="", url="", renewed_at_s=0.0)
    return Applied(ids=(str(operation.epoch),))


@carries_out(CreateWorkspace)
def _create_workspace(tables: Tables, operation: CreateWorkspace) -> Applied:
    if any(row.name == operation.name for row in tables.workspaces.values()):
        return Applied()
    row = WorkspaceRow(workspace_id=operation.workspace_id, name=operation.name, created_at_s=operation.now_s)
    return Applied(ids=insert_new(tables.workspaces, [(row.workspace_id, row)]))


@carries_out(ListWorkspaces)
def _list_workspaces(tables: Tables, _: ListWorkspaces) -> tuple[WorkspaceRow, ...]:
    return tuple(sorted(tables.workspaces.values(), key=lambda row: row.name))


@carries_out(CreateToken)
def _create_token(tables: Tables, operation: CreateToken) -> Applied:
    return _insert_tokens(tables, (operation.token,))


@carries_out(CreateTokens)
def _create_tokens(tables: Tables, operation: CreateTokens) -> Applied:
    return _insert_tokens(tables, operation.tokens)


def _insert_tokens(tables: Tables, tokens: tuple[TokenRow, ...]) -> Applied:
    """By id, as Postgres takes them: of two with one hash the first stays."""
    hashes = {row.hash for row in tables.tokens.values()}
    new: set[str] = set()
    for token in sorted(tokens, key=lambda row: row.token_id):
        if token.hash not in hashes and insert_new(tables.tokens, [(token.token_id, token)]):
            hashes.add(token.hash)
            new.add(token.token_id)
    return Applied(ids=in_given_order((token.token_id for token in tokens), new))


@carries_out(FindToken)
def _find_token(tables: Tables, operation: FindToken) -> TokenRow | None:
    return next((row for row in tables.tokens.values() if row.active and row.hash == operation.hash), None)


@carries_out(FindTokenOf)
def _find_token_of(tables: Tables, operation: FindTokenOf) -> TokenRow | None:
    rows = [row for row in tables.tokens.values() if row.active and row.subject == operation.subject]
    return max(rows, key=lambda row: (row.created_at_s, row.token_id), default=None)


@carries_out(ListTokens)
def _list_tokens(tables: Tables, operation: ListTokens) -> tuple[TokenRow, ...]:
    rows = [row for row in tables.tokens.values() if operation.workspace_id in (None, row.workspace_id)]
    return tuple(sorted(rows, key=lambda row: (row.created_at_s, row.token_id)))


@carries_out(RevokeTokens)
def _revoke(tables: Tables, operation: RevokeTokens) -> Applied:
    ids, subjects = set(operation.token_ids), set(operation.subjects)
    hit = sorted(
        row.token_id
        for row in tables.tokens.values()
        if row.active
        and (row.token_id in ids or row.subject in subjects)
        and operation.workspace_id in (None, row.workspace_id)
    )
    for token_id in hit:
        tables.tokens[token_id] = replace(tables.tokens[token_id], active=False)
    return Applied(ids=tuple(hit))


@carries_out(PutStub)
def _put_stub(tables: Tables, operation: PutStub) -> Applied:
    return Applied(ids=insert_new(tables.stubs, [(operation.stub.stub_id, operation.stub)]))


@carries_out(ReadStubs)
def _read_stubs(tables: Tables, operation: ReadStubs) -> tuple[StubRow, ...]:
    wanted = set(operation.stub_ids)
    rows = [
        row
        for row in tables.stubs.values()
        if (not wanted or row.stub_id in wanted) and operation.workspace_id in (None, row.workspace_id)
    ]
    return tuple(sorted(rows, key=lambda row: (row.created_at_s, row.stub_id)))
