"""Requests to an API server that is busy, changes its mind about us, or answers strangely. No time passes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import httpx2
import msgspec
import pytest
import trio
import trio.testing

from levers9.errors import AlreadyThere, ConfigError, KubeRefused, KubeUnavailable, VersionGone
from levers9.kube.client import PAGED_TRIES, KubeClient, open_kube
from levers9.kube.connection import TRIES
from levers9.kube.endpoint import Endpoint
from levers9.kube.face import Access
from levers9.kube.kinds import NODES, PODS
from levers9.model.ids import Chance

SERVER = "https://api.test:6443"


class Script:
    """Answers in the order in which they were given; the last one again and again."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[httpx2.Request] = []
        self.asked_at_s: list[float] = []
        self.clients = 0

    def make(self, endpoint: Endpoint) -> httpx2.AsyncClient:
        self.clients += 1
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        self.asked_at_s.append(trio.current_time())
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)


def status(code: int, reason: str, message: str = "", **details: object) -> httpx2.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return httpx2.Response(code, json=body)


def pods(*names: str, after: str = "", version: str = "7") -> httpx2.Response:
    items = [{"metadata": {"name": name, "uid": f"u-{name}"}} for name in names]
    return httpx2.Response(200, json={"metadata": {"resourceVersion": version, "continue": after}, "items": items})


@contextlib.asynccontextmanager
async def kube(script: Script, **parts: object) -> AsyncIterator[KubeClient]:
    endpoint = msgspec.structs.replace(Endpoint(server=SERVER, authorization="Bearer first"), **parts)
    async with open_kube(endpoint, Chance(1), script.make) as client:
        yield client


# Pages


async def test_a_list_is_asked_for_page_by_page() -> None:
    script = Script(pods("a", "b", after="token/1"), pods("c", version="9"))
    async with kube(script) as client:
        listing = await client.list(PODS, "here", labels="a in (b,c)", fields="spec.nodeName=n")
    assert [pod.metadata.name for pod in listing.items] == ["a", "b", "c"]
    assert listing.version == "9"
    assert script.asked[0].url.path == "/api/v1/namespaces/here/pods"
    assert dict(script.asked[0].url.params) == {
        "labelSelector": "a in (b,c)",
        "fieldSelector": "spec.nodeName=n",
        "limit": "500",
    }
    assert script.asked[1].url.params["continue"] == "token/1"


async def test_a_list_that_expires_in_its_middle_begins_anew() -> None:
    script = Script(pods("a", after="t"), status(410, "Expired", "too old"), pods("a", after="t"), pods("b"))
    async with kube(script) as client:
        listing = await client.list(PODS)
    assert [pod.metadata.name for pod in listing.items] == ["a", "b"]
    assert "continue" not in script.asked[2].url.params


async def test_a_list_that_always_expires_is_asked_for_in_one_piece() -> None:
    expiring = [pods("a", after="t"), status(410, "Expired", "too old")] * PAGED_TRIES
    script = Script(*expiring, pods("a", "b"))
    async with kube(script) as client:
        listing = await client.list(PODS)
    assert len(listing.items) == 2
    assert "limit" not in script.asked[-1].url.params


# Busy and failing


async def test_who_is_told_to_come_again_does_so_no_sooner(autojump_clock: trio.testing.MockClock) -> None:
    busy = httpx2.Response(429, headers={"retry-after": "7"}, content=status(429, "TooManyRequests").content)
    script = Script(busy, status(503, "ServiceUnavailable", retryAfterSeconds=3), pods("a"))
    async with kube(script) as client:
        assert len((await client.list(PODS)).items) == 1
    first, second = (later - sooner for sooner, later in zip(script.asked_at_s, script.asked_at_s[1:], strict=False))
    assert 7 <= first <= 10.5
    assert 3 <= second <= 4.5


async def test_who_is_always_told_to_come_again_gives_up_and_says_so(autojump_clock: trio.testing.MockClock) -> None:
    script = Script(status(429, "TooManyRequests", "please slow down", retryAfterSeconds=1))
    async with kube(script) as client:
        with pytest.raises(KubeUnavailable, match="429 TooManyRequests: please slow down"):
            await client.list(PODS)
    assert len(script.asked) == TRIES


async def test_a_wait_that_is_asked_for_is_never_longer_than_half_a_minute_or_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = Script(status(503, "ServiceUnavailable", retryAfterSeconds=86_400), pods("a"))
    async with kube(script) as client:
        await client.list(PODS)
    assert trio.current_time() <= 45


async def test_a_server_that_fails_is_unavailable_with_its_own_words() -> None:
    async with kube(Script(status(500, "InternalError", "etcdserver: leader changed"))) as client:
        with pytest.raises(KubeUnavailable, match=r"list pods at https://api\.test:6443.*etcdserver: leader changed"):
            await client.list(PODS)


async def test_a_page_of_a_proxy_is_not_taken_for_an_answer_of_kubernetes() -> None:
    page = httpx2.Response(404, content=b"<html>\n  <h1>Not here</h1></html>")
    async with kube(Script(page)) as client:
        with pytest.raises(KubeRefused, match="did not answer as Kubernetes does: <html> <h1>Not here"):
            await client.get(PODS, "a", "here")


async def test_an_answer_that_is_no_list_is_an_error_and_no_crash() -> None:
    async with kube(Script(httpx2.Response(200, content=b'{"metadata": 3'))) as client:
        with pytest.raises(KubeUnavailable, match="not what Kubernetes says"):
            await client.list(PODS)


# A connection that was kept too long


async def test_a_connection_that_closed_under_a_request_is_opened_again() -> None:
    script = Script(httpx2.RemoteProtocolError("Server disconnected without sending a response."), pods("a"))
    async with kube(script) as client:
        assert len((await client.list(PODS)).items) == 1


async def test_a_create_is_never_sent_twice_by_itself() -> None:
    script = Script(httpx2.RemoteProtocolError("Server disconnected without sending a response."), pods("a"))
    async with kube(script) as client:
        with pytest.raises(KubeUnavailable):
            await client.create(PODS, {"metadata": {"name": "a"}}, "here")
    assert len(script.asked) == 1


# Who we are


async def test_credentials_that_are_no_longer_known_are_renewed_once() -> None:
    script = Script(status(401, "Unauthorized"), pods("a"))

    async def renew() -> Endpoint:
        return Endpoint(server=SERVER, authorization="Bearer second")

    async with kube(script, renew=renew) as client:
        await client.list(PODS)
    assert [request.headers["authorization"] for request in script.asked] == ["Bearer first", "Bearer second"]
    assert script.clients == 1  # the same connections serve


async def test_credentials_that_stay_unknown_are_refused_with_what_to_do() -> None:
    script = Script(status(401, "Unauthorized", "Unauthorized"))

    async def renew() -> Endpoint:
        return Endpoint(server=SERVER, authorization="Bearer second")

    async with kube(script, renew=renew) as client:
        with pytest.raises(KubeRefused, match="log in anew") as refused:
            await client.list(PODS)
    assert refused.value.status == 401
    assert len(script.asked) == 2


async def test_a_new_certificate_of_ours_opens_new_connections() -> None:
    script = Script(status(401, "Unauthorized"), pods("a"))

    async def renew() -> Endpoint:
        return Endpoint(server="https://moved.test")

    async with kube(script, renew=renew) as client:
        await client.list(PODS)
    assert script.clients == 2
    assert script.asked[-1].url.host == "moved.test"
    assert "authorization" not in script.asked[-1].headers


async def test_many_who_are_refused_at_once_renew_once() -> None:
    renewed: list[int] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        known = request.headers["authorization"] == "Bearer second"
        return pods("a") if known else status(401, "Unauthorized")

    async def renew() -> Endpoint:
        await trio.testing.wait_all_tasks_blocked()
        renewed.append(1)
        return Endpoint(server=SERVER, authorization="Bearer second", renew=renew)

    def make(endpoint: Endpoint) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))

    endpoint = Endpoint(server=SERVER, authorization="Bearer first", renew=renew)
    async with open_kube(endpoint, Chance(1), make) as client, trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(client.list, PODS)
    assert len(renewed) == 1


async def test_a_token_in_a_file_is_read_again_in_time(autojump_clock: trio.testing.MockClock) -> None:
    script = Script(pods("a"))
    tokens = iter(("second", "third"))

    async def renew() -> Endpoint:
        return Endpoint(server=SERVER, authorization=f"Bearer {next(tokens)}", renew_after_s=60, renew=renew)

    async with kube(script, renew=renew, renew_after_s=60.0) as client:
        for _ in range(5):
            await client.list(PODS)
            await trio.sleep(30)
    used = [request.headers["authorization"].removeprefix("Bearer ") for request in script.asked]
    assert used == ["first", "first", "second", "second", "third"]


async def test_a_token_that_cannot_be_read_again_is_used_as_it_is(autojump_clock: trio.testing.MockClock) -> None:
    script = Script(pods("a"))

    async def renew() -> Endpoint:
        raise ConfigError("the file is gone")

    async with kube(script, renew=renew, renew_after_s=60.0) as client:
        await trio.sleep(61)
        await client.list(PODS)
    assert script.asked[0].headers["authorization"] == "Bearer first"


def test_an_endpoint_that_is_printed_shows_no_credentials() -> None:
    assert "first" not in repr(Endpoint(server=SERVER, authorization="Bearer first"))


# Each verb


async def test_a_delete_names_the_identity_it_means_and_what_becomes_of_what_it_owns() -> None:
    script = Script(httpx2.Response(200, json={"kind": "Status", "status": "Success"}))
    async with kube(script) as client:
        assert await client.delete(PODS, "a", "here", uid="u-1", grace_s=0)
    assert msgspec.json.decode(script.asked[0].content) == {
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u-1"},
        "gracePeriodSeconds": 0,
    }


async def test_an_apply_says_whose_fields_they_are_and_takes_them() -> None:
    script = Script(httpx2.Response(200, json={"metadata": {"name": "a/b"}}))
    async with kube(script) as client:
        await client.apply(NODES, {"metadata": {"name": "a/b"}}, manager="levers9 join")
    asked = script.asked[0]
    assert asked.url.raw_path == b"/api/v1/nodes/a%2Fb?fieldManager=levers9+join&force=true"
    assert asked.headers["content-type"] == "application/apply-patch+yaml"
    assert msgspec.json.decode(asked.content) == {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a/b"}}


async def test_what_is_applied_needs_a_name() -> None:
    async with kube(Script(pods())) as client:
        with pytest.raises(ValueError, match=r"metadata\.name"):
            await client.apply(NODES, {"metadata": {}}, manager="levers9")


async def test_a_patch_goes_to_the_subresource() -> None:
    script = Script(httpx2.Response(200, json={"metadata": {"name": "a"}}))
    async with kube(script) as client:
        await client.patch(NODES, "a", {"status": {}}, subresource="status")
    assert script.asked[0].url.path == "/api/v1/nodes/a/status"
    assert script.asked[0].headers["content-type"] == "application/merge-patch+json"


async def test_a_question_about_rights_is_asked_as_it_was_put() -> None:
    script = Script(httpx2.Response(201, json={"status": {"allowed": True}}))
    async with kube(script) as client:
        assert await client.allowed(Access(verb="create", plural="jobs", group="batch", namespace="here"))
    spec = msgspec.json.decode(script.asked[0].content, type=dict[str, object])["spec"]
    attributes = {"verb": "create", "resource": "jobs", "group": "batch", "namespace": "here"}
    assert spec == {"resourceAttributes": attributes}


async def test_refusals_are_told_apart() -> None:
    script = Script(
        status(409, "AlreadyExists", "taken"), status(409, "Conflict", "changed"), status(410, "Gone", "old")
    )
    async with kube(script) as client:
        with pytest.raises(AlreadyThere):
            await client.create(PODS, {}, "here")
        with pytest.raises(KubeRefused, match="changed") as conflict:
            await client.create(PODS, {}, "here")
        with pytest.raises(VersionGone):
            await client.create(PODS, {}, "here")
    assert type(conflict.value) is KubeRefused
