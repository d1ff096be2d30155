"""The thin shell of leadership: campaign, reign, tell the gateways."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import structlog
import trio

from ...errors import EpochSuperseded, StoreUnavailable, SupervisorGaveUp
from ...model.figures import LEADER_RENEW_S
from ...store import operations as ops
from ...store.face import Store
from ...wire.cluster import DialWorkers
from ...wire.control import GatewayReady, LeaderIs, PeerArrived, ReportAgain
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
        self._dialled: DialWorkers | None = None
        self._back_off_s = REIGN_BACK_OFF_MIN_S
        self._reigns = trio.Lock()
        self._wake = trio.Event()

    async def run(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Campaign until cancelled; the store may be away, then we neither begin nor end a reign."""
        self._campaign.reign_ended(self._campaign.reigning)  # one of an earlier life of this actor died with it
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._take_letters, mailbox)
            task_status.started()
            async with self._resigning():
                while True:
                    await self._campaign_once(nursery)
                    with trio.move_on_after(LEADER_RENEW_S if self._campaign.reigning else LEADER_RENEW_S / 2):
                        await self._wake.wait()
                    self._wake = trio.Event()

    @contextlib.asynccontextmanager
    async def _resigning(self) -> AsyncIterator[None]:
        """When we stop in good order the next leader need not wait for the lease."""
        try:
            yield
        finally:
            if self._campaign.reigning:
                self._campaign.reign_ended(self._campaign.reigning)
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 1.0):
                    await self._ask_store()

    async def _campaign_once(self, nursery: trio.Nursery) -> None:
        """At most three steps at once: an epoch whose reign is over is found, resigned, and the next one taken."""
        for _ in range(3):
            answer = await self._ask_store()
            if isinstance(answer, ops.Leadership):
                for decision in self._campaign.heard(answer, trio.current_time()):
                    await self._perform(decision, nursery)
            if answer is None or not (self._campaign.resigning or isinstance(answer, ops.Applied)):
                return

    async def _ask_store(self) -> ops.Answer:
        """Do what the campaign wants done next; None while the store is away."""
        try:
            operation = self._campaign.next_operation(self._clock(), trio.current_time())
            (answer,) = await self._store.apply(operation)
        except StoreUnavailable as error:
            _log.info("the store is away; leadership stays as it is", why=str(error))
            return None
        if isinstance(answer, ops.Applied):
            self._campaign.resigned()
        return answer

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
            healthy = trio.current_time() - began_s > REIGN_HEALTHY_AFTER_S
            self._back_off_s = REIGN_BACK_OFF_MIN_S if healthy else min(self._back_off_s * 2, REIGN_BACK_OFF_MAX_S)
            if self._campaign.reigning == epoch:
                await trio.sleep(self._back_off_s)
            self._campaign.reign_ended(epoch)
            self._dialled = None
            self._wake.set()

    async def _reign_once(self, epoch: int) -> None:
        """A reign may fail to begin, or fail later; what it failed of is in the log, and the next reads the truth."""
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._run_reign, epoch)
                _log.info("we lead", epoch=epoch)
                self._ready_epoch = epoch
                await self._tell(tuple(self._gateways))
        except* (SupervisorGaveUp, StoreUnavailable, EpochSuperseded) as errors:
            for error in errors.exceptions:
                _log.warning("our reign ended", epoch=epoch, why=str(error))

    async def _run_reign(self, epoch: int, *, task_status: trio.TaskStatus[None]) -> None:
        await self._reign(epoch, task_status)

    async def _take_letters(self, mailbox: Mailbox) -> None:
        while True:
            match (await mailbox.take()).message:
                case GatewayReady(gateway_id=gateway_id):
                    self._gateways[f"gateway/{gateway_id}"] = None
                    await self._tell((f"gateway/{gateway_id}",))
                    await self._have_dialled((f"gateway/{gateway_id}",))
                case DialWorkers() as message:
                    self._dialled = message
                    await self._have_dialled(tuple(self._gateways))
                case PeerArrived(peer=peer) if peer.startswith("worker/"):
                    await self._ask_to_report(peer)

    async def _ask_to_report(self, worker: str) -> None:
        """A worker whose session was resumed after a silence does not know that it was unknown meanwhile."""
        if self._campaign.reigning and self._campaign.reigning == self._ready_epoch:
            message = ReportAgain(epoch=self._ready_epoch)
            await self._post.send(Letter(message, source=ADDRESS, target=worker))

    async def _have_dialled(self, gateways: tuple[str, ...]) -> None:
        """Every gateway dials the workers that listen, while we lead."""
        message = self._dialled
        if self._campaign.reigning and message is not None:
            await self._post.send_many(Letter(message, source=ADDRESS, target=gateway) for gateway in gateways)

    async def _tell(self, gateways: tuple[str, ...]) -> None:
        epoch, url = self._campaign.followed
        leads_soon = not url and not self._ready_epoch == self._campaign.reigning == epoch
        if not epoch or leads_soon:
            return
        message = LeaderIs(epoch=epoch, url=url)
        await self._post.send_many(Letter(message, source=ADDRESS, target=gateway) for gateway in gateways)
