"""Where a cluster is and who we are there: by kubeconfigs, programs that give credentials, and a pod's own account."""

from __future__ import annotations

import base64
import json
import os
import ssl
from pathlib import Path

import pytest
import trustme

from levers9.errors import ConfigError
from levers9.kube.client import open_kube
from levers9.kube.config import in_cluster, load_config
from levers9.kube.endpoint import Endpoint
from levers9.kube.kinds import NODES
from levers9.model.ids import Chance

from .api_server import ADMIN, GUEST, ApiServer

GIVES_TOKEN = """#!/bin/sh
echo run >> "$0.runs"
echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"'{token}'"}}}}'
"""
pytestmark = pytest.mark.slow  # the official package takes most of a second to import


def config_file(folder: Path, user: dict[str, object], **cluster: object) -> Path:
    path = folder / "config"
    parts = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api.test:6443", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(parts))
    return path


def program(folder: Path, text: str) -> dict[str, object]:
    path = folder / "gives-credentials"
    path.write_text(text)
    path.chmod(0o755)
    return {"exec": {"command": str(path), "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}}


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def load(path: Path, **environment: str) -> Endpoint:
    return await load_config(path, environment={"PATH": os.environ["PATH"], **environment})


async def test_a_token_a_namespace_and_a_ca_are_taken_from_a_kubeconfig(tmp_path: Path) -> None:
    authority = trustme.CA().cert_pem.bytes()
    path = config_file(tmp_path, {"token": "t"}, **{"certificate-authority-data": encoded(authority)})
    endpoint = await load(path)
    assert (endpoint.server, endpoint.authorization) == ("https://api.test:6443", "Bearer t")
    assert (endpoint.namespace, endpoint.context) == ("ml", "here")
    assert endpoint.tls is not None
    assert endpoint.tls.verify_mode is ssl.CERT_REQUIRED
    assert [entry["serialNumber"] for entry in endpoint.tls.get_ca_certs()]
    assert len(endpoint.tls.get_ca_certs()) == 1


async def test_a_server_that_nobody_verifies_is_so_by_the_kubeconfigs_word_only(tmp_path: Path) -> None:
    endpoint = await load(config_file(tmp_path, {}, **{"insecure-skip-tls-verify": True}))
    assert endpoint.tls is not None
    assert endpoint.tls.verify_mode is ssl.CERT_NONE
    assert endpoint.authorization == ""


async def test_the_name_in_a_certificate_may_be_told(tmp_path: Path) -> None:
    assert (await load(config_file(tmp_path, {}, **{"tls-server-name": "kubernetes"}))).tls_name == "kubernetes"


async def test_a_certificate_of_our_own_is_shown(tmp_path: Path) -> None:
    own = trustme.CA().issue_cert("me")
    pair = {
        "client-certificate-data": encoded(own.cert_chain_pems[0].bytes()),
        "client-key-data": encoded(own.private_key_pem.bytes()),
    }
    assert (await load(config_file(tmp_path, pair))).tls is not None
    other = trustme.CA().issue_cert("you").private_key_pem.bytes()
    with pytest.raises(ConfigError, match="client certificate of the kubeconfig cannot be used"):
        await load(config_file(tmp_path, {**pair, "client-key-data": encoded(other)}))


@pytest.mark.parametrize(
    ("cluster", "environment", "proxy"),
    [
        ({}, {}, ""),
        ({}, {"HTTPS_PROXY": "http://env.test:3128"}, "http://env.test:3128"),
        ({}, {"HTTPS_PROXY": "http://env.test:3128", "NO_PROXY": ".test"}, ""),
        ({"proxy-url": "http://file.test"}, {"HTTPS_PROXY": "http://env.test:3128"}, "http://file.test"),
    ],
)
async def test_a_proxy_is_the_kubeconfigs_or_the_environments(
    tmp_path: Path, cluster: dict[str, object], environment: dict[str, str], proxy: str
) -> None:
    assert (await load(config_file(tmp_path, {"token": "t"}, **cluster), **environment)).proxy == proxy


async def test_a_program_gives_credentials_and_is_run_again_to_renew_them(tmp_path: Path) -> None:
    path = config_file(tmp_path, program(tmp_path, GIVES_TOKEN.format(token="fresh")))
    endpoint = await load(path)
    assert endpoint.renew is not None
    again = await endpoint.renew()
    assert endpoint.authorization == again.authorization == "Bearer fresh"
    assert endpoint.same_connections(again)
    assert (tmp_path / "gives-credentials.runs").read_text() == "run\nrun\n"


async def test_a_program_that_is_not_installed_is_named(tmp_path: Path) -> None:
    user: dict[str, object] = {
        "exec": {"command": "no-such-login", "apiVersion": "client.authentication.k8s.io/v1", "installHint": "Get it."}
    }
    with pytest.raises(ConfigError, match=r"'no-such-login', which is not installed here.*Get it\."):
        await load(config_file(tmp_path, user))


async def test_a_program_that_fails_is_told_with_its_own_words(tmp_path: Path) -> None:
    user = program(tmp_path, "#!/bin/sh\necho please log in >&2\nexit 3\n")
    with pytest.raises(ConfigError, match=r"gives-credentials'.*please log in"):
        await load(config_file(tmp_path, user))


@pytest.mark.parametrize("server", [None, "api.test:6443"])
async def test_a_cluster_without_an_address_is_told(tmp_path: Path, server: str | None) -> None:
    path = config_file(tmp_path, {}, server=server)
    with pytest.raises(ConfigError, match="no server that is an https:// address"):
        await load(path)


async def test_a_ca_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be"):
        await load(config_file(tmp_path, {}, **{"certificate-authority": "gone.crt"}))


async def test_the_variable_names_the_file(tmp_path: Path) -> None:
    path = config_file(tmp_path, {"token": "t"})
    environment = {"KUBECONFIG": f"{tmp_path / 'none'}{os.pathsep}{path}"}
    assert (await load_config(environment=environment)).authorization == "Bearer t"


# In a pod


def account(folder: Path, authority: bytes, token: str = "t1\n") -> Path:
    (folder / "ca.crt").write_bytes(authority)
    (folder / "token").write_text(token)
    (folder / "namespace").write_text("levers9")
    return folder


POD = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}


async def test_a_pod_speaks_to_its_own_cluster_with_a_token_that_is_read_again(tmp_path: Path) -> None:
    place = account(tmp_path, trustme.CA().cert_pem.bytes())
    endpoint = await load_config(environment=POD, account=place)
    assert (endpoint.server, endpoint.namespace) == ("https://[fd00::1]:443", "levers9")
    assert endpoint.authorization == "Bearer t1"
    assert endpoint.renew_after_s == 60
    (tmp_path / "token").write_text("t2")
    assert endpoint.renew is not None
    again = await endpoint.renew()
    assert again.authorization == "Bearer t2"
    assert endpoint.same_connections(again)


async def test_a_kubeconfig_that_is_named_goes_before_the_pods_account(tmp_path: Path) -> None:
    path = config_file(tmp_path, {"token": "mine"})
    assert (await load_config(path, environment=POD, account=tmp_path)).authorization == "Bearer mine"
    assert in_cluster(POD)


@pytest.mark.parametrize(("token", "told"), [(None, "automountServiceAccountToken"), ("", "is empty")])
async def test_a_pod_without_a_token_is_told(tmp_path: Path, token: str | None, told: str) -> None:
    place = account(tmp_path, trustme.CA().cert_pem.bytes(), token or "")
    if token is None:
        (tmp_path / "token").unlink()
    with pytest.raises(ConfigError, match=told):
        await load_config(environment=POD, account=place)


# Against a real one


async def test_a_real_api_server_is_reached_by_each_way(tmp_path: Path, api_server: ApiServer) -> None:
    authority = api_server.authority
    trust = {"server": api_server.server, "certificate-authority-data": encoded(authority)}
    place = account(tmp_path, authority, ADMIN)
    port = api_server.server.rpartition(":")[2]
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    for endpoint in (
        await load(config_file(tmp_path, {"token": ADMIN}, **trust)),
        await load(config_file(tmp_path, program(tmp_path, GIVES_TOKEN.format(token=ADMIN)), **trust)),
        await load_config(environment=pod, account=place),
    ):
        async with open_kube(endpoint, Chance(1)) as kube:
            assert (await kube.list(NODES)).version


async def test_a_token_that_a_real_api_server_no_longer_knows_is_renewed(tmp_path: Path, api_server: ApiServer) -> None:
    port = api_server.server.rpartition(":")[2]
    pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    endpoint = await load_config(environment=pod, account=account(tmp_path, api_server.authority, "outdated"))
    (tmp_path / "token").write_text(ADMIN)
    async with open_kube(endpoint, Chance(1)) as kube:
        assert (await kube.list(NODES)).version
        assert kube.endpoint.authorization == f"Bearer {ADMIN}" != f"Bearer {GUEST}"
