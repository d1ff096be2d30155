"""Everything under TLS by a private authority: workers, callers, streams and HTTP, on two ports and on one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trustme

from .controlplane import ControlPlane, MapRun, running

pytestmark = pytest.mark.slow

CALLS = 10


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the control plane is told; every process of the test trusts the authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    issued = authority.issue_cert("127.0.0.1")
    for part in (*issued.cert_chain_pems,):
        part.write_to_path(tmp_path / "cert.pem", append=True)
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    return ["--cert", str(tmp_path / "cert.pem"), "--key", str(tmp_path / "key.pem")]


def run_map(folder: Path, arguments: list[str]) -> ControlPlane:
    """A map of a few calls on a control plane with one worker."""
    with running(ControlPlane(folder / "plane", workers=1, arguments=arguments)) as plane:
        plane.wait_for_token()
        with MapRun(folder / "map", plane, calls=CALLS, sleep_s=0.0) as run:
            results, _ = run.finish()
    assert results == [2 * key for key in range(CALLS)]
    return plane


def test_a_map_runs_with_workers_and_caller_under_tls(tmp_path: Path, certificate: list[str]) -> None:
    plane = run_map(tmp_path, certificate)
    assert (plane.stream_url[:6], plane.http_url[:8]) == ("wss://", "https://")


def test_streams_and_http_share_one_external_port_by_path(tmp_path: Path, certificate: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    external = f"https://127.0.0.1:{port}"
    one_port = ["--stream-port", port, "--http-port", port, "--external-url", external]
    plane = run_map(tmp_path, [*certificate, *one_port])
    assert plane.stream_url.rpartition(":")[2] == plane.http_url.rpartition(":")[2] == port
