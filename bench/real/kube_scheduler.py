"""kube-scheduler itself on hand-made nodes: a real API server and etcd on loopback, and pods that are only bound.

The pods are there before the scheduler starts, so that nothing but binding is measured. Neither kubelets nor
controllers run: nodes are ready because they say so.
"""

import http.client
import json
import os
import re
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from levers9.daemons.ports import claim_port
from levers9.lab.binaries import found
from levers9.lab.certificates import write_signing_key

HOST: Final = "127.0.0.1"
TOKEN: Final = "bench"  # of a server that lives for a minute, on loopback
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-scheduler")
READY_S: Final = 60.0
BOUND_S: Final = 300.0
LOOK_S: Final = 0.1
AT_ONCE: Final = 8  # requests that make nodes and pods
NAMESPACE: Final = "default"
_NO_STANDINGS: Final = "ServiceAccount,TaintNodesByCondition"  # plug-ins that wait for controllers which don't run
_SCHEDULED: Final = 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"}'
_ALGORITHM: Final = "scheduler_scheduling_algorithm_duration_seconds"


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: pods bound a second, and how long the scheduler's algorithm took for one, in the mean."""

    pods: int
    per_s: float
    algorithm_ms: float


def why_not() -> str:
    """Why it can't be measured here; "" where it can."""
    missing = [name for name in PROGRAMS if not found(name, os.environ)]
    return f"{', '.join(missing)} not found in KUBEBUILDER_ASSETS, PATH or the lab's cache" if missing else ""


def measure(nodes: int, pods: int) -> dict[str, Bound]:
    """Bind so many pods with one card, then as many with none, on so many nodes of 128 CPUs and 8 cards."""
    with tempfile.TemporaryDirectory(prefix="levers9-bench-") as folder, ExitStack() as stack:
        api = stack.enter_context(_api_server(Path(folder)))
        api.make("/api/v1/nodes", [_node(number) for number in range(nodes)])
        return {
            "one-GPU pods": _bind(api, Path(folder), [_pod(f"gpu-{number}", 1) for number in range(pods)]),
            "CPU pods": _bind(api, Path(folder), [_pod(f"cpu-{number}", 0) for number in range(pods)]),
        }


class Api:
    """The API server, as far as we make things there."""

    def __init__(self, port: int, certificate: Path) -> None:
        self.port = port
        self.certificate = certificate
        self._context = ssl.create_default_context(cafile=str(certificate))

    def connect(self) -> http.client.HTTPSConnection:
        """One connection."""
        return http.client.HTTPSConnection(HOST, self.port, context=self._context, timeout=READY_S)

    def make(self, path: str, bodies: Sequence[str]) -> None:
        """Create all of these."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda part: self._make(path, part), [bodies[first::AT_ONCE] for first in range(AT_ONCE)]))

    def _make(self, path: str, bodies: Sequence[str]) -> None:
        connection = self.connect()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        for body in bodies:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != http.client.CREATED:
                raise RuntimeError(f"{path}: {answer.status} {text[:300]!r}")
        connection.close()


def _node(number: int) -> str:
    room = {"cpu": "128", "memory": "1Ti", "pods": "250", "nvidia.com/gpu": "8"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return json.dumps(
        {
            "metadata": {"name": f"node-{number:05}", "labels": {"kubernetes.io/hostname": f"node-{number:05}"}},
            "status": {"capacity": room, "allocatable": room, "conditions": [ready]},
        }
    )


def _pod(name: str, cards: int) -> str:
    wants = {"cpu": "1", "memory": "1Gi"} | ({"nvidia.com/gpu": "1"} if cards else {})
    container = {"name": "c", "image": "none", "resources": {"requests": wants, "limits": wants}}
    return json.dumps({"metadata": {"name": name}, "spec": {"containers": [container]}})


@contextmanager
def _api_server(folder: Path) -> Iterator[Api]:
    """etcd and an API server, until they are stopped."""
    etcd, peer, port = (claim_port(HOST, 0, "the bench") for _ in range(3))
    url = f"http://{HOST}:{etcd}"
    etcd_flags = [f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=error"]
    etcd_flags += [f"--listen-client-urls={url}", f"--advertise-client-urls={url}"]
    etcd_flags += [f"--listen-peer-urls=http://{HOST}:{peer}", f"--initial-advertise-peer-urls=http://{HOST}:{peer}"]
    etcd_flags += [f"--initial-cluster=default=http://{HOST}:{peer}"]
    (folder / "tokens.csv").write_text(f"{TOKEN},bench,1,system:masters\n")
    write_signing_key(folder / "accounts.key", folder / "accounts.pub")
    flags = [f"--etcd-servers={url}", f"--secure-port={port}", f"--bind-address={HOST}", f"--cert-dir={folder}"]
    flags += [f"--advertise-address={HOST}", "--endpoint-reconciler-type=none"]
    flags += ["--service-cluster-ip-range=10.99.0.0/16", f"--token-auth-file={folder / 'tokens.csv'}"]
    flags += ["--service-account-issuer=https://kubernetes.default.svc", "--authorization-mode=RBAC"]
    flags += [f"--service-account-signing-key-file={folder / 'accounts.key'}"]
    flags += [f"--service-account-key-file={folder / 'accounts.pub'}"]
    flags += [f"--disable-admission-plugins={_NO_STANDINGS}", "--max-requests-inflight=3000"]
    with _program("etcd", etcd_flags, folder), _program("kube-apiserver", flags, folder):
        _wait(lambda: (folder / "apiserver.crt").exists(), READY_S, "the API server has no certificate")
        api = Api(port, folder / "apiserver.crt")
        _wait(lambda: _is_ready(api), READY_S, "the API server is not ready")
        yield api


def _is_ready(api: Api) -> bool:
    try:
        connection = api.connect()
        connection.request("GET", f"/api/v1/namespaces/{NAMESPACE}", headers={"Authorization": f"Bearer {TOKEN}"})
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False


@contextmanager
def _program(name: str, flags: Sequence[str], folder: Path) -> Iterator[None]:
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen([found(name, os.environ), *flags], stdout=log, stderr=log, cwd=folder)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def _bind(api: Api, folder: Path, pods: Sequence[str]) -> Bound:
    """Make the pods, start a scheduler, and see how fast it binds them: from the first to the last."""
    api.make(f"/api/v1/namespaces/{NAMESPACE}/pods", pods)
    port = claim_port(HOST, 0, "the bench")
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(_kubeconfig(api))
    flags = [f"--kubeconfig={kubeconfig}", "--leader-elect=false", f"--secure-port={port}", f"--bind-address={HOST}"]
    flags += ["--kube-api-qps=5000", "--kube-api-burst=5000", f"--cert-dir={folder / 'scheduler'}"]
    flags += ["--authorization-always-allow-paths=/metrics,/healthz", "--authentication-tolerate-lookup-failure=true"]
    with _program("kube-scheduler", flags, folder):
        certificate = folder / "scheduler" / "kube-scheduler.crt"
        _wait(certificate.exists, READY_S, "the scheduler has no certificate")
        metrics = Api(port, certificate)
        _wait(lambda: _count(metrics, _SCHEDULED) > 0, READY_S, "the scheduler binds nothing")
        began, first = time.perf_counter(), _count(metrics, _SCHEDULED)
        _wait(lambda: _count(metrics, _SCHEDULED) >= len(pods), BOUND_S, "the scheduler did not bind all pods")
        took_s = time.perf_counter() - began
        mean_s = _count(metrics, f"{_ALGORITHM}_sum") / _count(metrics, f"{_ALGORITHM}_count")
    return Bound(pods=len(pods), per_s=(len(pods) - first) / took_s, algorithm_ms=1e3 * mean_s)


def _kubeconfig(api: Api) -> str:
    cluster = {"server": f"https://{HOST}:{api.port}", "certificate-authority": str(api.certificate)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": cluster}],
            "users": [{"name": "bench", "user": {"token": TOKEN}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "current-context": "bench",
        }
    )


def _count(metrics: Api, name: str) -> float:
    """A metric of the scheduler; 0 while it is not there."""
    try:
        connection = metrics.connect()
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
    except OSError:
        return 0.0
    found_at = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found_at[1]) if found_at else 0.0


def _wait(until: Callable[[], bool], deadline_s: float, why: str) -> None:
    ends = time.monotonic() + deadline_s
    while not until():
        if time.monotonic() > ends:
            raise RuntimeError(f"{why} after {deadline_s:g} s")
        time.sleep(LOOK_S)
