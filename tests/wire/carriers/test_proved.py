"""Dialling a worker that listens: each side is believed only if it knows the worker's token."""

import contextlib
import hmac
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio

from levers9.errors import UNAUTHENTICATED, BrokenByPeer, Refused
from levers9.model.ids import Chance
from levers9.model.tokens import hash_of
from levers9.wire.carriers import proved, websocket
from levers9.wire.carriers.certificate import self_signed
from levers9.wire.carriers.proved import PATH, DialledListener, dial, proof
from levers9.wire.link import Acceptor, DialledLink, Link, Opened

TOKEN = "l9_workr_x"
HASH = hash_of(TOKEN)


@contextlib.asynccontextmanager
async def a_listener(token: str = TOKEN, worker_id: str = "w1") -> AsyncIterator[tuple[DialledListener, str]]:
    listener = DialledListener(worker_id=worker_id, token=token)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(listener.run, "127.0.0.1", 0)
        with trio.fail_after(10):
            yield listener, f"ws://127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def under_tls(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[DialledListener, str]]:
    """As beyond loopback."""
    with monkeypatch.context() as patch:
        for module in (proved, websocket):
            patch.setattr(module, "is_loopback", lambda host: False)
        async with a_listener() as (listener, url):
            yield listener, url.replace("ws:", "wss:")


async def test_who_knows_the_token_gets_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    for listening in (a_listener(), under_tls(monkeypatch)):
        async with listening as (listener, url):
            theirs = await dial(url, worker_id="w1", token_hash=HASH)
            ours = await listener.dial()
            await theirs.send(b"hello")
            assert await ours.receive() == b"hello"
            await ours.send(b"good day")
            assert await theirs.receive() == b"good day"
            await theirs.aclose()
            await ours.aclose()


@pytest.mark.parametrize(("worker_id", "token"), [("w1", "another"), ("w2", TOKEN)])
async def test_the_worker_refuses_who_does_not_know_it(worker_id: str, token: str) -> None:
    async with a_listener() as (_, url):
        with pytest.raises(Refused, match="not a control plane of worker w1") as caught:
            await dial(url, worker_id=worker_id, token_hash=hash_of(token))
        assert caught.value.code == UNAUTHENTICATED
        with pytest.raises(Refused, match="not a control plane"):
            await websocket.connect(f"{url}{PATH}", token=TOKEN)
        with pytest.raises(Refused, match="not a control plane"):
            await websocket.connect(f"{url}/v1/other", token=proof(HASH, "dials", "w1", b""))


async def test_who_dials_refuses_a_worker_that_does_not_know_it() -> None:
    """One that lets everybody in, and says what it likes."""

    async def impostor(request: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
        await carrier.send(request.token.encode())
        await carrier.gone.wait()

    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(websocket.serve, "127.0.0.1", 0, impostor))
        with trio.fail_after(5), pytest.raises(Refused, match="Who answers there is not worker w1"):
            await dial(f"ws://127.0.0.1:{port}", worker_id="w1", token_hash=HASH)
        nursery.cancel_scope.cancel()


async def test_one_in_the_middle_gets_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows a certificate of its own, and hands on to the worker what the control plane says of itself."""
    async with under_tls(monkeypatch) as (_, url):
        answers: list[Refused] = []

        async def in_the_middle(request: websocket.RequestInfo) -> None:
            with pytest.raises(Refused, match="not a control plane") as caught:
                await websocket.connect(f"{url}{PATH}", token=request.token, ssl_context=proved._any_certificate())
            answers.append(caught.value)
            raise caught.value

        async def never(request: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
            raise AssertionError("the worker believed one in the middle")

        async with trio.open_nursery() as nursery:
            context, _ = self_signed()
            serve = partial(websocket.serve, "127.0.0.1", 0, never, check=in_the_middle, ssl_context=context)
            port = await nursery.start(serve)
            with pytest.raises(Refused):
                await dial(f"wss://127.0.0.1:{port}", worker_id="w1", token_hash=HASH)
            nursery.cancel_scope.cancel()
        assert len(answers) == 1


async def test_no_proof_goes_to_another_machine_in_the_clear() -> None:
    with pytest.raises(Refused, match="in the clear"):
        await dial("ws://10.0.0.7:1995", worker_id="w1", token_hash=HASH)


async def test_a_second_gateway_waits_until_the_first_has_gone() -> None:
    async with a_listener() as (listener, url):
        first = await dial(url, worker_id="w1", token_hash=HASH)
        ours = await listener.dial()
        with pytest.raises(BrokenByPeer, match="503"):
            await dial(url, worker_id="w1", token_hash=HASH)
        await first.aclose()
        with pytest.raises(BrokenByPeer):
            await ours.receive()
        await ours.aclose()
        while True:
            with contextlib.suppress(BrokenByPeer):
                second = await dial(url, worker_id="w1", token_hash=HASH)
                break
        assert await listener.dial() is not ours
        await second.aclose()


async def test_a_silent_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proved, "ANSWER_WITHIN_S", 0.02)

    async def silent(request: websocket.RequestInfo, carrier: websocket.WebSocketCarrier) -> None:
        with contextlib.suppress(BrokenByPeer):
            await carrier.receive()

    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(websocket.serve, "127.0.0.1", 0, silent))
        with pytest.raises(BrokenByPeer, match=r"w1 did not answer within 0\.02 s"):
            await dial(f"ws://127.0.0.1:{port}", worker_id="w1", token_hash=HASH)
        nursery.cancel_scope.cancel()


async def test_knocks_beyond_its_places_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proved, "PLACES", 1)
    async with a_listener() as (listener, url):
        theirs = await dial(url, worker_id="w1", token_hash=HASH)
        ours = await listener.dial()
        with pytest.raises(BrokenByPeer, match="cannot be reached"):
            await dial(url, worker_id="w1", token_hash=HASH)
        await theirs.aclose()
        await ours.aclose()


async def test_the_worker_s_link_goes_on_over_the_next_stream() -> None:
    acceptor = Acceptor(chance=Chance(1))
    opened: list[Opened] = []

    async def on_link(link: Link) -> None:
        while True:
            event = await link.next_event()
            if isinstance(event, Opened):
                opened.append(event)

    async with trio.open_nursery() as nursery, a_listener() as (listener, url):
        await nursery.start(acceptor.run)
        link = DialledLink(name="gateways", dial=listener.dial, chance=Chance(2), redial=proved.at_once())
        nursery.start_soon(link.run)
        for resumed in (False, True):
            carrier = await dial(url, worker_id="w1", token_hash=HASH)
            nursery.start_soon(partial(acceptor.serve, carrier, name="worker/w1", on_link=on_link))
            event = await link.next_event()
            while not isinstance(event, Opened):
                event = await link.next_event()
            assert event == Opened(resumed)
            await carrier.aclose()
        nursery.cancel_scope.cancel()
    assert opened == [Opened(False), Opened(True)]


def test_a_proof_is_of_one_side_one_worker_and_one_certificate() -> None:
    proofs = {
        proof(token_hash, side, worker_id, certificate)
        for token_hash in (HASH, hash_of("y"))
        for side in ("dials", "answers")
        for worker_id in ("w1", "w2")
        for certificate in (b"", b"\1" * 32)
    }
    assert len(proofs) == 16
    assert TOKEN not in "".join(proofs)
    assert not hmac.compare_digest(proof(HASH, "dials", "w1", b""), proof(HASH, "answers", "w1", b""))


async def test_of_two_that_come_at_once_one_is_taken() -> None:
    taken: list[bool] = []

    async def knock(url: str) -> None:
        try:
            carrier = await dial(url, worker_id="w1", token_hash=HASH)
        except BrokenByPeer:
            taken.append(False)
        else:
            taken.append(True)
            await carrier.aclose()

    async with a_listener() as (listener, url):
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(knock, url)
            ours = await listener.dial()
            with pytest.raises(BrokenByPeer):
                await ours.receive()
        await ours.aclose()
    assert sorted(taken) == [False, False, False, True]
