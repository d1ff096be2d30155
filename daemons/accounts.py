"""What a control plane begins with: a workspace, the first admin token, and the token that replicas show each other."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from ..actors.committing import Surroundings
from ..model.ids import Chance
from ..model.states import TokenKind
from ..model.tokens import SECRET_BYTES, hash_of, make_token
from ..store import operations as ops
from ..store.face import Store
from ..store.operations import rows_of

DEFAULT_WORKSPACE: Final = "default"


class Orders(Protocol):
    """The tokens that the root chose: `admin_token` may be empty, then the first one is made here and printed once."""

    @property
    def replica_id(self) -> str: ...  # noqa: D102
    @property
    def replica_token(self) -> str: ...  # noqa: D102
    @property
    def admin_token(self) -> str: ...  # noqa: D102


class FirstAdmin(msgspec.Struct, frozen=True, kw_only=True, tag="first_admin"):
    """The line by which a brain tells its root the first admin token; it is shown once and stored nowhere."""

    workspace: str
    token: str


class Settled(msgspec.Struct, frozen=True, kw_only=True, tag="settled"):
    """The line by which a brain tells its root that the admin token which the root chose is good from now on."""


async def ensure_accounts(around: Surroundings, orders: Orders, chance: Chance) -> str:
    """Make what the first leader of all finds missing; returns the default workspace. Twice is once."""
    workspaces, tokens = await around.store.apply(ops.ListWorkspaces(), ops.ListTokens())
    now_s = around.clock()
    operations: list[ops.Operation] = []
    workspace_id = _default_workspace(rows_of(workspaces, ops.WorkspaceRow), operations, chance, now_s)
    known = rows_of(tokens, ops.TokenRow)
    first = ""
    admin = orders.admin_token
    if not admin and not any(row.kind is TokenKind.CLUSTER_ADMIN and row.active for row in known):
        admin = first = make_token(TokenKind.CLUSTER_ADMIN, chance.secret(SECRET_BYTES))
    if admin and not any(row.hash == hash_of(admin) for row in known):
        token = _new_token(admin, TokenKind.CLUSTER_ADMIN, workspace_id, "first admin", chance, now_s)
        operations.append(ops.CreateToken(token=token))
    if operations:
        await around.store.apply(*operations, epoch=around.epoch)
    if first:
        print(msgspec.json.encode(FirstAdmin(workspace=DEFAULT_WORKSPACE, token=first)).decode(), flush=True)
    if orders.admin_token:
        print(msgspec.json.encode(Settled()).decode(), flush=True)
    return workspace_id


async def ensure_replica_token(store: Store, orders: Orders, chance: Chance, now_s: float) -> None:
    """Make the token by which this replica's gateways are let in by the leader's; a follower needs it, too."""
    (known,) = await store.apply(ops.FindToken(hash=hash_of(orders.replica_token)))
    if known is None:
        name = f"replica {orders.replica_id}"
        token = _new_token(orders.replica_token, TokenKind.REPLICA, "", name, chance, now_s)
        await store.apply(ops.CreateToken(token=token))


def _default_workspace(
    rows: tuple[ops.WorkspaceRow, ...], operations: list[ops.Operation], chance: Chance, now_s: float
) -> str:
    for row in rows:
        if row.name == DEFAULT_WORKSPACE:
            return row.workspace_id
    workspace_id = chance.id("workspace")
    operations.append(ops.CreateWorkspace(workspace_id=workspace_id, name=DEFAULT_WORKSPACE, now_s=now_s))
    return workspace_id


def _new_token(value: str, kind: TokenKind, workspace_id: str, name: str, chance: Chance, now_s: float) -> ops.TokenRow:
    return ops.TokenRow.of(value, kind, workspace_id, name, token_id=chance.id("token"), now_s=now_s)
