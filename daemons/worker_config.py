"""What a worker's process is told: its command line, and in a pod some variables."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import msgspec
import structlog

from ..actors.worker.meeting import LOOPBACK, own_address
from ..actors.worker.runtime.cards import POD_IP, cards_here
from ..errors import ConfigError
from ..model.figures import JOB_GRACE_S, STOP_GRACE_S, WORKER_PORT
from ..model.resources import Capacity
from ..wire.carriers.proxy import parse_proxy, proxy_for
from ..wire.carriers.trust import ca_of, client_context
from . import given_secrets

TOKEN: Final = "LEVERS9_WORKER_TOKEN"
_DEV: Final = Path("/dev")
LAST_WORDS_S: Final = 10.0  # of a pod's grace, for what is told after the last container has ended
POD_DRAIN_S: Final = JOB_GRACE_S - STOP_GRACE_S - LAST_WORDS_S  # until containers are asked to end
_BY_HAND: Final = (
    "Workers are started by the pools of a control plane, each with a token of its own: start `levers9 dev` or "
    "`levers9 controlplane`, or attach a cluster with `levers9 cluster join`, and see `levers9 worker list`. "
    "Another machine cannot be joined by hand yet."
)
_log: Final = structlog.get_logger("worker")


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
    ca_pem: str = ""
    lacks: str = ""  # why it has fewer cards than were ordered
    http_proxy: str = ""  # through which `http_url` is reached
    in_pod: bool = False
    listen: tuple[str, int] | None = None  # host and port at which it is dialled, in place of dialling `urls`


def parse(argv: Sequence[str], environment: Mapping[str, str] = os.environ, devices: int | None = None) -> WorkerConfig:
    """The configuration in a command line and the environment, from which the token is taken.

    `devices` is how many cards the driver shows; None looks.

    Raises `ConfigError` with what to do without a token, or for a variable of no use; exits for a wrong option.
    """
    given = given_secrets.take(TOKEN)
    by_option = any(word.startswith("--token") for word in argv)
    if not given.strip() and not by_option and not {"-h", "--help"} & set(argv):
        raise ConfigError(_BY_HAND)
    asked = _parser(need_token=not given.strip()).parse_args(argv)
    shown = _devices() if devices is None else devices
    capacity = _capacity(asked, environment, shown)
    config = WorkerConfig(
        worker_id=asked.id,
        pool=asked.pool,
        epoch=asked.epoch,
        capacity=capacity,
        lacks=_lacks(asked.gpu_count, capacity.gpu_count, shown),
        urls=tuple(asked.url or ()),
        http_url=asked.http_url,
        token=_token(asked.token_fd, asked.token_file) if by_option else given.strip(),
        state_folder=(asked.state_dir or Path.home() / ".levers9" / "workers" / asked.id).resolve(),
        root_pid=asked.root_pid,
        node=asked.node,
        grace_s=asked.grace_s if asked.grace_s is not None else _grace_s(environment),
        host=_host(asked.advertise_host, asked.root_pid, environment),
        ca_pem=ca_of(environment),
        listen=None if asked.listen is None else _place(asked.listen, asked.advertise_host, environment),
        in_pod=bool(environment.get(POD_IP)),
        http_proxy=proxy_for(asked.http_url, environment),
    )
    _check(config)
    return config


def _parser(*, need_token: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="levers9 worker", description=_BY_HAND)
    parser.add_argument("--id", required=True)
    parser.add_argument("--pool", default="default")
    parser.add_argument("--epoch", type=int, default=int(time.time()))
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", action="append", help="where streams are dialled; several are tried")
    where.add_argument("--listen", nargs="?", const="", metavar="[HOST]:PORT", help="be dialled instead")
    parser.add_argument("--http-url", required=True)
    token = parser.add_mutually_exclusive_group(required=need_token)
    token.add_argument("--token-fd", type=int, help="a descriptor from which the worker's token is read")
    token.add_argument("--token-file", type=Path, help=f"a file with the worker's token; else it is in {TOKEN}")
    parser.add_argument("--cpu-milli", type=int, default=1000 * (os.cpu_count() or 1))
    parser.add_argument("--memory-mib", type=int, default=_memory_mib())
    parser.add_argument("--gpu-count", type=int, default=0)
    parser.add_argument("--gpu-type", default="")
    parser.add_argument("--node", default="", help="the name of the node on which it stands")
    parser.add_argument("--state-dir", type=Path, help="default: ~/.levers9/workers/ID")
    parser.add_argument("--root-pid", type=int, default=0, help="the process with which it ends; 0 for none")
    parser.add_argument("--grace-s", type=float, help="for what runs, once it is asked to end")
    parser.add_argument("--advertise-host", default="", help=f"where other workers reach it; else it is in {POD_IP}")
    return parser


def _capacity(asked: argparse.Namespace, environment: Mapping[str, str], devices: int) -> Capacity:
    """What was ordered, less the cards that are not its own: the report tells what a worker really has."""
    cards = cards_here(asked.gpu_count, devices, environment)
    return Capacity(cpu_milli=asked.cpu_milli, memory_mib=asked.memory_mib, gpu_count=cards, gpu_type=asked.gpu_type)


def _lacks(ordered: int, cards: int, devices: int) -> str:
    """Why it has fewer cards than were ordered, which is said here as well; "" where it has all."""
    if cards >= ordered:
        return ""
    said = "fewer cards are known to be this worker's than were ordered"
    _log.warning(said, ordered=ordered, own=cards, shown_by_driver=devices)
    if cards:
        return f"only {cards} of the {ordered} cards that were ordered are there"
    return f"the driver shows {devices} cards, and nothing says which {ordered} of them are its own"


def _devices() -> int:
    """How many cards the driver of this machine shows."""
    return sum(1 for path in _DEV.glob("nvidia*") if path.name.removeprefix("nvidia").isdecimal())


def _grace_s(environment: Mapping[str, str]) -> float:
    """In a pod, as much of its grace as leaves time for containers to end and for the last words."""
    return POD_DRAIN_S if environment.get(POD_IP) else STOP_GRACE_S


def _host(advertised: str, root_pid: int, environment: Mapping[str, str]) -> str:
    """Where other workers reach this one. A pod knows its address; beside its root, all are on one host."""
    if advertised:
        return advertised
    pod = environment.get(POD_IP, "").strip()
    if not pod:
        return LOOPBACK if root_pid else own_address()
    try:
        return str(ip_address(pod))
    except ValueError:
        fix = "Give it the field status.podIP of its pod, or --advertise-host."
        raise ConfigError(f"{POD_IP}={pod[:60]!r} is no address. {fix}") from None


def _place(text: str, advertised: str, environment: Mapping[str, str]) -> tuple[str, int]:
    """Where to listen: at the pod's own address and our port, unless told otherwise."""
    host, _, port = text.rpartition(":")
    try:
        number = int(port) if port else WORKER_PORT
    except ValueError:
        raise ConfigError(f"--listen {text[:60]!r} names no port: write it as HOST:PORT, or :PORT.") from None
    return host.strip("[]") or advertised or environment.get(POD_IP, "").strip() or "0.0.0.0", number


def _check(config: WorkerConfig) -> None:
    """Raises `ConfigError` now, and not at the first dial."""
    if config.ca_pem.strip():
        client_context(config.ca_pem)
    if config.http_proxy:
        parse_proxy(config.http_proxy)


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
