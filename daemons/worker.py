"""A worker's process: `python -m levers9.daemons.worker --id … --token-fd … --url ws://… --http-url http://…`.

A pool starts it, with a token that is good for this worker alone: it comes through a descriptor or a file, since any
process of the same user could read it in the environment.
It dials the control plane and keeps its work running while it can't reach it. SIGTERM lets what runs finish; when its
root process is gone, it ends at once, and the keepers of its containers end their trees.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import ssl
import sys
import time
import urllib.parse
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

import msgspec
import structlog
import trio

from ..actors.worker.actor import WorkerActor
from ..actors.worker.http import open_http
from ..actors.worker.meeting import LOOPBACK, own_address
from ..actors.worker.policy import WorkerPolicy
from ..actors.worker.reports import Identity
from ..actors.worker.runtime.environment import visible
from ..actors.worker.runtime.process import ProcessRuntime, ProcessSettings
from ..errors import BrokenByPeer, ConfigError, Refused
from ..model.figures import STOP_GRACE_S
from ..model.ids import Chance
from ..model.resources import Capacity
from ..wire.carrier import Carrier
from ..wire.carriers import websocket
from ..wire.link import DialledLink
from ..wire.redial import Redial
from .edge import leaves
from .logs import set_up_logs

_SET_DUMPABLE: Final = 4
_BY_HAND: Final = (
    "Workers are started by the pools of a control plane, each with a token of its own: start `levers9 dev` or "
    "`levers9 controlplane`, and see `levers9 worker list`. Another machine cannot be joined by hand yet."
)
PRELOAD: Final = ("levers9.sdk.job", "levers9.sdk.client")  # what `from levers9 import job` loads in a container
_log = structlog.get_logger()


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A worker. `urls` are tried in turn; `root_pid` 0 is none."""

    worker_id: str
    pool: str
    epoch: int
    capacity: Capacity
    urls: tuple[str, ...]
    http_url: str
    token: str
    state_folder: Path
    root_pid: int = 0
    grace_s: float = STOP_GRACE_S
    stop_grace_s: float = STOP_GRACE_S
    node: str = ""  # its name, where its pool has named nodes
    host: str = LOOPBACK  # at which other workers reach its containers


async def run_worker(config: WorkerConfig) -> None:
    """Work until told to leave, or until the root is gone. Raises `Refused` when no control plane wants this worker."""
    chance = Chance()
    async with open_http(config.http_url, config.token, chance) as http:
        runtime = ProcessRuntime(
            settings=ProcessSettings(
                environment=_environment(config), cards=config.capacity.gpu_count, preload=PRELOAD
            ),
            state_folder=config.state_folder,
            objects=http,
            log_sink=http,
        )
        identity = Identity(
            worker_id=config.worker_id,
            pool=config.pool,
            epoch=config.epoch,
            capacity=config.capacity,
            host=config.host,
        )
        policy = WorkerPolicy(identity, stop_grace_s=config.stop_grace_s)
        redial = _redial_beside() if config.root_pid else Redial()
        link = DialledLink(name=f"worker/{config.worker_id}", dial=_dialler(config), chance=chance, redial=redial)
        actor = WorkerActor(policy=policy, link=link, runtime=runtime, objects=http, chance=chance)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_root, config.root_pid, nursery.cancel_scope)
            nursery.start_soon(_leave_on_signal, actor, config.grace_s, nursery.cancel_scope)
            await nursery.start(runtime.serve)
            nursery.start_soon(runtime.warm_up)
            nursery.start_soon(link.run)
            await actor.run()
            await link.aclose()
            nursery.cancel_scope.cancel(reason="the worker has left")


def _environment(config: WorkerConfig) -> dict[str, str]:
    """What containers inherit: a part of our environment, and where the control plane is."""
    parts = urllib.parse.urlsplit(config.urls[0])
    told = {"LEVERS9_CONTROLPLANE_HOST": parts.hostname or "", "LEVERS9_HTTP_URL": config.http_url}
    if config.node:
        told["LEVERS9_NODE"] = config.node
    if parts.port is not None:
        told["LEVERS9_CONTROLPLANE_PORT"] = str(parts.port)
    return visible(os.environ) | told


class _Dialler:
    """Dials the next address each time."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._urls = cycle(config.urls)
        secure = any(url.startswith("wss:") for url in config.urls)
        self._ssl_context = ssl.create_default_context() if secure else None

    async def __call__(self) -> Carrier:
        url = next(self._urls)
        query = urllib.parse.urlencode({"peer": "worker", "id": self._config.worker_id})
        whole = f"{url.rstrip('/')}/v1/stream?{query}"
        context = self._ssl_context if url.startswith("wss:") else None
        return await websocket.connect(whole, token=self._config.token, ssl_context=context)


def _redial_beside() -> Redial:
    """For a worker on its control plane's own host, whose pool bounds how many there are: like an SDK."""
    return Redial(first_min_s=0.05, first_max_s=1.0, max_s=5.0)


def _dialler(config: WorkerConfig) -> _Dialler:
    return _Dialler(config)


async def _watch_root(pid: int, scope: trio.CancelScope) -> None:
    if pid <= 0:
        return
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        scope.cancel(reason="the root is gone")
        return
    try:
        await trio.lowlevel.wait_readable(pidfd)
        _log.warning("the root process is gone", root_pid=pid)
        scope.cancel(reason="the root is gone")
    finally:
        os.close(pidfd)


async def _leave_on_signal(actor: WorkerActor, grace_s: float, scope: trio.CancelScope) -> None:
    """The first signal asks to leave, the second ends at once."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        asked = False
        async for number in signals:
            if asked:
                scope.cancel(reason="asked twice to end")
            asked = True
            actor.leave(f"it was asked to end by {signal.Signals(number).name}", grace_s)


def parse(argv: Sequence[str]) -> WorkerConfig:
    """The configuration in a command line. Raises `ConfigError` without a token, exits for another wrong part."""
    if not any(word.startswith("--token") or word in ("-h", "--help") for word in argv):
        raise ConfigError(_BY_HAND)
    parser = argparse.ArgumentParser(prog="levers9 worker", description=_BY_HAND)
    parser.add_argument("--id", required=True)
    parser.add_argument("--pool", default="default")
    parser.add_argument("--epoch", type=int, default=int(time.time()))
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--http-url", required=True)
    token = parser.add_mutually_exclusive_group(required=True)
    token.add_argument("--token-fd", type=int, help="a descriptor from which the worker's token is read")
    token.add_argument("--token-file", type=Path, help="a file with the worker's token")
    parser.add_argument("--cpu-milli", type=int, default=1000 * (os.cpu_count() or 1))
    parser.add_argument("--memory-mib", type=int, default=_memory_mib())
    parser.add_argument("--gpu-count", type=int, default=0)
    parser.add_argument("--gpu-type", default="")
    parser.add_argument("--node", default="", help="the name of the node on which it stands")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--root-pid", type=int, default=0)
    parser.add_argument("--grace-s", type=float, default=STOP_GRACE_S)
    parser.add_argument("--advertise-host", default="", help="the address at which other workers reach this one")
    asked = parser.parse_args(argv)
    capacity = Capacity(
        cpu_milli=asked.cpu_milli, memory_mib=asked.memory_mib, gpu_count=asked.gpu_count, gpu_type=asked.gpu_type
    )
    return WorkerConfig(
        worker_id=asked.id,
        pool=asked.pool,
        epoch=asked.epoch,
        capacity=capacity,
        urls=tuple(asked.url),
        http_url=asked.http_url,
        token=_token(asked.token_fd, asked.token_file),
        state_folder=asked.state_dir.resolve(),
        root_pid=asked.root_pid,
        node=asked.node,
        grace_s=asked.grace_s,
        host=asked.advertise_host or (LOOPBACK if asked.root_pid else own_address()),  # beside its root: one host
    )


def _token(descriptor: int | None, path: Path | None) -> str:
    source = path if descriptor is None else descriptor
    assert source is not None, "one of the two was given"
    try:
        with open(source, encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        place = f"file {path}" if descriptor is None else f"descriptor {descriptor}"
        raise ConfigError(f"The token {place} cannot be read: {error.strerror}.") from error


def _memory_mib() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run a worker; the exit status is 0 when it left, 2 for a wrong configuration, 1 when it was refused."""
    set_up_logs()
    try:
        config = parse(sys.argv[1:] if argv is None else argv)
    except ConfigError as error:
        print(f"levers9 worker: {error}", file=sys.stderr)
        return 2
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # only root reads our memory, descriptors and environment
    try:
        trio.run(run_worker, config)
    except* (Refused, BrokenByPeer) as errors:
        _log.error("the control plane does not want this worker", errors=[str(one) for one in leaves(errors)])
        return_code = 1
    else:
        return_code = 0
    return return_code


if __name__ == "__main__":
    sys.exit(main())
