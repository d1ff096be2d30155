"""The in-memory store's own promises: faults on demand. What operations do is in the contract suite."""

import pytest

from levers9.errors import EpochSuperseded, OutcomeUnknown, StoreUnavailable
from levers9.store.memory import MemoryStore
from levers9.store.operations import CreateWorkspace, ListWorkspaces, ReadLeadership

CREATE = CreateWorkspace(workspace_id="workspace-1", name="one", now_s=1.0)


async def test_a_failure_before_the_commit_changes_nothing() -> None:
    store = MemoryStore()
    store.fail_next(before=True)
    with pytest.raises(StoreUnavailable) as caught:
        await store.apply(CREATE)
    assert not isinstance(caught.value, OutcomeUnknown)
    assert await store.apply(ListWorkspaces()) == ((),)


async def test_a_failure_after_the_commit_has_changed_the_truth() -> None:
    store = MemoryStore()
    store.fail_next(before=False)
    with pytest.raises(OutcomeUnknown):
        await store.apply(CREATE)
    (workspaces,) = await store.apply(ListWorkspaces())
    assert isinstance(workspaces, tuple)
    assert len(workspaces) == 1


async def test_faults_come_in_the_order_they_were_asked_for() -> None:
    store = MemoryStore()
    store.fail_next(before=False)
    store.fail_next(before=True)
    with pytest.raises(OutcomeUnknown):
        await store.apply(ReadLeadership())
    with pytest.raises(StoreUnavailable):
        await store.apply(ReadLeadership())
    assert await store.apply(ReadLeadership()) == (None,)
    assert store.statistics().failures == 2


async def test_nobody_leads_an_empty_store() -> None:
    with pytest.raises(EpochSuperseded):
        await MemoryStore().apply(CREATE, epoch=1)
