"""Leadership, workspaces, tokens and stubs in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ...model.states import TokenKind
from ...wire.client import StubSpec
from ..operations import (
    CreateToken,
    CreateTokens,
    CreateWorkspace,
    FindToken,
    FindTokenOf,
    Leadership,
    ListTokens,
    ListWorkspaces,
    Operation,
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
from .plans import Arguments, Record, nothing, read, write

_encode: Final = msgspec.json.Encoder().encode
_decode_spec: Final = msgspec.json.Decoder(StubSpec).decode

_READ_LEADERSHIP: Final = "SELECT epoch, holder, url, renewed_at_s FROM leadership"


def _leadership(_: Operation, rows: Sequence[Record]) -> Leadership | None:
    if not rows:
        return None
    epoch, holder, url, renewed_at_s = rows[0]
    return Leadership(epoch=epoch, holder=holder, url=url, renewed_at_s=renewed_at_s)


read(ReadLeadership, _READ_LEADERSHIP, nothing, _leadership)
# The UPDATE judges its condition before it locks: asking for what is not free never waits for the leader.
read(
    TakeLeadership,
    _READ_LEADERSHIP,
    nothing,
    _leadership,
    after=(
        """
        WITH next AS (
            UPDATE leadership SET epoch = epoch + 1, holder = $1, url = $2, renewed_at_s = $3
            WHERE holder = '' OR (epoch = $4::int8 AND renewed_at_s = $5::float8)
        )
        INSERT INTO leadership (epoch, holder, url, renewed_at_s)
        SELECT 1, $1, $2, $3 WHERE NOT EXISTS (SELECT 1 FROM leadership)
        ON CONFLICT DO NOTHING
        """,
        lambda o: (o.holder, o.url, o.now_s, o.silent_epoch, o.silent_since_s),
    ),
)
read(
    RenewLeadership,
    _READ_LEADERSHIP,
    nothing,
    _leadership,
    after=(
        "UPDATE leadership SET renewed_at_s = $2 WHERE epoch = $1::int8 AND holder <> ''",
        lambda o: (o.epoch, o.now_s),
    ),
)
write(
    ResignLeadership,
    """
    done AS (
        UPDATE leadership SET holder = '', url = '', renewed_at_s = 0
        WHERE epoch = $2::int8 AND holder <> '' AND (SELECT yes FROM allowed)
        RETURNING epoch::text
    )
    """,
    lambda o: (o.epoch,),
    ids="epoch",
)

write(
    CreateWorkspace,
    """
    done AS (
        INSERT INTO workspaces (workspace_id, name, created_at_s)
        SELECT $2, $3, $4::float8 WHERE (SELECT yes FROM allowed)
        ON CONFLICT DO NOTHING RETURNING workspace_id
    )
    """,
    lambda o: (o.workspace_id, o.name, o.now_s),
    ids="workspace_id",
)
read(
    ListWorkspaces,
    "SELECT workspace_id, name, created_at_s FROM workspaces ORDER BY name",
    nothing,
    lambda _, rows: tuple([WorkspaceRow(workspace_id=row[0], name=row[1], created_at_s=row[2]) for row in rows]),
)

write(
    CreateToken,
    """
    done AS (
        INSERT INTO tokens (token_id, workspace_id, kind, name, hash, hint, active, created_at_s, subject)
        SELECT $2, $3, $4, $5, $6::bytea, $7, $8::bool, $9::float8, $10 WHERE (SELECT yes FROM allowed)
        ON CONFLICT DO NOTHING RETURNING token_id
    )
    """,
    lambda o: (
        o.token.token_id,
        o.token.workspace_id,
        o.token.kind.value,
        o.token.name,
        o.token.hash,
        o.token.hint,
        o.token.active,
        o.token.created_at_s,
        o.token.subject,
    ),
    ids="token_id",
)


def _create_tokens_arguments(operation: CreateTokens) -> Arguments:
    rows = sorted(operation.tokens, key=lambda row: row.token_id)
    return (
        [row.token_id for row in rows],
        [row.workspace_id for row in rows],
        [row.kind.value for row in rows],
        [row.name for row in rows],
        [row.hash for row in rows],
        [row.hint for row in rows],
        [row.active for row in rows],
        [row.created_at_s for row in rows],
        [row.subject for row in rows],
    )


write(
    CreateTokens,
    """
    done AS (
        INSERT INTO tokens (token_id, workspace_id, kind, name, hash, hint, active, created_at_s, subject)
        SELECT token_id, workspace_id, kind, name, hash, hint, active, created_at_s, subject
        FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::bool[], $9::float8[],
            $10::text[]) AS g(token_id, workspace_id, kind, name, hash, hint, active, created_at_s, subject)
        WHERE (SELECT yes FROM allowed)
        ON CONFLICT DO NOTHING RETURNING token_id
    )
    """,
    _create_tokens_arguments,
    ids="token_id",
    given=lambda o: [row.token_id for row in o.tokens],
)

_READ_TOKENS: Final = """
SELECT token_id, workspace_id, kind, name, hash, hint, active, created_at_s, subject FROM tokens
"""


def _token(row: Record) -> TokenRow:
    return TokenRow(
        token_id=row[0],
        workspace_id=row[1],
        kind=TokenKind(row[2]),
        name=row[3],
        hash=row[4],
        hint=row[5],
        active=row[6],
        created_at_s=row[7],
        subject=row[8],
    )


read(
    FindToken,
    _READ_TOKENS + "WHERE hash = $1 AND active",
    lambda o: (o.hash,),
    lambda _, rows: _token(rows[0]) if rows else None,
)
read(
    FindTokenOf,
    _READ_TOKENS + "WHERE subject = $1 AND active ORDER BY created_at_s DESC, token_id DESC LIMIT 1",
    lambda o: (o.subject,),
    lambda _, rows: _token(rows[0]) if rows else None,
)
read(
    ListTokens,
    _READ_TOKENS + "WHERE $1::text IS NULL OR workspace_id = $1 ORDER BY created_at_s, token_id",
    lambda o: (o.workspace_id,),
    lambda _, rows: tuple([_token(row) for row in rows]),
)
write(
    RevokeTokens,
    """
    done AS (
        UPDATE tokens SET active = false
        WHERE active AND (token_id = ANY($2::text[]) OR subject = ANY($3::text[]))
            AND ($4::text IS NULL OR workspace_id = $4) AND (SELECT yes FROM allowed)
        RETURNING token_id
    )
    """,
    lambda o: (o.token_ids, o.subjects, o.workspace_id),
    ids="token_id",
    order="token_id",
)

write(
    PutStub,
    """
    done AS (
        INSERT INTO stubs (stub_id, workspace_id, spec, created_at_s)
        SELECT $2, $3, $4::bytea, $5::float8 WHERE (SELECT yes FROM allowed)
        ON CONFLICT DO NOTHING RETURNING stub_id
    )
    """,
    lambda o: (o.stub.stub_id, o.stub.workspace_id, _encode(o.stub.spec), o.stub.created_at_s),
    ids="stub_id",
)


def _stub(row: Record) -> StubRow:
    return StubRow(stub_id=row[0], workspace_id=row[1], spec=_decode_spec(row[2]), created_at_s=row[3])


read(
    ReadStubs,
    """
    SELECT stub_id, workspace_id, spec, created_at_s FROM stubs
    WHERE (cardinality($1::text[]) = 0 OR stub_id = ANY($1)) AND ($2::text IS NULL OR workspace_id = $2)
    ORDER BY created_at_s, stub_id
    """,
    lambda o: (o.stub_ids, o.workspace_id),
    lambda _, rows: tuple([_stub(row) for row in rows]),
)
