"""Workspaces, tokens and stubs."""

from msgspec.structs import replace

from levers9.model.resources import Shape
from levers9.model.states import TokenKind
from levers9.store.face import Store
from levers9.store.operations import (
    Applied,
    CreateToken,
    CreateTokens,
    CreateWorkspace,
    FindToken,
    FindTokenOf,
    ListTokens,
    ListWorkspaces,
    PutStub,
    ReadStubs,
    RevokeTokens,
    StubRow,
    TokenRow,
    WorkspaceRow,
)
from levers9.wire.client import StubSpec


def token(number: int, **changes: object) -> TokenRow:
    row = TokenRow(
        token_id=f"token-{number}",
        workspace_id="workspace-1",
        kind=TokenKind.WORKSPACE,
        name=f"number {number}",
        hash=bytes([number]) * 32,
        hint="abcdef…wxyz",
        active=True,
        created_at_s=float(number),
    )
    return replace(row, **changes)


def stub(number: int, workspace_id: str = "workspace-1") -> StubRow:
    spec = StubSpec(
        app="app",
        name=f"function {number}",
        kind="job",
        handler="work:function",
        code_key="blob/1",
        python="3.11",
        shape=Shape(cpu_milli=125, memory_mib=128, gpu_types=("H100", "A100")),
        timeout_s=3600.0,
        retries=3,
        env=(("KEY", "välue\u0000"),),
    )
    return StubRow(stub_id=f"stub-{number}", workspace_id=workspace_id, spec=spec, created_at_s=float(number))


async def test_workspaces_are_listed_by_name(store: Store) -> None:
    for number, name in enumerate(("b", "a", "Z", "é")):
        await store.apply(CreateWorkspace(workspace_id=f"workspace-{number}", name=name, now_s=float(number)))
    assert await store.apply(ListWorkspaces()) == (
        (
            WorkspaceRow(workspace_id="workspace-2", name="Z", created_at_s=2.0),
            WorkspaceRow(workspace_id="workspace-1", name="a", created_at_s=1.0),
            WorkspaceRow(workspace_id="workspace-0", name="b", created_at_s=0.0),
            WorkspaceRow(workspace_id="workspace-3", name="é", created_at_s=3.0),
        ),
    )


async def test_a_name_that_is_taken_creates_nothing(store: Store) -> None:
    create = CreateWorkspace(workspace_id="workspace-1", name="one", now_s=1.0)
    assert await store.apply(create) == (Applied(ids=("workspace-1",)),)
    assert await store.apply(replace(create, workspace_id="workspace-2")) == (Applied(),)
    assert await store.apply(replace(create, name="two")) == (Applied(),)


async def test_a_token_is_found_by_its_hash_while_it_is_active(store: Store) -> None:
    assert await store.apply(CreateToken(token=token(1)), CreateToken(token=token(2, active=False))) == (
        Applied(ids=("token-1",)),
        Applied(ids=("token-2",)),
    )
    assert await store.apply(FindToken(hash=b"\1" * 32)) == (token(1),)
    assert await store.apply(FindToken(hash=b"\2" * 32), FindToken(hash=b"\3" * 32)) == (None, None)


async def test_the_newest_active_token_of_a_subject_is_found(store: Store) -> None:
    rows = (
        token(1, subject="worker-1"),
        token(2, subject="worker-1", created_at_s=9.0),
        token(3, subject="worker-1", created_at_s=10.0, active=False),
        token(4, subject="worker-2", created_at_s=11.0),
        token(5, subject="worker-3", active=False),
    )
    await store.apply(*(CreateToken(token=row) for row in rows))
    found = await store.apply(*(FindTokenOf(subject=f"worker-{one}") for one in (1, 2, 3, 4)))
    assert found == (rows[1], rows[3], None, None)


async def test_a_token_whose_id_or_hash_is_known_is_not_created(store: Store) -> None:
    await store.apply(CreateToken(token=token(1)))
    assert await store.apply(CreateToken(token=token(2, hash=b"\1" * 32))) == (Applied(),)
    assert await store.apply(CreateToken(token=token(3, token_id="token-1"))) == (Applied(),)


async def test_many_tokens_are_created_at_once_but_for_known_ids_and_hashes(store: Store) -> None:
    await store.apply(CreateToken(token=token(1)))
    many = (token(4), token(2, hash=b"\1" * 32), token(3), token(5, hash=b"\3" * 32), token(1, hash=b"\6" * 32))
    assert await store.apply(CreateTokens(tokens=many)) == (Applied(ids=("token-4", "token-3")),)
    assert await store.apply(CreateTokens(tokens=())) == (Applied(),)
    assert await store.apply(FindToken(hash=b"\3" * 32), FindToken(hash=b"\1" * 32)) == (token(3), token(1))


async def test_tokens_are_listed_oldest_first_within_a_workspace_or_anywhere(store: Store) -> None:
    other = token(2, workspace_id="workspace-2", created_at_s=0.5)
    await store.apply(*(CreateToken(token=row) for row in (token(3), token(1), other)))
    assert await store.apply(ListTokens()) == ((other, token(1), token(3)),)
    assert await store.apply(ListTokens(workspace_id="workspace-1")) == ((token(1), token(3)),)


async def test_tokens_are_revoked_by_id_or_subject_once_and_within_the_workspace(store: Store) -> None:
    rows = (token(1), token(2, subject="worker-1"), token(3, workspace_id="workspace-2"), token(4))
    await store.apply(*(CreateToken(token=row) for row in rows))
    revoke = RevokeTokens(token_ids=("token-1", "token-3"), subjects=("worker-1",), workspace_id="workspace-1")
    assert await store.apply(revoke) == (Applied(ids=("token-1", "token-2")),)
    assert await store.apply(revoke) == (Applied(),)
    assert await store.apply(FindToken(hash=b"\1" * 32), FindToken(hash=b"\3" * 32)) == (None, rows[2])
    assert await store.apply(replace(revoke, workspace_id=None)) == (Applied(ids=("token-3",)),)


async def test_a_stub_put_twice_is_kept_once_and_as_it_was(store: Store) -> None:
    assert await store.apply(PutStub(stub=stub(1))) == (Applied(ids=("stub-1",)),)
    assert await store.apply(PutStub(stub=replace(stub(1), created_at_s=9.0))) == (Applied(),)
    assert await store.apply(ReadStubs()) == ((stub(1),),)


async def test_stubs_are_read_by_id_and_workspace(store: Store) -> None:
    rows = (stub(3), stub(1), stub(2, "workspace-2"))
    await store.apply(*(PutStub(stub=row) for row in rows))
    assert await store.apply(ReadStubs()) == ((rows[1], rows[2], rows[0]),)
    assert await store.apply(ReadStubs(workspace_id="workspace-1")) == ((rows[1], rows[0]),)
    assert await store.apply(ReadStubs(stub_ids=("stub-2", "stub-3", "stub-9"))) == ((rows[2], rows[0]),)
    assert await store.apply(ReadStubs(stub_ids=("stub-2",), workspace_id="workspace-1")) == ((),)
