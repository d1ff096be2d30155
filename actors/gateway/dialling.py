"""Workers that listen, of clusters whose API we call ourselves: a stream to each, for as long as the brain names it.

Once dialled, a worker is served as one that came by itself: its token, looked up by the worker that it is for, says
whose it is, and when it is revoked its stream is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import structlog
import trio

from ...errors import BrokenByPeer, Refused, StoreUnavailable
from ...model.figures import DIAL_LIMIT_S
from ...model.ids import Chance
from ...model.routes import Route, allows
from ...store.face import Store
from ...store.operations import FindTokenOf, TokenRow
from ...wire.carrier import Carrier
from ...wire.cluster import DialWorkers, WorkerAddress
from ...wire.redial import Redial
from .stamps import Stamp
from .streams import Door, Visitor

FIRST_MIN_S: Final = 0.1  # a worker whose pod has just begun to run listens within seconds …
FIRST_MAX_S: Final = 1.0  # … and is dialled by a few gateways only
_log: Final = structlog.get_logger("gateway.dialling")


class DialWorker(Protocol):
    """Opens a stream to a worker that listens. Raises `BrokenByPeer`, `Refused` and `OSError`."""

    async def __call__(self, url: str, *, worker_id: str, token_hash: bytes) -> Carrier:
        """Each side proves that it knows the token of which this is the hash."""
        ...


class Dialling:
    """Keeps one stream to each worker that is named; redials with full jitter, and stops when it is named no more."""

    def __init__(
        self, *, store: Store, door: Door, chance: Chance, dial: DialWorker, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._door = door
        self._chance = chance
        self._dial = dial
        self._clock = clock
        self._wanted: dict[str, WorkerAddress] = {}
        self._kept: dict[WorkerAddress, trio.CancelScope] = {}
        self._changed = trio.Event()

    def want(self, message: DialWorkers) -> None:
        """From now on these, and no others."""
        self._wanted = {one.worker_id: one for one in message.workers}
        self._changed.set()

    def statistics(self) -> tuple[str, ...]:
        """The workers that it dials, in the order in which they were first named."""
        return tuple(one.worker_id for one in self._kept)

    async def run(self) -> None:
        """Dial until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._changed.wait()
                self._changed = trio.Event()
                for address in [one for one in self._kept if self._wanted.get(one.worker_id) != one]:
                    self._kept.pop(address).cancel(reason="it is not to be dialled any more")
                for address in self._wanted.values():
                    if address not in self._kept:
                        self._kept[address] = scope = trio.CancelScope()
                        nursery.start_soon(self._keep, address, scope)

    async def _keep(self, address: WorkerAddress, scope: trio.CancelScope) -> None:
        redial, told = Redial(first_min_s=FIRST_MIN_S, first_max_s=FIRST_MAX_S), ""
        with scope:
            while True:
                opened_s = self._clock()
                why = await self._dial_once(address)
                if why and why != told:
                    _log.warning("a worker cannot be dialled", worker_id=address.worker_id, url=address.url, why=why)
                told = why
                healthy_s = 0.0 if why else self._clock() - opened_s
                await trio.sleep(redial.wait_s(self._chance, healthy_s))

    async def _dial_once(self, address: WorkerAddress) -> str:
        """Serve one stream to its end; says why there was none."""
        try:
            (token,) = await self._store.apply(FindTokenOf(subject=address.worker_id))
            if not isinstance(token, TokenRow) or not allows(Route.STREAM_WORKER, token.kind):
                return "its token was revoked"
            with trio.fail_after(DIAL_LIMIT_S):
                carrier = await self._dial(address.url, worker_id=address.worker_id, token_hash=token.hash)
        except trio.TooSlowError:
            return f"it did not answer within {DIAL_LIMIT_S:g} s"
        except (BrokenByPeer, Refused, StoreUnavailable, OSError) as error:
            return str(error)
        await self._door.serve(_visitor(address, token), carrier)
        return ""


def _visitor(address: WorkerAddress, token: TokenRow) -> Visitor:
    source = f"worker/{address.worker_id}"
    stamp = Stamp(role="worker", source=source, workspace=token.workspace_id, kind=str(token.kind))
    return Visitor(address=source, token_hash=token.hash, stamp=stamp)
