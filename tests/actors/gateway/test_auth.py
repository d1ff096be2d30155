"""Tokens are found, kept for a moment, and refused with a sentence; guessing is slow."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from levers9.actors.gateway.auth import (
    Gate,
    check_privacy,
    check_subject,
)
from levers9.errors import FORBIDDEN, RATE_LIMITED, UNAUTHENTICATED, Refused
from levers9.model.figures import FAILURES_ALLOWED, FAILURES_WITHIN_S, TOKEN_KEPT_S
from levers9.model.routes import Route
from levers9.model.states import TokenKind
from levers9.model.tokens import Principal, hash_of, hint_of, make_token
from levers9.store.memory import MemoryStore
from levers9.store.operations import CreateToken, RevokeTokens, TokenRow

GOOD = make_token(TokenKind.WORKSPACE, b"g" * 32)
WRONG = make_token(TokenKind.WORKSPACE, b"w" * 32)
SHARED = make_token(TokenKind.REPLICA, b"s" * 32)


class Hall:
    """A gate, its store, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.store = MemoryStore()
        self.gate = Gate(self.store, lambda: self.now_s, SHARED)

    async def enter(self, authorization: str, route: Route = Route.WHOAMI, address: str = "1.2.3.4") -> Principal:
        return await self.gate.admit(authorization, route, address)

    async def refusal(self, authorization: str, route: Route = Route.WHOAMI, address: str = "1.2.3.4") -> Refused:
        with pytest.raises(Refused) as caught:
            await self.enter(authorization, route, address)
        return caught.value


@pytest.fixture
async def hall() -> Hall:
    one = Hall()
    row = TokenRow(
        token_id="t1",
        workspace_id="ws",
        kind=TokenKind.WORKSPACE,
        name="n",
        hash=hash_of(GOOD),
        hint=hint_of(GOOD),
        active=True,
        created_at_s=0.0,
    )
    await one.store.apply(CreateToken(token=row))
    return one


async def test_a_known_token_names_its_principal(hall: Hall) -> None:
    who = await hall.enter(f"Bearer {GOOD}")
    assert who == Principal(token_id="t1", workspace_id="ws", kind=TokenKind.WORKSPACE)


@pytest.mark.parametrize(
    ("authorization", "what"),
    [
        ("", "The token is missing."),
        ("Basic abc", "The token is malformed."),
        ("Bearer ", "The token is malformed."),
        ("Bearer hello", "The token is malformed."),
        (f"Bearer {WRONG}", "The token is unknown or revoked."),
    ],
)
async def test_each_bad_token_is_told_apart(hall: Hall, authorization: str, what: str) -> None:
    refused = await hall.refusal(authorization)
    assert (refused.code, refused.what) == (UNAUTHENTICATED, what)
    assert "levers9 login" in refused.fix


async def test_a_token_in_use_is_not_looked_up_again_within_ten_seconds(hall: Hall) -> None:
    for hall.now_s in (0.0, TOKEN_KEPT_S - 1):
        await hall.enter(f"Bearer {GOOD}")
    assert hall.gate.statistics().lookups == 1
    hall.now_s = TOKEN_KEPT_S
    await hall.enter(f"Bearer {GOOD}")
    assert hall.gate.statistics().lookups == 2


async def test_a_revoked_token_is_refused_at_the_latest_after_ten_seconds(hall: Hall) -> None:
    await hall.enter(f"Bearer {GOOD}")
    await hall.store.apply(RevokeTokens(token_ids=("t1",)))
    hall.now_s = TOKEN_KEPT_S
    assert (await hall.refusal(f"Bearer {GOOD}")).code == UNAUTHENTICATED


async def test_a_revoked_token_is_refused_at_once_where_that_is_known(hall: Hall) -> None:
    await hall.enter(f"Bearer {GOOD}")
    await hall.store.apply(RevokeTokens(token_ids=("t1",)))
    hall.gate.forget(("t1",))
    assert (await hall.refusal(f"Bearer {GOOD}")).code == UNAUTHENTICATED


async def test_the_replicas_token_is_not_in_the_store(hall: Hall) -> None:
    assert (await hall.enter(f"Bearer {SHARED}", Route.RELAY)).kind is TokenKind.REPLICA


async def test_a_route_of_another_kind_is_forbidden(hall: Hall) -> None:
    refused = await hall.refusal(f"Bearer {GOOD}", Route.INSPECT)
    assert (refused.code, "kind workspace" in refused.what) == (FORBIDDEN, True)
    assert refused.fix == "Tokens of these kinds may: cluster_admin."


async def test_an_address_that_fails_too_often_has_to_wait_and_others_do_not(hall: Hall) -> None:
    for _ in range(FAILURES_ALLOWED):
        assert (await hall.refusal(f"Bearer {WRONG}")).code == UNAUTHENTICATED
    assert (await hall.refusal(f"Bearer {WRONG}")).code == RATE_LIMITED
    assert (await hall.refusal(f"Bearer {WRONG}", address="5.6.7.8")).code == UNAUTHENTICATED
    hall.now_s = FAILURES_WITHIN_S
    assert (await hall.refusal(f"Bearer {WRONG}")).code == UNAUTHENTICATED


async def test_a_token_in_use_is_not_held_up_by_others_failures(hall: Hall) -> None:
    await hall.enter(f"Bearer {GOOD}")
    for _ in range(FAILURES_ALLOWED + 1):
        await hall.refusal(f"Bearer {WRONG}")
    assert (await hall.enter(f"Bearer {GOOD}")).token_id == "t1"


async def test_what_a_token_may_not_do_is_no_failed_guess(hall: Hall) -> None:
    for _ in range(FAILURES_ALLOWED + 1):
        assert (await hall.refusal(f"Bearer {GOOD}", Route.INSPECT)).code == FORBIDDEN


def test_a_workers_token_is_for_that_worker() -> None:
    worker = Principal(token_id="t", workspace_id="", kind=TokenKind.WORKER, subject="w1")
    check_subject(worker, "w1")
    for other in ("w2", ""):
        with pytest.raises(Refused, match="not for worker"):
            check_subject(worker, other)


@pytest.mark.parametrize(
    ("secure", "address", "proto", "behind_tls", "passes"),
    [
        (True, "8.8.8.8", "", False, True),
        (False, "127.0.0.1", "", False, True),
        (False, "::1", "", False, True),
        (False, "::ffff:127.0.0.1", "", False, True),
        (False, "127.example.org", "", False, False),
        (False, "8.8.8.8", "", False, False),
        (False, "8.8.8.8", "https", False, False),
        (False, "10.0.0.1", "https", True, True),
        (False, "10.0.0.1", "http", True, False),
        (False, "128.0.0.1", "", False, False),
    ],
)
def test_a_token_travels_in_plain_text_on_loopback_only(
    secure: bool, address: str, proto: str, behind_tls: bool, passes: bool
) -> None:
    expected = nullcontext() if passes else pytest.raises(Refused, match="plain text")
    with expected as caught:
        check_privacy(secure=secure, address=address, forwarded_proto=proto, behind_tls=behind_tls)
    assert passes is (caught is None)
