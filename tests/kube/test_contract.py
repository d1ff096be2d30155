"""What every cluster does, whether it is in memory or a real API server."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest
import trio

from levers9.errors import AlreadyThere, KubeRefused, KubeUnavailable, VersionGone
from levers9.kube.face import Access, Body, Change, ChangeType, Kube
from levers9.kube.kinds import CLUSTER_ROLES, JOBS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from levers9.kube.objects import Pod

from .worlds import World, a_job, a_pod

MANY = 1_100  # three pages


async def next_changes(kube: Kube, namespace: str, since: str, count: int, labels: str = "") -> list[Change[Pod]]:
    """The next changes of pods, in one watch."""
    found = []
    with trio.fail_after(10):
        async with kube.watch(PODS, namespace, since=since, labels=labels) as changes:
            async for change in changes:
                if change.type is not ChangeType.BOOKMARK:
                    found.append(change)
                if len(found) == count:
                    break
    return found


def told(changes: list[Change[Pod]]) -> list[tuple[str, str]]:
    return [(change.type.value, change.item.metadata.name) for change in changes if change.item is not None]


async def test_what_was_created_is_found_by_its_name_and_in_the_list(world: World) -> None:
    made = await world.kube.create(PODS, a_pod("one", {"a": "b"}), world.namespace)
    listing = await world.kube.list(PODS, world.namespace)
    assert made.metadata.uid
    assert made.metadata.labels == {"a": "b"}
    assert (await world.kube.get(PODS, "one", world.namespace)) == made
    assert listing.items == (made,)
    assert int(listing.version) >= int(made.metadata.resource_version)


async def test_a_list_tells_the_time_of_the_clock_that_wrote_when_things_were_made(world: World) -> None:
    made = await world.kube.create(PODS, a_pod("one"), world.namespace)
    listing = await world.kube.list(PODS, world.namespace)
    made_at_s = datetime.fromisoformat(made.metadata.creation_timestamp).timestamp()
    assert 0 <= listing.served_at_s - made_at_s < 30


async def test_what_is_not_there_is_none_and_cannot_be_deleted(world: World) -> None:
    assert await world.kube.get(PODS, "nobody", world.namespace) is None
    assert await world.kube.patch(PODS, "nobody", {"metadata": {"labels": {"a": "b"}}}, world.namespace) is None
    assert not await world.kube.delete(PODS, "nobody", world.namespace)


async def test_a_name_that_is_taken_is_refused_with_whose_it_is(world: World) -> None:
    await world.kube.create(PODS, a_pod("one"), world.namespace)
    with pytest.raises(AlreadyThere, match='pods "one" already exists'):
        await world.kube.create(PODS, a_pod("one"), world.namespace)


async def test_a_new_object_of_an_old_name_has_another_identity(world: World) -> None:
    first = await world.kube.create(PODS, a_pod("one"), world.namespace)
    assert await world.kube.delete(PODS, "one", world.namespace)
    second = await world.kube.create(PODS, a_pod("one"), world.namespace)
    assert first.metadata.uid != second.metadata.uid


async def test_a_delete_for_one_identity_leaves_another_of_the_same_name(world: World) -> None:
    made = await world.kube.create(PODS, a_pod("one"), world.namespace)
    assert not await world.kube.delete(PODS, "one", world.namespace, uid="11111111-2222-3333-4444-555555555555")
    assert await world.kube.get(PODS, "one", world.namespace) is not None
    assert await world.kube.delete(PODS, "one", world.namespace, uid=made.metadata.uid)
    assert await world.kube.get(PODS, "one", world.namespace) is None


async def test_nothing_is_made_in_a_namespace_that_is_not_there(world: World) -> None:
    with pytest.raises(KubeRefused, match='namespaces "nowhere" not found') as refused:
        await world.kube.create(PODS, a_pod("one"), "nowhere")
    assert refused.value.status == 404


async def test_a_name_that_kubernetes_does_not_allow_is_refused_in_its_words(world: World) -> None:
    with pytest.raises(KubeRefused, match="RFC 1123") as refused:
        await world.kube.create(PODS, a_pod("Upper_Case"), world.namespace)
    assert refused.value.status == 422
    assert refused.value.reason == "Invalid"


async def test_a_list_of_one_namespace_has_no_objects_of_others(world: World) -> None:
    other = f"{world.namespace}-other"
    await world.kube.create(NAMESPACES, {"metadata": {"name": other}})
    for namespace in (world.namespace, other):
        await world.kube.create(PODS, a_pod("one", {"of": world.namespace}), namespace)
    assert len((await world.kube.list(PODS, other)).items) == 1
    everywhere = await world.kube.list(PODS, labels=f"of={world.namespace}")
    # In the order of their keys: a hyphen is before a slash.
    assert [pod.metadata.namespace for pod in everywhere.items] == [other, world.namespace]


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ("size=big", ["both", "one"]),
        ("size==big,colour=red", ["both"]),
        ("size!=big", ["bare", "small"]),
        ("size in (big, small)", ["both", "one", "small"]),
        ("size notin (small)", ["bare", "both", "one"]),
        ("colour", ["both"]),
        ("!size", ["bare"]),
    ],
)
async def test_labels_select(world: World, labels: str, found: list[str]) -> None:
    for name, own in {
        "one": {"size": "big"},
        "both": {"size": "big", "colour": "red"},
        "small": {"size": "small"},
        "bare": {},
    }.items():
        await world.kube.create(PODS, a_pod(name, own), world.namespace)
    listing = await world.kube.list(PODS, world.namespace, labels=labels)
    assert [pod.metadata.name for pod in listing.items] == found


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ("metadata.name=here", ["here"]),
        ("spec.nodeName=a-node", ["here"]),
        ("spec.nodeName=", ["nowhere"]),
        ("spec.nodeName!=", ["here"]),
        ("status.phase=Pending,metadata.name!=here", ["nowhere"]),
        ("status.phase=Running", []),
    ],
)
async def test_fields_select(world: World, fields: str, found: list[str]) -> None:
    await world.kube.create(PODS, a_pod("here", node="a-node"), world.namespace)
    await world.kube.create(PODS, a_pod("nowhere"), world.namespace)
    listing = await world.kube.list(PODS, world.namespace, fields=fields)
    assert [pod.metadata.name for pod in listing.items] == found


@pytest.mark.parametrize(("labels", "fields"), [("((", ""), ("", "spec.colour=red")])
async def test_a_selector_that_nobody_understands_is_refused(world: World, labels: str, fields: str) -> None:
    with pytest.raises(KubeRefused) as refused:
        await world.kube.list(PODS, world.namespace, labels=labels, fields=fields)
    assert refused.value.status == 400


async def test_a_long_list_comes_whole_and_once(world: World) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(MANY):
            nursery.start_soon(
                world.kube.create, SERVICE_ACCOUNTS, {"metadata": {"name": f"a{number}"}}, world.namespace
            )
    listing = await world.kube.list(SERVICE_ACCOUNTS, world.namespace)
    assert len(listing.items) == MANY
    assert len({each.metadata.uid for each in listing.items}) == MANY


# Watching


async def test_a_watch_brings_what_happened_since_the_list(world: World) -> None:
    since = (await world.kube.list(PODS, world.namespace)).version
    made = await world.kube.create(PODS, a_pod("one"), world.namespace)
    await world.kube.patch(PODS, "one", {"metadata": {"labels": {"a": "b"}}}, world.namespace)
    await world.kube.delete(PODS, "one", world.namespace)
    changes = await next_changes(world.kube, world.namespace, since, 4)
    assert told(changes) == [("ADDED", "one"), ("MODIFIED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]
    assert [change.item.metadata.uid for change in changes if change.item] == [made.metadata.uid] * 4
    assert [bool(change.item.metadata.deletion_timestamp) for change in changes if change.item] == [False] * 2 + [
        True
    ] * 2
    versions = [int(change.version) for change in changes]
    assert versions == sorted(set(versions))


async def test_a_watch_may_go_on_from_any_change(world: World) -> None:
    """It is cut at every event, and nothing is lost or told twice."""
    since = (await world.kube.list(PODS, world.namespace)).version
    for name in ("a", "b", "c"):
        await world.kube.create(PODS, a_pod(name), world.namespace)
        await world.kube.delete(PODS, name, world.namespace)
    found = []
    for _ in range(9):
        (change,) = await next_changes(world.kube, world.namespace, since, 1)
        since = change.version
        found.append(change)
    assert told(found) == [(type_, name) for name in "abc" for type_ in ("ADDED", "MODIFIED", "DELETED")]


async def test_a_watch_waits_for_what_is_to_come(world: World) -> None:
    since = (await world.kube.list(PODS, world.namespace)).version
    found: list[Change[Pod]] = []

    async def watch(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with world.kube.watch(PODS, world.namespace, since=since) as changes:
            task_status.started()
            async for change in changes:
                found.append(change)
                break

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            await nursery.start(watch)
            await world.kube.create(PODS, a_pod("one"), world.namespace)
    assert told(found) == [("ADDED", "one")]


async def test_what_leaves_a_selection_is_deleted_there_and_what_enters_is_added(world: World) -> None:
    since = (await world.kube.list(PODS, world.namespace)).version
    await world.kube.create(PODS, a_pod("one", {"in": "no"}), world.namespace)
    for value in ("neither", "yes", "still", "no", "never"):
        await world.kube.patch(PODS, "one", {"metadata": {"labels": {"in": value}}}, world.namespace)
    await world.kube.create(PODS, a_pod("other", {"in": "yes"}), world.namespace)
    changes = await next_changes(world.kube, world.namespace, since, 4, labels="in in (yes, still)")
    assert told(changes) == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one"), ("ADDED", "other")]


async def test_a_watch_from_a_version_that_is_no_longer_kept_says_so(world: World) -> None:
    made = await world.kube.create(PODS, a_pod("one"), world.namespace)
    await world.kube.patch(PODS, "one", {"metadata": {"labels": {"a": "b"}}}, world.namespace)
    await world.forget_history()
    with pytest.raises(VersionGone):
        await next_changes(world.kube, world.namespace, str(int(made.metadata.resource_version) - 1), 1)
    now = (await world.kube.list(PODS, world.namespace)).version
    await world.kube.create(PODS, a_pod("two"), world.namespace)
    assert told(await next_changes(world.kube, world.namespace, now, 1)) == [("ADDED", "two")]


async def test_while_the_server_is_away_it_cannot_be_asked_and_watches_end(world: World) -> None:
    since = (await world.kube.list(PODS, world.namespace)).version
    ends: list[str] = []

    async def watch(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with world.kube.watch(PODS, world.namespace, since=since) as changes:
                task_status.started()
                async for _ in changes:
                    pass
        except KubeUnavailable as error:
            ends.append(str(error))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(watch)
            await world.go_away()
        with pytest.raises(KubeUnavailable, match="refuses connections"):
            await world.kube.list(PODS, world.namespace)
        await world.come_back()
        await world.kube.create(PODS, a_pod("one"), world.namespace)
    assert ends


# Changing


async def test_to_apply_twice_changes_nothing_the_second_time(world: World) -> None:
    body: Body = {"metadata": {"name": "one", "labels": {"ours": "1"}}}
    first = await world.kube.apply(SERVICE_ACCOUNTS, body, world.namespace, manager="levers9")
    second = await world.kube.apply(SERVICE_ACCOUNTS, body, world.namespace, manager="levers9")
    assert second.metadata.resource_version == first.metadata.resource_version


async def test_what_is_no_longer_applied_goes_and_what_others_wrote_stays(world: World) -> None:
    first: Body = {"metadata": {"name": "one", "labels": {"ours": "1", "also": "2"}}}
    await world.kube.apply(SERVICE_ACCOUNTS, first, world.namespace, manager="levers9")
    await world.kube.patch(SERVICE_ACCOUNTS, "one", {"metadata": {"labels": {"theirs": "3"}}}, world.namespace)
    second: Body = {"metadata": {"name": "one", "labels": {"ours": "4"}}}
    left = await world.kube.apply(SERVICE_ACCOUNTS, second, world.namespace, manager="levers9")
    assert left.metadata.labels == {"ours": "4", "theirs": "3"}


async def test_who_applies_takes_a_field_from_whoever_had_it(world: World) -> None:
    for manager, value in (("kubectl", "1"), ("levers9", "2")):
        body: Body = {"metadata": {"name": "one", "labels": {"a": value}}}
        left = await world.kube.apply(SERVICE_ACCOUNTS, body, world.namespace, manager=manager)
    assert left.metadata.labels == {"a": "2"}


async def test_names_of_roles_are_freer(world: World) -> None:
    name = f"levers9:{world.namespace}"
    made = await world.kube.apply(CLUSTER_ROLES, {"metadata": {"name": name}, "rules": []}, manager="levers9")
    assert made.metadata.name == name


async def test_a_status_is_patched_as_a_status_and_in_no_other_way(world: World) -> None:
    name = f"{world.namespace}-node"
    await world.kube.create(NODES, {"metadata": {"name": name}})
    room = {"capacity": {"nvidia.com/gpu": "4", "memory": "1181116006400m"}}
    await world.kube.patch(NODES, name, {"status": room, "spec": {"unschedulable": True}}, subresource="status")
    await world.kube.patch(NODES, name, {"status": {"capacity": {"nvidia.com/gpu": "8"}}})
    node = await world.kube.get(NODES, name)
    assert node is not None
    assert node.status.capacity == room["capacity"]
    assert not node.spec.unschedulable


async def test_a_field_is_taken_away_by_a_patch_of_null(world: World) -> None:
    name = f"{world.namespace}-node"
    await world.kube.create(NODES, {"metadata": {"name": name}, "spec": {"unschedulable": True}})
    node = await world.kube.patch(NODES, name, {"spec": {"unschedulable": None}})
    assert node is not None
    assert not node.spec.unschedulable


async def test_a_job_is_made_read_and_deleted_with_its_labels(world: World) -> None:
    made = await world.kube.create(JOBS, a_job("worker-1"), world.namespace)
    listing = await world.kube.list(JOBS, world.namespace, labels="app.kubernetes.io/managed-by=levers9")
    assert [job.metadata.uid for job in listing.items] == [made.metadata.uid]
    assert await world.kube.delete(JOBS, "worker-1", world.namespace, uid=made.metadata.uid)
    assert (await world.kube.list(JOBS, world.namespace)).items == ()


async def test_a_pod_that_never_ran_has_no_log(world: World) -> None:
    await world.kube.create(PODS, a_pod("one"), world.namespace)
    assert await world.kube.log_tail("one", world.namespace, container="main", lines=10) == ""
    assert await world.kube.log_tail("nobody", world.namespace, container="main", lines=10) == ""


# Rights


async def test_one_who_may_not_is_told_what_and_where(world: World) -> None:
    guest = world.one_without_rights()
    assert not await guest.allowed(Access(verb="list", plural="nodes"))
    assert not await guest.allowed(Access(verb="create", plural="jobs", group="batch", namespace=world.namespace))
    with pytest.raises(KubeRefused, match=r"nodes.*at the cluster scope") as refused:
        await guest.list(NODES)
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
    with pytest.raises(KubeRefused, match=rf'jobs.*in the namespace "{world.namespace}"'):
        await guest.create(JOBS, a_job("worker-1"), world.namespace)


async def test_one_who_may_is_told_so(world: World) -> None:
    assert await world.kube.allowed(Access(verb="list", plural="nodes"))
    assert await world.kube.allowed(Access(verb="get", plural="pods", subresource="log", namespace=world.namespace))


async def test_objects_with_fields_that_we_do_not_read_are_read_all_the_same(world: World) -> None:
    body = msgspec.json.decode(msgspec.json.encode(a_pod("one")), type=dict[str, dict[str, object]])
    body["metadata"]["annotations"] = {"strange.example/key": "\U0001f680\u2028\n" * 1_000}
    body["spec"] |= {"tolerations": [{"operator": "Exists"}], "overhead": None, "activeDeadlineSeconds": 2**31 - 1}
    since = (await world.kube.list(PODS, world.namespace)).version
    made = await world.kube.create(PODS, body, world.namespace)
    (change,) = await next_changes(world.kube, world.namespace, since, 1)
    assert change.item is not None
    assert change.item.metadata == made.metadata
