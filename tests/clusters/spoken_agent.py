"""An agent that a test speaks for: a real stream to a real control plane, and nodes that exist in words only."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit

import trio
import yaml

from levers9.errors import LeversError
from levers9.model.ids import Chance
from levers9.model.resources import Capacity
from levers9.wire.carrier import Carrier
from levers9.wire.carriers import websocket
from levers9.wire.cluster import AgentReady, ClusterReported, NodeReport
from levers9.wire.codec import Envelope, pack
from levers9.wire.link import DialledLink, Opened
from levers9.wire.message import Message
from levers9.wire.redial import Redial

EVERY_S = 0.2
WHOLE = Capacity(cpu_milli=8000, memory_mib=65536, gpu_count=4, gpu_type="GB200")
FREE = Capacity(cpu_milli=4000, memory_mib=32768, gpu_count=3, gpu_type="GB200")
NODES = (
    NodeReport(name="tray-0", uid="u-0", allocatable=WHOLE, free=FREE),
    NodeReport(name="tray-1", uid="u-1", allocatable=WHOLE, free=WHOLE),
)


class SpokenAgent:
    """Dials in as the manifest says, and reports these nodes until the block ends or it is refused."""

    def __init__(self, manifest: str, nodes: Sequence[NodeReport] = NODES) -> None:
        told = variables_of(manifest)
        self.cluster_id = told["LEVERS9_CLUSTER_ID"]
        self._token = told["LEVERS9_AGENT_TOKEN"]
        self._url = told["LEVERS9_URL"].replace("http", "ws", 1)
        self._nodes = tuple(nodes)
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._runs = threading.Event()

    def __enter__(self) -> SpokenAgent:
        self._thread.start()
        assert self._runs.wait(20)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with suppress(trio.RunFinishedError):
            self._token_of_loop.run_sync_soon(self._scope.cancel)
        self._thread.join(timeout=20)

    async def _run(self) -> None:
        self._chance = Chance()
        quick = Redial(first_min_s=0.0, first_max_s=0.1, max_s=0.5)
        link = DialledLink(name="agent", dial=self._dial, chance=self._chance, redial=quick)
        self._token_of_loop = trio.lowlevel.current_trio_token()
        self._scope = trio.CancelScope()
        self._runs.set()
        with self._scope, suppress(LeversError, ExceptionGroup):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(link.run)
                nursery.start_soon(self._report, link)

    async def _dial(self) -> Carrier:
        assert urlsplit(self._url).hostname == "127.0.0.1"
        return await websocket.connect(f"{self._url}/v1/stream?peer=agent&id={self.cluster_id}", token=self._token)

    async def _report(self, link: DialledLink) -> None:
        while not isinstance(await link.next_event(), Opened):
            pass
        await self._say(link, AgentReady(cluster_id=self.cluster_id, epoch=1, version="0.1.0"))
        sequence = 0
        while True:
            sequence += 1
            report = ClusterReported(
                cluster_id=self.cluster_id,
                epoch=1,
                sequence=sequence,
                nodes=self._nodes,
                matched=len(self._nodes),
                version="0.1.0",
                started_at_s=1.0,
            )
            await self._say(link, report)
            with trio.move_on_after(EVERY_S):
                while True:
                    await link.next_event()

    async def _say(self, link: DialledLink, message: Message) -> None:
        await link.send(Envelope(self._chance.id("m"), "", "clusters", pack(message)))


def variables_of(manifest: str) -> dict[str, str]:
    """What the agent's container is told in the environment, with what stands in its secret."""
    found = {one["kind"]: one for one in yaml.safe_load_all(manifest)}
    secret: dict[str, str] = found["Secret"]["stringData"] if "Secret" in found else {}
    variables: dict[str, str] = {}
    for one in found["Deployment"]["spec"]["template"]["spec"]["containers"][0]["env"]:
        kept = one.get("valueFrom", {}).get("secretKeyRef", {}).get("key", "")
        variables[one["name"]] = one.get("value") or secret.get(kept, "")
    return variables
