"""A real API server for tests: etcd and kube-apiserver on loopback, an administrator and a guest without rights."""

import os
import signal
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib import error, request

from levers9.daemons.ports import claim_port
from levers9.kube.endpoint import Endpoint
from levers9.lab.binaries import found
from levers9.lab.certificates import Authority, write_signing_key

HOST = "127.0.0.1"
READY_WITHIN_S = 60
ADMIN, GUEST = "admin-token", "guest-token"
_TOKENS = f'{ADMIN},admin,1,"system:masters"\n{GUEST},guest,2\n'


class NotStarted(Exception):
    """What it said last."""


class ApiServer:
    """It may be killed and started again, and keeps what it has. `gates` are features that it is to have as well."""

    def __init__(self, folder: Path, gates: str = "") -> None:
        self._folder = folder
        self._gates = gates
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._etcd, self._peer, self._port = (claim_port(HOST, 0, "a test") for _ in range(3))
        authority = Authority(datetime.now(UTC))
        (folder / "ca.crt").write_bytes(authority.pem)
        authority.issue(folder, "apiserver", addresses=(HOST, "localhost"))
        write_signing_key(folder / "accounts.key", folder / "accounts.pub")
        (folder / "tokens.csv").write_text(_TOKENS)
        self.server = f"https://{HOST}:{self._port}"
        self.authority = authority.pem
        self.tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))

    def endpoint(self, token: str = ADMIN) -> Endpoint:
        return Endpoint(server=self.server, tls=self.tls, authorization=f"Bearer {token}")

    def start(self) -> None:
        """Start what does not run; return once it answers."""
        for name, flags in (("etcd", self._etcd_flags()), ("kube-apiserver", self._api_flags())):
            if name not in self._processes:
                log = (self._folder / f"{name}.log").open("ab")
                argv = [found(name, os.environ), *flags]
                self._processes[name] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                log.close()
        deadline = time.monotonic() + READY_WITHIN_S
        while not self._is_ready():
            dead = [name for name, process in self._processes.items() if process.poll() is not None]
            if dead or time.monotonic() > deadline:
                name = dead[0] if dead else "kube-apiserver"
                raise NotStarted((self._folder / f"{name}.log").read_text()[-2_000:])
            time.sleep(0.05)

    def kill(self, name: str = "kube-apiserver") -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in tuple(self._processes):
            self.kill(name)

    def _is_ready(self) -> bool:
        asked = request.Request(f"{self.server}/readyz", headers={"authorization": f"Bearer {ADMIN}"})
        try:
            with request.urlopen(asked, timeout=2, context=self.tls) as answer:
                return bool(answer.status == 200)
        except (error.URLError, OSError):
            return False

    def _etcd_flags(self) -> list[str]:
        url, peer = f"http://{HOST}:{self._etcd}", f"http://{HOST}:{self._peer}"
        return [
            f"--data-dir={self._folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]

    def _api_flags(self) -> list[str]:
        folder = self._folder
        return [
            f"--etcd-servers=http://{HOST}:{self._etcd}",
            f"--bind-address={HOST}",
            f"--advertise-address={HOST}",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self._port}",
            f"--tls-cert-file={folder / 'apiserver.crt'}",
            f"--tls-private-key-file={folder / 'apiserver.key'}",
            "--service-cluster-ip-range=10.99.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            f"--service-account-key-file={folder / 'accounts.pub'}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",  # nobody makes the accounts that pods would need
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--allow-privileged=true",
            "--etcd-compaction-interval=0",
            *((f"--feature-gates={self._gates}",) if self._gates else ()),
        ]


@contextmanager
def running_api_server(gates: str = "") -> Iterator[ApiServer]:
    """An API server that answers, while the context lasts."""
    with tempfile.TemporaryDirectory(prefix="levers9-api-") as folder:
        server = _started(Path(folder), gates)
        try:
            yield server
        finally:
            server.stop()


def _started(folder: Path, gates: str) -> ApiServer:
    """A free port may be somebody else's by the time that etcd wants it: then others are tried."""
    for tries_left in (2, 1, 0):
        server = ApiServer(Path(tempfile.mkdtemp(dir=folder)), gates)
        try:
            server.start()
            return server
        except BaseException as error:
            server.stop()
            if not tries_left or not isinstance(error, NotStarted):
                raise
    raise AssertionError("the last try starts or raises")
