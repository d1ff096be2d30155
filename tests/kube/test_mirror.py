"""A mirror tells what there is and every change, through whatever happens to its watches."""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import AsyncIterator, Callable
from typing import TypeVar, cast

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from levers9.kube.client import open_kube
from levers9.kube.face import Change, ChangeType, Kind, Kube, Listing
from levers9.kube.kinds import NAMESPACES, NODES, PODS
from levers9.kube.memory import MemoryCluster
from levers9.kube.mirror import AGAIN_MAX_S, SILENT_WATCHES, WATCH_QUIET_S, Away, Back, Changed, Listed, Mirror
from levers9.kube.objects import Node
from levers9.model.ids import Chance

from .api_server import ApiServer
from .silent_line import a_line_to
from .worlds import World, a_pod

T = TypeVar("T", bound=msgspec.Struct)
News = Listed[T] | Changed[T] | Away | Back


class View:
    """Who is told: it keeps what there is by identity, and the news."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}  # uid -> version
        self.resets = 0
        self.away: list[Away] = []
        self.changed: list[Changed[msgspec.Struct]] = []
        self.back = 0
        self._told = trio.lowlevel.ParkingLot()

    async def tell(self, news: News[T]) -> None:
        match news:
            case Listed():
                self.resets += 1
                self.seen = dict(map(_mark, news.items))
            case Changed(ChangeType.DELETED):
                del self.seen[_mark(news.item)[0]]
            case Changed():
                self.seen |= [_mark(news.item)]
            case Away():
                self.away.append(news)
            case Back():
                self.back += 1
        if isinstance(news, Changed):
            self.changed.append(news)
        self._told.unpark_all()

    async def until(self, condition: Callable[[], bool], within_s: float = 30.0) -> None:
        with trio.fail_after(within_s):
            while not condition():
                await self._told.park()


def _mark(item: object) -> tuple[str, str]:
    assert isinstance(item, Node) or hasattr(item, "metadata")
    return item.metadata.uid, item.metadata.resource_version


class Behind:
    """A cluster behind something."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def list(self, kind: Kind[T], namespace: str = "", *, labels: str = "", fields: str = "") -> Listing[T]:
        return await self._kube.list(kind, namespace, labels=labels, fields=fields)


class CutAtEveryEvent(Behind):
    """A cluster whose watches end after one change."""

    @contextlib.asynccontextmanager
    async def watch(
        self, kind: Kind[T], namespace: str = "", *, since: str, labels: str = "", fields: str = ""
    ) -> AsyncIterator[AsyncIterator[Change[T]]]:
        async with self._kube.watch(kind, namespace, since=since, labels=labels, fields=fields) as changes:
            async with contextlib.aclosing(_first(changes)) as first:
                yield first


async def _first(changes: AsyncIterator[Change[T]]) -> AsyncIterator[Change[T]]:
    async for change in changes:
        yield change
        return


class Swallowed(Behind):
    """A cluster whose watches open, and bring nothing: somebody between gathers answers until they are whole."""

    @contextlib.asynccontextmanager
    async def watch(
        self, kind: Kind[T], namespace: str = "", *, since: str, labels: str = "", fields: str = ""
    ) -> AsyncIterator[AsyncIterator[Change[T]]]:
        async with contextlib.aclosing(_nothing(kind)) as nothing:
            yield nothing


async def _nothing(kind: Kind[T]) -> AsyncIterator[Change[T]]:
    await trio.sleep_forever()
    yield Change(type=ChangeType.BOOKMARK, item=None, version="")


@contextlib.asynccontextmanager
async def mirrored(
    kube: Kube, kind: Kind[T], namespace: str = "", *, wait: bool = True, quiet_s: float = WATCH_QUIET_S
) -> AsyncIterator[tuple[View, Mirror[T]]]:
    view = View()
    mirror = Mirror(kube, kind, view.tell, Chance(1), namespace=namespace, quiet_s=quiet_s)
    async with trio.open_nursery() as nursery:
        if wait:
            await nursery.start(mirror.run)
        else:
            nursery.start_soon(mirror.run)
        await trio.testing.wait_all_tasks_blocked()  # it watches
        yield view, mirror
        nursery.cancel_scope.cancel()


def now(cluster: MemoryCluster, kind: Kind[T]) -> dict[str, str]:
    return dict(map(_mark, cluster.all_of(kind)))


# In virtual time


async def test_it_lists_once_and_tells_every_change_after_that(autojump_clock: trio.testing.MockClock) -> None:
    cluster = MemoryCluster()
    cluster.add_node("a")
    async with mirrored(cluster, NODES) as (view, mirror):
        assert view.seen == now(cluster, NODES)
        cluster.add_node("b")
        cluster.cordon("a")
        cluster.remove_node("b")
        await trio.sleep(3_600)
    assert view.seen == now(cluster, NODES)
    assert [change.type.value for change in view.changed] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert (mirror.statistics().lists, view.resets) == (1, 1)
    assert mirror.statistics().bookmarks >= 59
    assert (mirror.statistics().watches, mirror.statistics().silences) == (1, 0)


async def test_a_change_is_told_within_a_second_though_watches_end(autojump_clock: trio.testing.MockClock) -> None:
    cluster = MemoryCluster()
    cluster.watch_limit_s = 30.0
    async with mirrored(cluster, NODES) as (view, _):
        for number in range(50):
            await trio.sleep(7.3)
            cluster.add_node(f"n{number}")
            await trio.sleep(1.0)
            assert view.seen == now(cluster, NODES)
    assert view.resets == 1
    assert not view.away


async def test_a_watch_that_is_cut_at_every_event_loses_nothing_and_lists_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster = MemoryCluster()
    async with mirrored(CutAtEveryEvent(cluster), NODES) as (view, mirror):
        for number in range(30):
            cluster.add_node(f"n{number}")
        for number in range(0, 30, 2):
            cluster.remove_node(f"n{number}")
        await trio.sleep(60)
    assert view.seen == now(cluster, NODES)
    assert len(view.changed) == 45
    assert mirror.statistics().lists == 1


async def test_a_version_that_is_gone_is_the_one_reason_to_list_again(autojump_clock: trio.testing.MockClock) -> None:
    cluster = MemoryCluster()
    async with mirrored(cluster, NODES) as (view, mirror):
        cluster.cut_watches(cleanly=False)
        await trio.sleep(2)
        assert mirror.statistics().lists == 1
        cluster.cut_watches()
        cluster.add_node("a")
        cluster.compact()
        await trio.sleep(2)
    assert view.seen == now(cluster, NODES)
    assert (mirror.statistics().lists, view.resets) == (2, 2)


async def test_a_bookmark_spares_a_quiet_view_the_second_list(autojump_clock: trio.testing.MockClock) -> None:
    cluster = MemoryCluster()
    async with mirrored(cluster, NODES) as (_, mirror):
        cluster.add_pod("default/busy")
        cluster.compact()
        await trio.sleep(61)  # the watch hears of a version after what is forgotten
        cluster.cut_watches()
        await trio.sleep(2)
        assert mirror.statistics().lists == 1
        cluster.add_pod("default/more")
        cluster.compact()
        cluster.cut_watches()  # no bookmark this time
        await trio.sleep(2)
        assert mirror.statistics().lists == 2


async def test_while_the_server_is_away_it_tells_how_old_the_view_is(autojump_clock: trio.testing.MockClock) -> None:
    cluster = MemoryCluster()
    cluster.add_node("a")
    async with mirrored(cluster, NODES) as (view, mirror):
        cluster.go_away()
        await trio.sleep(30)
        assert mirror.statistics().age_s == pytest.approx(30, abs=0.01)
        assert [away.age_s for away in view.away] == sorted(away.age_s for away in view.away)
        assert view.away[-1].age_s > 10
        assert "refuses connections" in view.away[-1].error
        cluster.add_node("b")
        cluster.come_back()
        await trio.sleep(AGAIN_MAX_S)
        assert mirror.statistics().age_s == 0
    assert view.seen == now(cluster, NODES)
    assert (view.resets, view.back) == (1, 1)
    assert mirror.statistics().error == ""


async def test_a_server_that_stays_away_is_asked_ever_more_seldom(autojump_clock: trio.testing.MockClock) -> None:
    cluster = MemoryCluster()
    async with mirrored(cluster, NODES):
        cluster.go_away()
        await trio.sleep(60)
        first = cluster.statistics().requests
        await trio.sleep(3_600)
        later = (cluster.statistics().requests - first) / 60
    assert first < 20
    assert later < 6  # a minute


async def test_one_that_may_not_list_says_so_and_goes_on_once_it_may(autojump_clock: trio.testing.MockClock) -> None:
    cluster = MemoryCluster()
    cluster.forbid("list", "nodes")
    async with mirrored(cluster, NODES, wait=False) as (view, _):
        await trio.sleep(60)
        assert view.resets == 0
        assert "nodes is forbidden" in view.away[0].error
        cluster.permit("list", "nodes")
        await trio.sleep(AGAIN_MAX_S)
    assert (view.resets, view.back) == (1, 1)


async def test_nothing_is_told_before_what_was_told_is_taken_in(autojump_clock: trio.testing.MockClock) -> None:
    cluster = MemoryCluster()
    order: list[str] = []

    async def slowly(news: News[Node]) -> None:
        order.append("begin")
        await trio.sleep(5)
        order.append("end")

    mirror = Mirror(cluster, NODES, slowly, Chance(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mirror.run)
        await trio.sleep(1)
        for number in range(20):
            cluster.add_node(f"n{number}")
        await trio.sleep(200)
        nursery.cancel_scope.cancel()
    assert order == ["begin", "end"] * 21


async def test_a_watch_that_falls_silent_costs_at_most_ninety_seconds_and_no_list(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster = MemoryCluster()
    async with mirrored(cluster, NODES) as (view, mirror):
        for number in range(20):
            await trio.sleep(number * 7.3)
            cluster.silence_watches()
            cluster.add_node(f"n{number}")
            await view.until(lambda: view.seen == now(cluster, NODES), within_s=90)
    assert mirror.statistics().lists == 1
    assert mirror.statistics().silences == 20
    assert not view.away


async def test_a_server_that_is_gone_without_a_word_is_told_to_be_away(autojump_clock: trio.testing.MockClock) -> None:
    cluster = MemoryCluster()
    async with mirrored(cluster, NODES) as (view, mirror):
        cluster.silence_watches()
        cluster.go_away()
        await trio.sleep(90)
        assert view.away[0].age_s == pytest.approx(WATCH_QUIET_S, abs=1.5)
        assert mirror.statistics().age_s == pytest.approx(90, abs=1.5)


async def test_a_server_without_bookmarks_is_asked_once_in_a_while_whether_it_is_there(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster = MemoryCluster()
    cluster.bookmark_every_s = math.inf
    async with mirrored(cluster, NODES) as (view, mirror):
        for _ in range(20):
            await trio.sleep(70)
            cluster.add_node(f"n{mirror.statistics().changes}")
        assert mirror.statistics().watches == 1
        await trio.sleep((WATCH_QUIET_S + 1) * (SILENT_WATCHES - 1))
        assert (mirror.statistics().lists, view.away) == (1, [])
        assert mirror.statistics().watches == SILENT_WATCHES
        await trio.sleep(3_600)
        assert mirror.statistics().lists <= 1 + 3_600 / (SILENT_WATCHES * WATCH_QUIET_S)
        assert mirror.statistics().lists > 10
    assert view.seen == now(cluster, NODES)


async def test_where_something_swallows_whatever_a_watch_brings_it_is_listed_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster = MemoryCluster()
    async with mirrored(cast("Kube", Swallowed(cluster)), NODES) as (view, mirror):
        cluster.add_node("a")
        await trio.sleep(SILENT_WATCHES * (WATCH_QUIET_S + 1) + 1)
        assert view.seen == now(cluster, NODES)
        assert mirror.statistics().lists == 2


async def test_who_takes_long_over_a_change_is_not_taken_for_a_silent_watch(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster = MemoryCluster()
    told: list[str] = []

    async def slowly(news: News[Node]) -> None:
        await trio.sleep(3 * WATCH_QUIET_S)
        if isinstance(news, Changed):
            told.append(news.item.metadata.name)

    mirror = Mirror(cluster, NODES, slowly, Chance(1))
    async with trio.open_nursery() as nursery:
        await nursery.start(mirror.run)
        for number in range(5):
            cluster.add_node(f"n{number}")
        await trio.sleep(20 * WATCH_QUIET_S)
        nursery.cancel_scope.cancel()
    assert told == [f"n{number}" for number in range(5)]
    assert mirror.statistics().silences == 0


def _act(cluster: MemoryCluster, number: int) -> None:
    """Something happens to nodes, or to the watches."""
    name = f"n{number % 5}"
    known = cluster.find(NODES, name) is not None
    acts: list[Callable[[], object]] = [
        lambda: cluster.remove_node(name) if known else cluster.add_node(name),
        lambda: cluster.cordon(name, on=number % 2 == 0) if known else None,
        cluster.cut_watches,
        lambda: cluster.cut_watches(cleanly=False),
        cluster.compact,
        cluster.go_away,
        cluster.come_back,
        cluster.silence_watches,
    ]
    acts[number // 5 % len(acts)]()


@pytest.mark.slow
@settings(settings.get_profile("property"), max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 39 * 5), st.sampled_from([0.0, 0.0, 0.3, 2.0, 61.0])), max_size=40), st.booleans()
)
def test_whatever_happens_the_view_is_right_in_the_end(steps: list[tuple[int, float]], cut: bool) -> None:
    async def live() -> None:
        cluster = MemoryCluster()
        kube: Kube = CutAtEveryEvent(cluster) if cut else cluster  # type: ignore[assignment]  # it lists and watches
        async with mirrored(kube, NODES) as (view, _):
            for number, wait_s in steps:
                _act(cluster, number)
                await trio.sleep(wait_s)
            cluster.come_back()
            await trio.sleep(120)
        assert view.seen == now(cluster, NODES)

    trio.run(live, clock=trio.testing.MockClock(autojump_threshold=0))


# With both


async def test_a_view_outlives_its_server(world: World) -> None:
    await world.kube.create(PODS, a_pod("before"), world.namespace)
    async with mirrored(world.kube, PODS, world.namespace) as (view, mirror):
        await world.go_away()
        await view.until(lambda: bool(view.away))
        await world.come_back()
        await world.kube.create(PODS, a_pod("after"), world.namespace)
        await view.until(lambda: len(view.seen) == 2)
        assert mirror.statistics().age_s == 0
        assert view.back == 1


@pytest.mark.slow
@pytest.mark.parametrize("world", ["real"], indirect=True)
async def test_a_view_through_watches_of_one_event_is_whole_and_listed_once(world: World) -> None:
    kube: Kube = CutAtEveryEvent(world.kube)  # type: ignore[assignment]  # it lists and watches
    async with mirrored(kube, PODS, world.namespace) as (view, mirror):
        for name in ("a", "b", "c"):
            await world.kube.create(PODS, a_pod(name), world.namespace)
        await world.kube.delete(PODS, "b", world.namespace)
        await view.until(lambda: len(view.changed) == 5)
        listing = await world.kube.list(PODS, world.namespace)
        assert view.seen == dict(map(_mark, listing.items))
        assert mirror.statistics().lists == 1


@pytest.mark.slow
async def test_what_a_silent_connection_swallowed_is_told_by_the_next_watch(api_server: ApiServer) -> None:
    async with open_kube(api_server.endpoint(), Chance()) as beside, a_line_to(api_server) as line:
        namespace = f"test-{uuid.uuid4().hex[:8]}"
        await beside.create(NAMESPACES, {"metadata": {"name": namespace}})
        endpoint = msgspec.structs.replace(api_server.endpoint(), server=line.url)
        async with (
            open_kube(endpoint, Chance(1)) as kube,
            mirrored(kube, PODS, namespace, quiet_s=3.0) as (view, mirror),
        ):
            for number in range(3):
                await beside.create(PODS, a_pod(f"heard-{number}"), namespace)
                await view.until(lambda told=number * 2 + 1: len(view.seen) == told)  # type: ignore[misc]
                line.swallow()
                await beside.create(PODS, a_pod(f"swallowed-{number}"), namespace)
                await view.until(lambda told=number * 2 + 2: len(view.seen) == told)  # type: ignore[misc]
            assert mirror.statistics().silences
            assert not view.away
