"""The shell of leadership under a mock clock: reigns begin, end and begin anew, and gateways hear of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from levers9.actors.leader import Campaign, LeaderActor
from levers9.errors import EpochSuperseded, StoreUnavailable, SupervisorGaveUp
from levers9.model.ids import Chance
from levers9.store import operations as ops
from levers9.store.memory import MemoryStore
from levers9.wire.cluster import DialWorkers, WorkerAddress
from levers9.wire.control import GatewayReady, LeaderIs, PeerArrived, ReportAgain
from levers9.wire.letter import Letter
from levers9.wire.mailbox import Mailbox
from levers9.wire.message import Message
from levers9.wire.post import Post


class Reigns:
    """What a leader is given to run: notes each epoch, and fails when it is told to."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.failing: list[Exception] = []
        self.refusing: list[Exception] = []
        self.fail = trio.Event()

    async def __call__(self, epoch: int, task_status: trio.TaskStatus[None]) -> None:
        if self.refusing:
            raise self.refusing.pop(0)
        self.begun.append(epoch)
        task_status.started()
        try:
            await self.fail.wait()
            self.fail = trio.Event()
            raise self.failing.pop(0)
        finally:
            self.ended.append(epoch)


class House:
    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.post = Post(chance=Chance(1))
        self.mailbox = Mailbox("leader")
        self.gateway = Mailbox("gateway")
        self.worker = Mailbox("worker")
        self.post.register("leader", self.mailbox)
        self.post.register("gateway/g", self.gateway)
        self.post.register("worker/w", self.worker)
        self.reigns = Reigns()
        self.campaign = Campaign("one", "life", "ws://one")
        self.leader = LeaderActor(
            campaign=self.campaign, store=store, post=self.post, clock=trio.current_time, reign=self.reigns
        )

    def say(self, message: Message) -> None:
        self.mailbox.post_nowait(Letter(message, source="gateway/g"))

    def heard(self, mailbox: Mailbox) -> list[Message]:
        return [letter.message for letter in mailbox.take_ready()]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.run)
            yield
            nursery.cancel_scope.cancel()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self.leader.run(self.mailbox, task_status=task_status)


@pytest.fixture
def house() -> House:
    return House(MemoryStore())


async def test_gateways_hear_who_leads_once_the_actors_are_ready(autojump_clock: MockClock, house: House) -> None:
    house.say(GatewayReady(gateway_id="g"))
    async with house.running():
        await trio.sleep(0.5)
        assert house.reigns.begun == [1]
        assert house.heard(house.gateway) == [LeaderIs(epoch=1)]


@pytest.mark.parametrize("error", [SupervisorGaveUp("reign", ("tasks crashed",)), StoreUnavailable("away")])
async def test_a_reign_that_fails_is_followed_by_one_with_a_new_epoch(
    autojump_clock: MockClock, house: House, error: Exception
) -> None:
    house.say(GatewayReady(gateway_id="g"))
    async with house.running():
        await trio.sleep(0.5)
        house.reigns.failing.append(error)
        house.reigns.fail.set()
        await trio.sleep(1.0)
        assert house.reigns.begun == [1, 2]
        assert house.reigns.ended == [1]
        assert house.heard(house.gateway)[-1] == LeaderIs(epoch=2)


@pytest.mark.parametrize(
    "error", [SupervisorGaveUp("reign", ()), StoreUnavailable("away"), EpochSuperseded("leader", 1)]
)
async def test_a_reign_that_cannot_begin_is_tried_again(
    autojump_clock: MockClock, house: House, error: Exception
) -> None:
    house.reigns.refusing.append(error)
    async with house.running():
        await trio.sleep(2.0)
        assert house.reigns.begun == [2]


async def test_reigns_that_keep_failing_begin_ever_later(autojump_clock: MockClock, house: House) -> None:
    house.reigns.refusing += [StoreUnavailable("away") for _ in range(1000)]
    async with house.running():
        await trio.sleep(100.0)
        assert 1000 - len(house.reigns.refusing) < 40


async def test_when_another_leads_our_actors_end_and_gateways_hear_where_to_go(
    autojump_clock: MockClock, house: House
) -> None:
    house.say(GatewayReady(gateway_id="g"))
    async with house.running():
        await trio.sleep(0.5)
        await house.store.apply(ops.ResignLeadership(epoch=1))
        await house.store.apply(ops.TakeLeadership(holder="two", url="ws://two", now_s=9e9))
        await trio.sleep(2.0)
        assert (house.reigns.begun, house.reigns.ended) == ([1], [1])
        assert house.heard(house.gateway)[-1] == LeaderIs(epoch=2, url="ws://two")


async def test_while_the_store_is_away_the_reign_goes_on(autojump_clock: MockClock, house: House) -> None:
    async with house.running():
        await trio.sleep(0.5)
        for _ in range(3):
            house.store.fail_next()
        await trio.sleep(4.0)
        assert (house.reigns.begun, house.reigns.ended) == ([1], [])


async def test_a_leader_that_stops_in_good_order_resigns(autojump_clock: MockClock, house: House) -> None:
    async with house.running():
        await trio.sleep(0.5)
    (row,) = await house.store.apply(ops.ReadLeadership())
    assert isinstance(row, ops.Leadership)
    assert row.holder == ""


async def test_a_second_life_of_the_actor_does_not_rest_on_the_reign_of_the_first(
    autojump_clock: MockClock, house: House
) -> None:
    async with house.running():
        await trio.sleep(0.5)
        house.store.fail_next()  # the resignation does not arrive
        house.store.fail_next()
    async with house.running():
        await trio.sleep(2.0)
        assert house.reigns.begun == [1, 2]


async def test_a_worker_that_is_heard_of_again_is_asked_to_report(autojump_clock: MockClock, house: House) -> None:
    house.say(PeerArrived(peer="worker/w"))
    async with house.running():
        await trio.sleep(0.5)
        house.heard(house.worker)
        house.say(PeerArrived(peer="worker/w"))
        house.say(PeerArrived(peer="client/c"))
        await trio.sleep(0.1)
        assert house.heard(house.worker) == [ReportAgain(epoch=1)]


async def test_between_reigns_nobody_is_sent_to_us(autojump_clock: MockClock, house: House) -> None:
    house.reigns.refusing += [StoreUnavailable("away") for _ in range(1000)]
    async with house.running():
        house.say(GatewayReady(gateway_id="g"))
        house.say(PeerArrived(peer="worker/w"))
        await trio.sleep(5.0)
        assert house.heard(house.gateway) == house.heard(house.worker) == []


async def test_gateways_are_told_whom_to_dial_also_those_that_come_later_and_until_the_reign_ends(
    autojump_clock: MockClock, house: House
) -> None:
    named = DialWorkers(workers=(WorkerAddress(worker_id="w", url="ws://127.0.0.1:1"),))
    house.say(GatewayReady(gateway_id="g"))
    async with house.running():
        await trio.sleep(0.5)
        house.heard(house.gateway)
        house.say(named)
        await trio.sleep(0.1)
        assert house.heard(house.gateway) == [named]
        house.say(GatewayReady(gateway_id="g"))
        await trio.sleep(0.1)
        assert house.heard(house.gateway) == [LeaderIs(epoch=1), named]
        house.say(DialWorkers(workers=()))
        await trio.sleep(0.1)
        assert house.heard(house.gateway) == [DialWorkers(workers=())]
        house.reigns.failing.append(StoreUnavailable("away"))
        house.reigns.fail.set()
        house.say(named)
        await trio.sleep(2.0)
        house.heard(house.gateway)
        house.say(GatewayReady(gateway_id="g"))
        await trio.sleep(0.1)
        assert house.heard(house.gateway) == [LeaderIs(epoch=2)]
