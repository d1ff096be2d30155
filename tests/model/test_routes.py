"""The table kind × route: it is complete, and nobody can grant more than they have."""

import pytest

from levers9.model.routes import ALLOWED, GRANTABLE, Route, allows, grants
from levers9.model.states import TokenKind


def test_every_route_stands_in_the_table() -> None:
    assert sorted(ALLOWED) == sorted(Route)


def test_only_a_replica_relays_and_a_replica_does_nothing_else() -> None:
    assert [route for route in Route if allows(route, TokenKind.REPLICA)] == [Route.RELAY, Route.WHOAMI]
    assert ALLOWED[Route.RELAY] == {TokenKind.REPLICA}


@pytest.mark.parametrize("kind", [TokenKind.WORKER, TokenKind.WORKER_PRIVATE])
def test_a_worker_reads_no_tasks_and_makes_no_tokens(kind: TokenKind) -> None:
    taken = {route for route in Route if allows(route, kind)}
    assert not taken & {Route.TASKS_LIST, Route.TASK_SHOW, Route.LOGS_READ, Route.TOKEN_CREATE, Route.STREAM_CLIENT}
    assert Route.STREAM_WORKER in taken


def test_what_code_sees_as_its_token_touches_no_tokens_and_no_machines() -> None:
    taken = {route for route in Route if allows(route, TokenKind.WORKSPACE_RESTRICTED)}
    assert not taken & {Route.TOKENS_LIST, Route.TOKEN_CREATE, Route.TOKEN_REVOKE, Route.WORKERS_LIST, Route.INSPECT}


def test_nobody_but_the_platforms_admin_grants_what_reaches_beyond_a_workspace() -> None:
    for giver, kinds in GRANTABLE.items():
        if giver is not TokenKind.CLUSTER_ADMIN:
            assert kinds <= {TokenKind.WORKSPACE, TokenKind.WORKSPACE_RESTRICTED}
    assert not grants(TokenKind.WORKSPACE, TokenKind.WORKSPACE)
    assert grants(TokenKind.CLUSTER_ADMIN, TokenKind.WORKER)
