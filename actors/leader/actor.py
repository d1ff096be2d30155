"""The thin shell of leadership: campaign, reign, tell the gateways."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import structlog
import trio

from ...errors import StoreUnavailable, SupervisorGaveUp
from ...model.figures import LEADER_RENEW_S
from ...store import operations as ops
from ...store.face import Store
from ...wire.control import GatewayReady, LeaderIs
from ...wire.letter import Letter
from ...wire.mailbox import Mailbox
from ...wire.post import Post
from .policy import BeginReign, Campaign, Decision, EndReign, Follow

ADDRESS: Final = "leader"
REIGN_BACK_OFF_MIN_S: Final = 0.05
REIGN_BACK_OFF_MAX_S: Final = 5.0
REIGN_HEALTHY_AFTER_S: Final = 10.0

_log: Final = structlog.get_logger("levers9.leader")

Reign = Callable[[int, trio.TaskStatus[None]], Awaitable[None]]


class LeaderActor:
    """Campaigns for one replica. `reign(epoch, task_status)` runs the actors that decide until it is cancelled."""

    def __init__(
        self, *, campaign: Campaign, store: Store, post: Post, clock: Callable[[], float], reign: Reign
    ) -> None:
        self._campaign = campaign
        self._store = store
        self._post = post
        self._clock = clock
        self._reign = reign
        self._scope: trio.CancelScope | None = None
        self._ready_epoch = 0
        self._gateways: dict[str, None] = {}
        self._back_off_s = REIGN_BACK_OFF_MIN_S
        self._reigns = trio.Lock()

    async def run(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Campaign until cancelled; the store may be away, then we neither begin nor end a reign."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._take_letters, mailbox)
            task_status.started()
            async with self._resigning():
                while True:
                    await self._campaign_once(nursery)
                    await trio.sleep(LEADER_RENEW_S if self._campaign.reigning else LEADER_RENEW_S / 2)

    @contextlib.asynccontextmanager
    async def _resigning(self) -> AsyncIterator[None]:
        """When we stop in good order the next leader need not wait for the lease."""
        try:
            yield
        finally:
            if self._campaign.reigning:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
                    await self._resign()

    async def _campaign_once(self, nursery: trio.Nursery) -> None:
        try:
            (row,) = await self._store.apply(self._campaign.next_operation(self._clock()))
        except StoreUnavailable as error:
            _log.info("the store is away; leadership stays as it is", why=str(error))
            return
        assert isinstance(row, ops.Leadership)
        for decision in self._campaign.heard(row):
            await self._perform(decision, nursery)

    async def _perform(self, decision: Decision, nursery: trio.Nursery) -> None:
        match decision:
            case BeginReign(epoch):
                nursery.start_soon(self._live_reign, epoch)
            case EndReign(why):
                _log.warning("our reign ends", why=why)
                if self._scope is not None:
                    self._scope.cancel(reason=why)
            case Follow(epoch, url):
                _log.info("another replica leads", epoch=epoch, url=url)
                await self._tell(tuple(self._gateways))

    async def _live_reign(self, epoch: int) -> None:
        """One reign, to its end; one that ends by itself is resigned, so that the next can begin."""
        async with self._reigns:
            if self._campaign.reigning != epoch:
                return
            began_s = trio.current_time()
            with trio.CancelScope() as self._scope:
                await self._reign_once(epoch)
            self._scope = None
            if self._campaign.reigning != epoch:
                return
            healthy = trio.current_time() - began_s > REIGN_HEALTHY_AFTER_S
            self._back_off_s = REIGN_BACK_OFF_MIN_S if healthy else min(self._back_off_s * 2, REIGN_BACK_OFF_MAX_S)
            await trio.sleep(self._back_off_s)
            await self._resign()

    async def _reign_once(self, epoch: int) -> None:
        async with trio.open_nursery() as nursery:
            try:
                await nursery.start(self._run_reign, epoch)
            except SupervisorGaveUp as error:
                _log.warning("the reign could not begin", epoch=epoch, why=str(error))
                return
            _log.info("we lead", epoch=epoch)
            self._ready_epoch = epoch
            await self._tell(tuple(self._gateways))

    async def _run_reign(self, epoch: int, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            await self._reign(epoch, task_status)
        except SupervisorGaveUp as error:
            _log.warning("our reign ended", epoch=epoch, why=str(error))

    async def _resign(self) -> None:
        operation = self._campaign.reign_ended()
        with contextlib.suppress(StoreUnavailable):
            await self._store.apply(operation)

    async def _take_letters(self, mailbox: Mailbox) -> None:
        while True:
            letter = await mailbox.take()
            if isinstance(letter.message, GatewayReady):
                gateway = f"gateway/{letter.message.gateway_id}"
                self._gateways[gateway] = None
                await self._tell((gateway,))

    async def _tell(self, gateways: tuple[str, ...]) -> None:
        epoch, url = self._campaign.followed
        if not epoch or (self._campaign.reigning and self._ready_epoch != epoch):
            return
        message = LeaderIs(epoch=epoch, url=url)
        await self._post.send_many(Letter(message, source=ADDRESS, target=gateway) for gateway in gateways)
