"""A gateway process: `python -m levers9.daemons.gateway --brain ipc://… --database-url …`."""

from __future__ import annotations

import argparse
import errno
import os
import secrets
import signal
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog
import trio

from ..actors.gateway.gateway import Gateway, Listeners, Surroundings
from ..actors.gateway.server import Tls
from ..actors.gateway.streams import RELAY_PATH
from ..errors import ConfigError, LeversError, Refused
from ..model.figures import HTTP_PORT, METRICS_PORT, STREAM_PORT
from ..model.ids import Chance
from ..store.face import Store
from ..store.objects import open_objects
from ..store.wakeups import MemoryWakeups, Wakeups
from ..wire.carrier import Carrier
from ..wire.carriers import nng, websocket
from ..wire.carriers.trust import client_context
from .edge import leaves
from .logs import set_up_logs
from .ports import holder_of
from .signals import until_signal

REPLICA_TOKEN: Final = "LEVERS9_REPLICA_TOKEN"  # in the environment, where other users cannot read it
DATABASE_URL: Final = "LEVERS9_DATABASE_URL"  # likewise: URLs hold passwords
REDIS_URL: Final = "LEVERS9_REDIS_URL"
BACKLOG: Final = 1024
METRICS_PORTS_TRIED: Final = 64  # gateways of one host share the other ports, and have a metrics port each
_log: Final = structlog.get_logger("gateway")


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway is told. Port 0 takes a free one; equal ports for streams and HTTP are one port; -1 is none."""

    gateway_id: str
    brain: str
    database_url: str
    redis_url: str = ""
    objects_url: str
    bind: str = "127.0.0.1"
    stream_port: int = STREAM_PORT
    http_port: int = HTTP_PORT
    metrics_port: int = METRICS_PORT
    cert: str = ""
    key: str = ""
    external_url: str = ""
    external_ca: str = ""
    advertise_url: str = ""
    replica_token: str = ""
    journal_dir: str = ""


class ReadyLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway says on standard output once it serves; -1 for a port that it has not."""

    ready: bool = True
    stream_port: int
    http_port: int
    metrics_port: int


async def run_gateway(
    config: GatewayConfig, *, task_status: trio.TaskStatus[ReadyLine] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a gateway on real stores until cancelled; started with its ports.

    Raises `Refused` for what cannot work: a port in use, a certificate that cannot be read, a URL that means nothing.
    """
    tls = _tls_of(config)
    with _bound(config, tls) as listeners:
        async with AsyncExitStack() as stack:
            store, wakeups = await _open_stores(stack, config)
            gateway = Gateway(_surroundings(config, store, wakeups))
            async with trio.open_nursery() as nursery:
                await nursery.start(gateway.run, listeners)
                task_status.started(_ready(listeners))


async def _open_stores(stack: AsyncExitStack, config: GatewayConfig) -> tuple[Store, Wakeups]:
    """Without Redis, wake-ups reach this process only; readers and revocations elsewhere look again by themselves."""
    from ..store.postgres import open_postgres
    from ..store.redis import open_redis

    store = await stack.enter_async_context(open_postgres(config.database_url))
    if not config.redis_url:
        return store, MemoryWakeups()
    return store, await stack.enter_async_context(open_redis(config.redis_url))


def _surroundings(config: GatewayConfig, store: Store, wakeups: Wakeups) -> Surroundings:
    return Surroundings(
        gateway_id=config.gateway_id,
        store=store,
        objects=open_objects(config.objects_url.removeprefix("file://")),
        wakeups=wakeups,
        dial_brain=partial(nng.dial, config.brain),
        dial_replica=partial(_dial_replica, config),
        chance=Chance(),
        clock=time.time,
        secret=secrets.token_bytes,
        replica_token=config.replica_token,
        own_url=config.advertise_url,
        behind_tls=config.external_url.startswith("https://"),
        journal_dir=Path(config.journal_dir) if config.journal_dir else None,
        external_url=config.external_url,
        ca_pem=certificates_of(config.external_ca),
    )


def certificates_of(path: str) -> str:
    """The text of a file with certificates; "" without one. Raises `Refused` when it cannot be used."""
    if not path:
        return ""
    fix = "Name a file in PEM with --external-ca."
    try:
        text = Path(path).read_text()
        client_context(text)
    except OSError as error:
        raise Refused(f"The certificates {path!r} cannot be read.", f"{error.strerror}.", fix) from error
    except ConfigError as error:
        raise Refused(f"{path!r} holds no certificate.", fix=fix) from error
    return text


async def _dial_replica(config: GatewayConfig, url: str) -> Carrier:
    """Dial the gateway of the replica that leads; its certificate is checked against the system's roots and our own."""
    context = None
    if url.startswith("wss"):
        context = ssl.create_default_context()
        if config.cert:
            context.load_verify_locations(config.cert)
    whole = f"{url.rstrip('/')}{RELAY_PATH}?gateway={config.gateway_id}"
    return await websocket.connect(whole, token=config.replica_token, ssl_context=context)


# Sockets


class _Bound:
    """Listeners that are closed at the end."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners

    def __enter__(self) -> Listeners:
        return self._listeners

    def __exit__(self, *_: object) -> None:
        for listener in (self._listeners.http, self._listeners.streams, self._listeners.metrics):
            if listener is not None:
                listener.close()


def _bound(config: GatewayConfig, tls: Tls | None) -> _Bound:
    one_port = config.stream_port == config.http_port and config.http_port > 0
    http = bind_port(config.bind, config.http_port, "HTTP", "--http-port")
    streams = None if one_port else bind_port(config.bind, config.stream_port, "streams", "--stream-port")
    metrics = None if config.metrics_port < 0 else _bind_metrics(config)
    return _Bound(Listeners(http=http, streams=streams, metrics=metrics, tls=tls))


def _bind_metrics(config: GatewayConfig) -> socket.socket:
    """The first port from the one asked for that no sibling has."""
    port = config.metrics_port
    for _ in range(METRICS_PORTS_TRIED):
        holder = holder_of(port) if port else None
        if holder is None or not _is_sibling(holder[0]):
            break
        port += 1
    return bind_port(config.bind, port, "metrics", "--metrics-port")


def bind_port(host: str, port: int, purpose: str, option: str) -> socket.socket:
    """A listening socket. Gateways of one root share a port, which nobody else may.

    Raises `Refused` that names who holds the port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder = holder_of(port) if port else None
        if holder is None or _is_sibling(holder[0]):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _refusal(error, host, port, purpose, option) from error
    return listener


def _is_sibling(process_id: int) -> bool:
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    return int(status.rpartition(")")[2].split()[1]) == os.getppid() and _is_gateway(process_id)


def _is_gateway(process_id: int) -> bool:
    return b"levers9.daemons.gateway" in Path(f"/proc/{process_id}/cmdline").read_bytes()


def _refusal(error: OSError, host: str, port: int, purpose: str, option: str) -> Refused:
    fix = f"Stop that, or choose another port with {option}; 0 takes a free one."
    if error.errno != errno.EADDRINUSE:
        return Refused(f"Port {port} on {host} cannot be used for {purpose}.", f"{error.strerror}.", fix, "port")
    holder = holder_of(port)
    why = f"Process {holder[0]} holds it: {holder[1]}." if holder else "Another process holds it."
    return Refused(f"Port {port} for {purpose} is in use.", why, fix, "port")


def _tls_of(config: GatewayConfig) -> Tls | None:
    if bool(config.cert) != bool(config.key):
        raise Refused("TLS needs a certificate and its key.", fix="Give both --cert and --key, or neither.")
    return Tls(config.cert, config.key) if config.cert else None


def _ready(listeners: Listeners) -> ReadyLine:
    http = _port_of(listeners.http)
    return ReadyLine(
        http_port=http,
        stream_port=_port_of(listeners.streams) if listeners.streams else http,
        metrics_port=_port_of(listeners.metrics) if listeners.metrics else -1,
    )


def _port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


# The process


def read_config(argv: Sequence[str]) -> GatewayConfig:
    """The configuration in a command line; the replicas' token, and from a root the URLs, come in the environment."""
    parser = argparse.ArgumentParser(prog="levers9.daemons.gateway", description=__doc__)
    parser.add_argument("--gateway-id", required=True)
    parser.add_argument("--brain", required=True, help="ipc://… where the brain listens for this gateway")
    database_url = os.environ.pop(DATABASE_URL, "")
    parser.add_argument("--database-url", default=database_url, required=not database_url)
    parser.add_argument("--redis-url", default=os.environ.pop(REDIS_URL, ""))
    parser.add_argument("--objects-url", required=True)
    parser.add_argument("--bind", default="127.0.0.1")
    parser.add_argument("--stream-port", type=int, default=STREAM_PORT)
    parser.add_argument("--http-port", type=int, default=HTTP_PORT)
    parser.add_argument("--metrics-port", type=int, default=METRICS_PORT, help="-1 for none")
    parser.add_argument("--cert", default="")
    parser.add_argument("--key", default="")
    parser.add_argument("--external-url", default="")
    parser.add_argument("--external-ca", default="", help="certificates that attached clusters trust")
    parser.add_argument("--advertise-url", default="", help="where other replicas dial the streams of this one")
    parser.add_argument("--journal-dir", default="", help="where the scheduler of this host keeps its journal")
    read = vars(parser.parse_args(argv))
    return msgspec.convert({**read, "replica_token": os.environ.pop(REPLICA_TOKEN, "")}, GatewayConfig)


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends (Linux; elsewhere nothing happens)."""
    if sys.platform != "linux":
        return
    import ctypes

    set_parent_death_signal: Final = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


async def _serve(config: GatewayConfig) -> None:
    async with until_signal(), trio.open_nursery() as nursery:
        ready = await nursery.start(run_gateway, config)
        print(msgspec.json.encode(ready).decode(), flush=True)
        _log.info("gateway ready", stream_port=ready.stream_port, http_port=ready.http_port)


def main(argv: Sequence[str] | None = None) -> int:
    """The entry of a gateway's process. Answers 2 for what it was told wrong, with a sentence on standard error."""
    die_with_parent()
    set_up_logs()
    config = read_config(sys.argv[1:] if argv is None else argv)
    structlog.contextvars.bind_contextvars(gateway=config.gateway_id)
    told: list[BaseException] = []
    try:
        trio.run(_serve, config)
    except* LeversError as errors:
        told += leaves(errors)
    for error in told:
        print(error, file=sys.stderr)
    return 2 if told else 0


if __name__ == "__main__":
    sys.exit(main())
