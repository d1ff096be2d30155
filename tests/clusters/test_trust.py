"""A control plane with a certificate of a private authority: agents trust it where the configuration says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trustme
from levers9_test_lab import RunningLab

from ..faults.controlplane import ControlPlane, running

pytestmark = pytest.mark.slow

WITHIN_S = 120.0


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    found = trustme.CA()
    found.cert_pem.write_to_path(tmp_path / "authority.pem")
    issued = found.issue_cert("127.0.0.1")
    for part in issued.cert_chain_pems:
        part.write_to_path(tmp_path / "cert.pem", append=True)
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    return found


def join(
    folder: Path, lab: RunningLab, authority: trustme.CA, arguments: Sequence[str], *flags: str
) -> subprocess.CompletedProcess[str]:
    """Join and leave as somebody who trusts the authority."""
    certificate = ["--cert", str(folder / "cert.pem"), "--key", str(folder / "key.pem")]
    plane = ControlPlane(folder / "plane", settings="gateways = 1\n", arguments=[*certificate, *arguments])
    program = str(Path(sys.executable).parent / "levers9")
    with running(plane):
        plane.wait_for_token()
        keep = {**plane.environment, **{name: lab.environment[name] for name in ("KUBECONFIG", "LEVERS9_LAB_DIR")}}
        env = {**keep, "LEVERS9_CA_PEM": authority.cert_pem.bytes().decode(), "HOME": str(folder)}
        joining = [program, "cluster", "join", "trust", "--gpu", "GB200", "--namespace", "trust", *flags]
        done = subprocess.run(joining, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        leaving = [program, "cluster", "leave", "trust", "--yes"]
        subprocess.run(leaving, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=True)
    return done


@pytest.fixture(autouse=True)
def workers_trust(tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control plane's own parts trust it, by this machine's roots; pods have an environment of their own."""
    assert "LEVERS9_CA_PEM" not in os.environ
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))


def test_an_agent_is_given_the_certificates_that_the_configuration_names(
    tmp_path: Path, lab: RunningLab, authority: trustme.CA
) -> None:
    done = join(tmp_path, lab, authority, ["--external-ca", str(tmp_path / "authority.pem")])
    assert done.returncode == 0, done.stderr
    assert "tray-0" in done.stdout


def test_an_agent_that_does_not_trust_the_certificate_is_told_with_what_to_do(
    tmp_path: Path, lab: RunningLab, authority: trustme.CA
) -> None:
    done = join(tmp_path, lab, authority, [], "--timeout", "15")
    assert done.returncode == 1
    assert "is not signed by anybody this machine trusts" in done.stderr
    assert "--external-ca FILE" in done.stderr
