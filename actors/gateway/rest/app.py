"""The application: the table of routes, health, streams by path, and what becomes of errors."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.routing import Route as Path
from starlette.websockets import WebSocket

from ....errors import LeversError
from ....model.routes import Route
from ..streams import RELAY_PATH, STREAM_PATH, Door
from . import clusters, journal, logs, machines, objects, people, pools, queueing, tasks
from .answers import Answer, json_answer, on_defect, on_http_error, on_our_error
from .desk import Desk, Handler, path_of
from .streams import serve_stream

HANDLERS: Final[dict[Route, Handler]] = {
    Route.OBJECTS_MISSING: objects.missing,
    Route.OBJECTS_PUT: objects.put,
    Route.OBJECTS_GET: objects.get,
    Route.OBJECT_WRITE: objects.write,
    Route.OBJECT_READ: objects.read,
    Route.LOGS_WRITE: logs.write,
    Route.LOGS_READ: logs.read,
    Route.TASKS_LIST: tasks.list_tasks,
    Route.TASK_SHOW: tasks.show,
    Route.TASK_STOP: tasks.stop,
    Route.TASK_WHY: tasks.why,
    Route.WORKERS_LIST: machines.workers,
    Route.WORKER_CORDON: pools.cordon,
    Route.WORKER_UNCORDON: pools.uncordon,
    Route.WORKER_DRAIN: pools.drain,
    Route.POOLS_LIST: pools.list_pools,
    Route.POOL_SHOW: pools.show,
    Route.POOL_CREATE: pools.create,
    Route.POOL_DELETE: pools.delete,
    Route.CLUSTERS_LIST: clusters.list_clusters,
    Route.CLUSTER_JOIN: clusters.join,
    Route.CLUSTER_SHOW: clusters.show,
    Route.CLUSTER_LEAVE: clusters.leave,
    Route.CLUSTERS_SERVING: clusters.list_clusters,
    Route.CLUSTER_SHARE: clusters.share,
    Route.CONTAINERS_LIST: machines.containers,
    Route.INSPECT: machines.inspect,
    Route.QUEUEING_READ: queueing.read,
    Route.QUEUEING_APPLY: queueing.apply,
    Route.QUEUEING_PUT: queueing.put,
    Route.QUEUEING_DROP: queueing.drop,
    Route.JOURNAL_READ: journal.read,
    Route.WORKSPACES_LIST: people.workspaces,
    Route.WORKSPACE_CREATE: people.create_workspace,
    Route.TOKENS_LIST: people.tokens,
    Route.TOKEN_CREATE: people.create_token,
    Route.TOKEN_REVOKE: people.revoke_token,
    Route.WHOAMI: people.whoami,
}


class Health(Answer, frozen=True, kw_only=True):
    """Whether this gateway serves. `leader` says whether it knows one and has a link to its brain."""

    leader: bool
    epoch: int
    clients: int
    workers: int
    agents: int


def build_app(desk: Desk, door: Door) -> Starlette:
    """The ASGI application of a gateway."""
    routes: list[BaseRoute] = [path_of(desk, route, handler) for route, handler in HANDLERS.items()]
    stream = partial(_stream, door)
    sockets = [WebSocketRoute(path, stream) for path in (STREAM_PATH, RELAY_PATH)]
    health = Path("/health", partial(_health, desk), methods=["GET"])
    return Starlette(
        routes=[health, *sockets, *routes],
        exception_handlers={LeversError: on_our_error, HTTPException: on_http_error, Exception: on_defect},
    )


async def _health(desk: Desk, request: Request) -> Response:
    """Anybody may ask; 503 while the brain cannot be reached or nobody leads."""
    seen = desk.statistics()
    well = seen.brain_open and seen.epoch > 0
    health = Health(
        ok=well, leader=well, epoch=seen.epoch, clients=seen.clients, workers=seen.workers, agents=seen.agents
    )
    return json_answer(health, 200 if well else 503)


async def _stream(door: Door, socket: WebSocket) -> None:
    await serve_stream(door, socket)
