"""A watch as it arrives: cut anywhere, broken, full of surprises."""

from __future__ import annotations

import socket

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from levers9.errors import KubeRefused, KubeUnavailable, VersionGone
from levers9.kube.client import WATCH_BEGINS_WITHIN_S, WATCH_END_GRACE_S, WATCH_S, open_kube
from levers9.kube.connection import CLOSE_WITHIN_S, PROBE_AFTER_S, http_client
from levers9.kube.endpoint import Endpoint
from levers9.kube.face import Change, ChangeType
from levers9.kube.kinds import PODS
from levers9.kube.mirror import WATCH_QUIET_S
from levers9.kube.objects import Pod
from levers9.kube.watching import Events, Lines
from levers9.model.ids import Chance

from .raw_server import CHUNKED, a_raw_server, chunk


def event(type_: str, name: str = "a", version: int = 1) -> bytes:
    pod = {"kind": "Pod", "metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": str(version)}}
    return msgspec.json.encode({"type": type_, "object": pod}) + b"\n"


def failure(code: int, reason: str, **details: object) -> bytes:
    status = {"kind": "Status", "code": code, "reason": reason, "message": "because", "details": details}
    return msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"


def read(*data: bytes) -> list[Change[Pod]]:
    events = Events(Pod, "watch pods")
    return [change for piece in data for change in events.feed(piece)]


# Lines


@given(st.lists(st.binary(max_size=50).map(lambda line: line.replace(b"\n", b"")), max_size=20), st.data())
def test_lines_are_the_same_wherever_the_bytes_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    reader, found = Lines(), []
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += reader.feed(whole[begin:end])
    assert found == [line for line in lines if line.strip()]


def test_a_line_that_was_begun_is_not_one_yet() -> None:
    reader = Lines()
    assert reader.feed(b'{"type":') == []
    assert reader.feed(b' "ADDED"}\r\n{') == [b'{"type": "ADDED"}\r']


@pytest.mark.parametrize(
    "pieces", [[b"x" * 101], [b"x" * 60, b"x" * 60], [b"x" * 101 + b"\n"], [b"x" * 60, b"x" * 60 + b"\n"]]
)
def test_a_line_without_end_is_given_up(pieces: list[bytes]) -> None:
    reader = Lines(limit_bytes=100)
    for piece in pieces[:-1]:
        reader.feed(piece)
    with pytest.raises(KubeUnavailable, match="no event"):
        reader.feed(pieces[-1])


def test_many_lines_at_once_may_be_longer_than_one_may() -> None:
    assert len(Lines(limit_bytes=10).feed(b"12345678\n" * 100)) == 100


# Events


def test_an_event_is_a_change_with_where_to_go_on() -> None:
    (change,) = read(event("MODIFIED", "a", 12))
    assert (change.type, change.version) == (ChangeType.MODIFIED, "12")
    assert change.item is not None
    assert change.item.metadata.uid == "u-a"


def test_a_bookmark_is_a_version_and_no_object() -> None:
    (change,) = read(event("BOOKMARK", "", 99))
    assert change == Change(type=ChangeType.BOOKMARK, item=None, version="99")


def test_events_of_a_kind_from_the_future_are_passed_over() -> None:
    assert [change.version for change in read(event("RENAMED", "a", 1) + event("ADDED", "a", 2))] == ["2"]


def test_an_object_that_cannot_be_read_is_passed_over_and_not_looked_at_again() -> None:
    strange = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"5"},"spec":7}}\n'
    assert read(strange) == [Change(type=ChangeType.BOOKMARK, item=None, version="5")]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (failure(410, "Expired"), VersionGone),
        (failure(410, "Gone"), VersionGone),
        (failure(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge"}]), VersionGone),
        (failure(500, "InternalError"), KubeUnavailable),
        (failure(429, "TooManyRequests"), KubeUnavailable),
        (failure(403, "Forbidden"), KubeRefused),
        (b'{"type":"ERROR","object":{}}\n', KubeUnavailable),
        (b"<html>\n", KubeUnavailable),
        (b'{"object":{}}\n', KubeUnavailable),
    ],
)
def test_an_error_in_a_watch_is_the_error_that_it_says(line: bytes, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        read(line)
    assert type(raised.value) is error


# Over a connection


async def watched(url: str) -> list[str]:
    found = []
    async with open_kube(Endpoint(server=url), Chance(1)) as kube:
        async with kube.watch(PODS, since="1") as changes:
            async for change in changes:
                found.append(change.version)
    return found


async def test_an_end_that_the_server_makes_is_the_end_of_the_watch() -> None:
    line = event("ADDED", "a", 2)
    async with a_raw_server(
        CHUNKED, chunk(line[:10]), chunk(line[10:] + event("DELETED", "a", 3)), b"0\r\n\r\n"
    ) as server:
        assert await watched(server.url) == ["2", "3"]


@pytest.mark.parametrize("last", [chunk(b'{"type":'), b"ff\r\n{", b""])
async def test_a_watch_that_breaks_is_no_end(last: bytes) -> None:
    async with a_raw_server(CHUNKED, chunk(event("ADDED", "a", 2)), last) as server:
        with pytest.raises(KubeUnavailable, match="watch pods: The API server http://127"):
            await watched(server.url)


async def test_a_watch_that_is_left_closes_its_connection() -> None:
    async with a_raw_server(CHUNKED, chunk(event("ADDED", "a", 2)), stalls=True) as server:
        with trio.fail_after(CLOSE_WITHIN_S / 2):
            async with open_kube(Endpoint(server=server.url), Chance(1)) as kube:
                async with kube.watch(PODS, since="1") as changes:
                    async for _ in changes:
                        break
                await server.closed.wait()
    assert server.closed.is_set()


async def test_a_watch_that_is_cancelled_closes_its_connection() -> None:
    async with a_raw_server(CHUNKED, stalls=True) as server:
        with trio.move_on_after(0.05) as scope:
            await watched(server.url)
        with trio.fail_after(5):
            await server.closed.wait()
    assert scope.cancelled_caught


async def test_the_network_is_asked_whether_a_silent_peer_is_still_there() -> None:
    async with a_raw_server(CHUNKED, stalls=True) as server, http_client(Endpoint(server=server.url)) as client:
        async with client.stream("GET", server.url) as response:
            kept = response.extensions["network_stream"].get_extra_info("socket")
            assert kept.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == PROBE_AFTER_S
            assert kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 50_000


@pytest.mark.slow
async def test_a_watch_that_is_not_begun_is_given_up_long_before_it_would_end() -> None:
    async def live() -> float:
        async with a_raw_server(stalls=True) as server:
            with pytest.raises(KubeUnavailable, match="does not answer in time"):
                await watched(server.url)
        return trio.current_time()

    run = trio.testing.MockClock(autojump_threshold=0.1)
    lasted_s = await trio.to_thread.run_sync(lambda: trio.run(live, clock=run))
    assert WATCH_BEGINS_WITHIN_S <= lasted_s < WATCH_BEGINS_WITHIN_S + CLOSE_WITHIN_S + 1
    assert WATCH_QUIET_S + WATCH_BEGINS_WITHIN_S <= 90


@pytest.mark.slow
async def test_a_watch_whose_end_got_lost_is_given_up() -> None:
    """The clock jumps only once nothing has arrived for a while."""

    async def live() -> float:
        async with a_raw_server(CHUNKED, chunk(event("ADDED", "a", 2)), stalls=True) as server:
            with pytest.raises(KubeUnavailable, match="does not answer in time"):
                await watched(server.url)
        return trio.current_time()

    run = trio.testing.MockClock(autojump_threshold=0.1)
    lasted_s = await trio.to_thread.run_sync(lambda: trio.run(live, clock=run))
    assert WATCH_S + WATCH_END_GRACE_S < lasted_s < 2 * WATCH_S + WATCH_END_GRACE_S + 10
