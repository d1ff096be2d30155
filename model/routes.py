"""Which kind of token may take which route: one table, the whole of it."""

from __future__ import annotations

import enum
from typing import Final

from .states import TokenKind


class Route(enum.StrEnum):
    """Everything a token can be shown to: the three streams, and each verb of the REST interface."""

    STREAM_CLIENT = "stream client"
    STREAM_WORKER = "stream worker"
    STREAM_AGENT = "stream agent"
    RELAY = "relay"
    OBJECTS_MISSING = "POST /api/v1/objects/missing"
    OBJECTS_PUT = "POST /api/v1/objects/put"
    OBJECTS_GET = "POST /api/v1/objects/get"
    OBJECT_WRITE = "PUT /api/v1/objects/{key:path}"
    OBJECT_READ = "GET /api/v1/objects/{key:path}"
    LOGS_WRITE = "POST /api/v1/logs/{container_id}/{chunk:int}"
    LOGS_READ = "GET /api/v1/tasks/{task_id}/logs"
    TASKS_LIST = "GET /api/v1/tasks"
    TASK_SHOW = "GET /api/v1/tasks/{task_id}"
    TASK_STOP = "POST /api/v1/tasks/{task_id}/stop"
    TASK_WHY = "GET /api/v1/tasks/{task_id}/why"
    WORKERS_LIST = "GET /api/v1/workers"
    WORKER_CORDON = "POST /api/v1/workers/{worker_id}/cordon"
    WORKER_UNCORDON = "POST /api/v1/workers/{worker_id}/uncordon"
    WORKER_DRAIN = "POST /api/v1/workers/{worker_id}/drain"
    POOLS_LIST = "GET /api/v1/pools"
    POOL_SHOW = "GET /api/v1/pools/{name}"
    POOL_CREATE = "POST /api/v1/pools"
    POOL_DELETE = "DELETE /api/v1/pools/{name}"
    CLUSTERS_LIST = "GET /api/v1/controlplane/clusters"
    CLUSTER_JOIN = "POST /api/v1/controlplane/clusters"
    CLUSTER_SHOW = "GET /api/v1/controlplane/clusters/{name}"
    CLUSTER_LEAVE = "DELETE /api/v1/controlplane/clusters/{name}"
    CLUSTERS_SERVING = "GET /api/v1/cluster"
    CLUSTER_SHARE = "PUT /api/v1/cluster/{name}/shared"
    CONTAINERS_LIST = "GET /api/v1/containers"
    INSPECT = "GET /api/v1/inspect"
    QUEUEING_READ = "GET /api/v1/queueing"
    QUEUEING_APPLY = "PUT /api/v1/queueing"
    QUEUEING_PUT = "PUT /api/v1/queueing/{part}/{name:path}"
    QUEUEING_DROP = "DELETE /api/v1/queueing/{part}/{name:path}"
    JOURNAL_READ = "GET /api/v1/scheduler/journal"
    WORKSPACES_LIST = "GET /api/v1/workspaces"
    WORKSPACE_CREATE = "POST /api/v1/workspaces"
    TOKENS_LIST = "GET /api/v1/tokens"
    TOKEN_CREATE = "POST /api/v1/tokens"
    TOKEN_REVOKE = "DELETE /api/v1/tokens/{token_id}"
    WHOAMI = "GET /api/v1/whoami"


_ADMIN: Final = frozenset({TokenKind.CLUSTER_ADMIN})
_OWNERS: Final = frozenset({TokenKind.CLUSTER_ADMIN, TokenKind.WORKSPACE_PRIMARY})
_PEOPLE: Final = _OWNERS | {TokenKind.WORKSPACE}
_CALLERS: Final = _PEOPLE | {TokenKind.WORKSPACE_RESTRICTED}
_WORKERS: Final = frozenset({TokenKind.WORKER, TokenKind.WORKER_PRIVATE})

ALLOWED: Final[dict[Route, frozenset[TokenKind]]] = {
    Route.STREAM_CLIENT: _CALLERS,
    Route.STREAM_WORKER: _WORKERS,
    Route.STREAM_AGENT: frozenset({TokenKind.AGENT}),
    Route.RELAY: frozenset({TokenKind.REPLICA}),
    Route.OBJECTS_MISSING: _CALLERS | _WORKERS,
    Route.OBJECTS_PUT: _CALLERS | _WORKERS,
    Route.OBJECTS_GET: _CALLERS | _WORKERS,
    Route.OBJECT_WRITE: _CALLERS | _WORKERS,
    Route.OBJECT_READ: _CALLERS | _WORKERS,
    Route.LOGS_WRITE: _WORKERS,
    Route.LOGS_READ: _CALLERS,
    Route.TASKS_LIST: _CALLERS,
    Route.TASK_SHOW: _CALLERS,
    Route.TASK_STOP: _CALLERS,
    Route.TASK_WHY: _CALLERS,
    Route.WORKERS_LIST: _PEOPLE,
    Route.WORKER_CORDON: _ADMIN,
    Route.WORKER_UNCORDON: _ADMIN,
    Route.WORKER_DRAIN: _ADMIN,
    Route.POOLS_LIST: _ADMIN,
    Route.POOL_SHOW: _ADMIN,
    Route.POOL_CREATE: _ADMIN,
    Route.POOL_DELETE: _ADMIN,
    Route.CLUSTERS_LIST: _PEOPLE,
    Route.CLUSTER_JOIN: _PEOPLE,  # a container's token can neither attach nor detach
    Route.CLUSTER_SHOW: _PEOPLE,
    Route.CLUSTER_LEAVE: _PEOPLE,
    Route.CLUSTERS_SERVING: _PEOPLE,
    Route.CLUSTER_SHARE: _ADMIN,
    Route.CONTAINERS_LIST: _PEOPLE,
    Route.INSPECT: _ADMIN,
    Route.QUEUEING_READ: _PEOPLE,
    Route.QUEUEING_APPLY: _ADMIN,
    Route.QUEUEING_PUT: _ADMIN,
    Route.QUEUEING_DROP: _ADMIN,
    Route.JOURNAL_READ: _ADMIN,
    Route.WORKSPACES_LIST: _ADMIN,
    Route.WORKSPACE_CREATE: _ADMIN,
    Route.TOKENS_LIST: _OWNERS,
    Route.TOKEN_CREATE: _OWNERS,
    Route.TOKEN_REVOKE: _OWNERS,
    Route.WHOAMI: frozenset(TokenKind),
}

GRANTABLE: Final[dict[TokenKind, frozenset[TokenKind]]] = {
    TokenKind.CLUSTER_ADMIN: frozenset(TokenKind),
    TokenKind.WORKSPACE_PRIMARY: frozenset({TokenKind.WORKSPACE, TokenKind.WORKSPACE_RESTRICTED}),
}


def allows(route: Route, kind: TokenKind) -> bool:
    """Whether a token of this kind may take this route."""
    return kind in ALLOWED[route]


def grants(giver: TokenKind, kind: TokenKind) -> bool:
    """Whether a token of kind `giver` may make, and revoke, tokens of `kind`."""
    return kind in GRANTABLE.get(giver, frozenset())
