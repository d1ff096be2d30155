"""A real control plane on loopback: etcd, API server, controller manager and scheduler, as children of a supervisor."""

from __future__ import annotations

import base64
import secrets
import ssl
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx2
import msgspec
import trio
import yaml

from ..child import ChildSpec
from ..child_process import ProcessChild, Program, ReadyLine, ReadyWhen
from ..daemons.ports import claim_port
from ..supervision import Backoff
from .asked import ADMIN
from .certificates import Authority, write_signing_key
from .folder import LabFolder, LabSettings, write_whole

HOST: Final = "127.0.0.1"
SERVICE_RANGE: Final = "10.99.0.0/16"
CONTROLLERS: Final = (
    "job,deployment,replicaset,garbagecollector,namespace,serviceaccount,serviceaccount-token,ttl-after-finished,"
    "podgc,resourcequota,nodelifecycle,taint-eviction-controller,root-ca-certificate-publisher-controller"
)
_TAIL_LINES: Final = 15
_ASKED_EVERY_S: Final = 0.05
_LOG_MAX_BYTES: Final = 16 << 20
# Whoever learns the port could start pods otherwise: anonymous requests get what is public, no more.
_QUIET: Final = "--v=0"


class User(msgspec.Struct, frozen=True):
    """Somebody with a token of their own."""

    name: str
    token: str
    groups: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts of a control plane listen, and who may talk to it."""

    api_port: int
    etcd_port: int
    etcd_peer_port: int
    users: tuple[User, ...]

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://{HOST}:{self.api_port}"


def make_plan(settings: LabSettings) -> Plan:
    """Free ports and new tokens."""
    ports = [claim_port(HOST, 0, "the lab") for _ in range(3)]
    users = [User(ADMIN, secrets.token_hex(20), ("system:masters",))]
    users += [User(name, secrets.token_hex(20)) for name in settings.users]
    return Plan(api_port=ports[0], etcd_port=ports[1], etcd_peer_port=ports[2], users=tuple(users))


def write_files(folder: LabFolder, settings: LabSettings, plan: Plan, tray_addresses: tuple[str, ...]) -> None:
    """Keys, tokens and a kubeconfig for each user."""
    authority = Authority(datetime.now(UTC))
    (folder.keys / "ca.crt").write_bytes(authority.pem)
    local = ("localhost", HOST)
    authority.issue(folder.keys, "apiserver", addresses=(*local, "kubernetes.default.svc", "10.99.0.1"))
    authority.issue(folder.keys, "etcd", addresses=local)
    authority.issue(folder.keys, "kubelet", addresses=(*local, *tray_addresses))
    authority.issue(folder.keys, "kubelet-client")
    write_signing_key(folder.keys / "accounts.key", folder.keys / "accounts.pub")
    lines = [_token_line(number, user) for number, user in enumerate(plan.users)]
    write_whole(folder.keys / "tokens.csv", "".join(lines).encode())
    for user in plan.users:
        name = "" if user.name == ADMIN else user.name
        write_whole(folder.kubeconfig(name), _kubeconfig(authority.pem.decode(), settings.name, plan.url, user))


def _token_line(number: int, user: User) -> str:
    groups = f',"{",".join(user.groups)}"' if user.groups else ""
    return f"{user.token},{user.name},lab-{number}{groups}\n"


def _kubeconfig(authority: str, name: str, url: str, user: User) -> bytes:
    encoded = base64.b64encode(authority.encode()).decode()
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": encoded}}],
            "users": [{"name": f"{name}-{user.name}", "user": {"token": user.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": f"{name}-{user.name}"}}],
            "current-context": name,
        }
    ).encode()


class ControlPlane:
    """The four processes. `tails` has the last lines of each, for when one of them fails."""

    def __init__(self, folder: LabFolder, settings: LabSettings, plan: Plan, environment: dict[str, str]) -> None:
        self._folder = folder
        self._settings = settings
        self._plan = plan
        self._environment = environment
        self.tails: dict[str, deque[str]] = {}
        self._processes: dict[str, ProcessChild] = {}

    def children(self) -> tuple[ChildSpec, ...]:
        """In the order in which they start."""
        etcd, api, manager, scheduler = self._commands()
        return (
            self._child("etcd", etcd, ReadyLine("ready to serve client requests")),
            self._child("kube-apiserver", api, ReadyWhen(self._api_answers)),
            self._child("kube-controller-manager", manager),
            self._child("kube-scheduler", scheduler),
        )

    @property
    def process_ids(self) -> dict[str, int]:
        """The number of each process that runs."""
        return {name: child.process_id for name, child in self._processes.items() if child.process_id}

    def _child(self, name: str, flags: list[str], ready: ReadyLine | ReadyWhen | None = None) -> ChildSpec:
        argv = (self._settings.binaries[name], *flags)
        program = Program(argv=argv, env=self._environment, cwd=str(self._folder.path))
        if ready is not None:
            program = msgspec.structs.replace(program, ready=ready)
        self.tails[name] = deque(maxlen=_TAIL_LINES)
        self._processes[name] = process = ProcessChild(
            program, on_line=self._kept(name, self._folder.logs / f"{name}.log")
        )
        return ChildSpec(name, process, shutdown_s=15.0, start_within_s=60.0, backoff=Backoff(max_s=1.0))

    def _kept(self, name: str, path: Path) -> Callable[[str], None]:
        tail = self.tails[name]

        def keep(line: str) -> None:
            tail.append(line)
            full = path.exists() and path.stat().st_size > _LOG_MAX_BYTES
            with path.open("w" if full else "a") as file:
                file.write(f"{line}\n")

        return keep

    async def _api_answers(self) -> None:
        context = ssl.create_default_context(cafile=str(self._folder.keys / "ca.crt"))
        headers = {"Authorization": f"Bearer {self._plan.users[0].token}"}
        async with httpx2.AsyncClient(verify=context, headers=headers, trust_env=False, timeout=2.0) as client:
            while not await _is_ready(client, f"{self._plan.url}/readyz"):  # noqa: ASYNC110  # it only answers
                await trio.sleep(_ASKED_EVERY_S)

    def _commands(self) -> tuple[list[str], list[str], list[str], list[str]]:
        keys, plan = self._folder.keys, self._plan
        etcd_url = f"https://{HOST}:{plan.etcd_port}"
        kubeconfig = f"--kubeconfig={self._folder.kubeconfig()}"
        manager = [
            kubeconfig,
            f"--controllers={CONTROLLERS}",
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={keys / 'accounts.key'}",
            f"--root-ca-file={keys / 'ca.crt'}",
            f"--node-monitor-grace-period={self._settings.grace_s}s",
            "--node-monitor-period=1s",
            "--secure-port=0",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            _QUIET,
        ]
        scheduler = [
            kubeconfig,
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            _QUIET,
        ]
        return _etcd(self._folder, etcd_url, plan), _api_server(keys, etcd_url, plan), manager, scheduler


def _etcd(folder: LabFolder, url: str, plan: Plan) -> list[str]:
    peer = f"https://{HOST}:{plan.etcd_peer_port}"
    ours = (folder.keys / "etcd.crt", folder.keys / "etcd.key", folder.keys / "ca.crt")
    flags = ["--name=lab", f"--data-dir={folder.etcd}", "--unsafe-no-fsync", "--log-level=info"]
    flags += [f"--listen-client-urls={url}", f"--advertise-client-urls={url}"]
    flags += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=lab={peer}"]
    for prefix in ("", "peer-"):
        flags += [f"--{prefix}cert-file={ours[0]}", f"--{prefix}key-file={ours[1]}"]
        flags += [f"--{prefix}trusted-ca-file={ours[2]}", f"--{prefix}client-cert-auth"]
    return flags


def _api_server(keys: Path, etcd_url: str, plan: Plan) -> list[str]:
    return [
        f"--etcd-servers={etcd_url}",
        f"--etcd-cafile={keys / 'ca.crt'}",
        f"--etcd-certfile={keys / 'etcd.crt'}",
        f"--etcd-keyfile={keys / 'etcd.key'}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        "--endpoint-reconciler-type=none",  # the Service of the API itself may not point to loopback
        f"--secure-port={plan.api_port}",
        f"--tls-cert-file={keys / 'apiserver.crt'}",
        f"--tls-private-key-file={keys / 'apiserver.key'}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={keys / 'accounts.key'}",
        f"--service-account-key-file={keys / 'accounts.pub'}",
        "--authorization-mode=RBAC",
        f"--token-auth-file={keys / 'tokens.csv'}",
        "--allow-privileged=true",
        f"--kubelet-certificate-authority={keys / 'ca.crt'}",
        f"--kubelet-client-certificate={keys / 'kubelet-client.crt'}",
        f"--kubelet-client-key={keys / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        _QUIET,
    ]


async def _is_ready(client: httpx2.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).status_code == httpx2.codes.OK
    except httpx2.TransportError:
        return False
