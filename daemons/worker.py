"""A worker's process: `python -m levers9.daemons.worker --id … --token-fd … --url ws://… --http-url http://…`.

A pool starts it, with a token that is good for this worker alone: it comes through a descriptor or a file, or in a pod
through LEVERS9_WORKER_TOKEN, which is written over at once: any process of the same user could read it there.
It dials the control plane (with --listen it is dialled, by who proves to know its token), and keeps its work running
while neither reaches the other. Refused for good, because its cluster was detached say, it ends its containers and
itself. SIGTERM lets what runs finish; when its root process is gone, it ends at once, and the keepers of its containers
end their trees. In a container it may be process 1.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import urllib.parse
from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog
import trio

from ..actors.worker.actor import WorkerActor
from ..actors.worker.http import open_http
from ..actors.worker.meeting import free_port
from ..actors.worker.policy import WorkerPolicy
from ..actors.worker.reports import Identity
from ..actors.worker.runtime.environment import visible
from ..actors.worker.runtime.process import ProcessRuntime, ProcessSettings
from ..errors import BrokenByPeer, ConfigError, Refused
from ..model.ids import Chance
from ..wire.carriers.proved import DialledListener, at_once
from ..wire.carriers.trust import CA_PEM
from ..wire.link import DialledLink
from ..wire.redial import Redial
from .dialling import Dialler, stream_url
from .edge import leaves
from .first_process import in_container
from .logs import set_up_logs
from .worker_config import WorkerConfig, parse

_SET_DUMPABLE: Final = 4
PRELOAD: Final = ("levers9.sdk.job", "levers9.sdk.client")  # what `from levers9 import job` loads in a container
_log = structlog.get_logger()


async def run_worker(config: WorkerConfig) -> None:
    """Work until told to leave, or until the root is gone. Raises `Refused` when no control plane wants this worker."""
    chance = Chance()
    async with open_http(config.http_url, config.token, chance, ca_pem=config.ca_pem, proxy=config.http_proxy) as http:
        runtime = ProcessRuntime(
            settings=ProcessSettings(environment=_environment(config), cards=_cards(config), preload=PRELOAD),
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
            lacks=config.lacks,
        )
        policy = WorkerPolicy(identity, stop_grace_s=config.stop_grace_s)
        listener = DialledListener(worker_id=config.worker_id, token=config.token)
        link = DialledLink(
            name=f"worker/{config.worker_id}",
            dial=listener.dial if config.listen else _dialler(config),
            chance=chance,
            redial=_redial(config),
        )
        new_port = partial(free_port, config.host)
        actor = WorkerActor(policy=policy, link=link, runtime=runtime, objects=http, chance=chance, new_port=new_port)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_root, config.root_pid, nursery.cancel_scope)
            nursery.start_soon(_leave_on_signal, actor, config.grace_s, nursery.cancel_scope)
            await nursery.start(runtime.serve)
            nursery.start_soon(runtime.warm_up)
            if config.listen:
                await nursery.start(_listen, listener, *config.listen)
            nursery.start_soon(link.run)
            await actor.run()
            await link.aclose()
            nursery.cancel_scope.cancel(reason="the worker has left")


async def _listen(
    listener: DialledListener, host: str, port: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Be dialled, until cancelled. Raises `ConfigError` where it cannot listen."""
    async with trio.open_nursery() as nursery:
        try:
            port = await nursery.start(listener.run, host, port)
        except OSError as error:
            raise ConfigError(f"It cannot listen at {host}, port {port}: {error.strerror or error}.") from error
        _log.info("listening", host=host, port=port)
        task_status.started()


def _cards(config: WorkerConfig) -> int | None:
    """None is a machine without cards of ours, which is left alone; in a pod, those of the node are somebody else's."""
    return config.capacity.gpu_count if config.capacity.gpu_count or config.in_pod else None


def _environment(config: WorkerConfig) -> dict[str, str]:
    """What containers inherit: a part of our environment, and where the control plane is."""
    parts = urllib.parse.urlsplit(stream_url((*config.urls, config.http_url)[0]))
    port = parts.port or (443 if parts.scheme == "wss" else 80)
    told = {
        "LEVERS9_CONTROLPLANE_HOST": parts.hostname or "",
        "LEVERS9_CONTROLPLANE_PORT": str(port),
        "LEVERS9_HTTP_URL": config.http_url,
    }
    if config.node:
        told["LEVERS9_NODE"] = config.node
    if config.ca_pem:
        told[CA_PEM] = config.ca_pem  # certificates are no secret, and code reaches the control plane too
    return visible(os.environ) | told


def _dialler(config: WorkerConfig) -> Dialler:
    return Dialler(
        peer="worker",
        own_id=config.worker_id,
        urls=config.urls,
        token=config.token,
        ca_pem=config.ca_pem,
        environment=os.environ,
    )


def _redial(config: WorkerConfig) -> Redial:
    """On its control plane's own host a pool bounds how many workers there are: they redial like an SDK."""
    if config.listen:
        return at_once()
    return Redial(first_min_s=0.05, first_max_s=1.0, max_s=5.0) if config.root_pid else Redial()


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run a worker; the exit status is 0 when it left, 2 for a wrong configuration, 1 when it was refused."""
    set_up_logs()
    try:
        config = parse(sys.argv[1:] if argv is None else argv)
    except ConfigError as error:
        print(f"levers9 worker: {error}", file=sys.stderr)
        return 2
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # only root reads our memory, descriptors and environment
    return in_container(partial(_run, config))


def _run(config: WorkerConfig) -> int:
    try:
        trio.run(run_worker, config)
    except* ConfigError as errors:
        _log.error("the worker cannot work", errors=[str(one) for one in leaves(errors)])
        return_code = 2
    except* (Refused, BrokenByPeer) as errors:
        _log.error("the control plane does not want this worker", errors=[str(one) for one in leaves(errors)])
        return_code = 1
    else:
        return_code = 0
    return return_code


if __name__ == "__main__":
    sys.exit(main())
