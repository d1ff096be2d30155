"""Which cluster, and as whom: a kubeconfig, or the service account of our own pod.

A kubeconfig is read by the official package: it runs exec plugins, follows contexts and decodes certificates. It
blocks, so it works in a thread. It is imported only then: an agent in its pod is spared the second and the 40 MB.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from ..errors import ConfigError
from ..wire.carriers.proxy import proxy_for
from .endpoint import Endpoint
from .kubeconfig import Chosen, choose, read_files

if TYPE_CHECKING:
    from kubernetes.client import Configuration

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ACCOUNT_VARIABLE: Final = "LEVERS9_SERVICE_ACCOUNT_DIR"  # where it is instead: pods of the lab have no mounts
TOKEN_READ_AGAIN_S: Final = 60.0  # the kubelet renews it at four fifths of its life, which is ten minutes at least
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_USUAL: Final = "~/.kube/config"
_SAID_MAX: Final = 1_000  # characters of what a failed program said


class Trust(msgspec.Struct, frozen=True):
    """What a TLS context is made of: the same of these makes the same connections."""

    roots: bytes | None
    certificate: bytes | None
    key: bytes | None
    verified: bool


async def load_config(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    account: Path | None = None,
) -> Endpoint:
    """The API server to speak to: of `kubeconfig`, else of $KUBECONFIG, else of our own pod, else of ~/.kube/config.

    `context` names one of the kubeconfig's contexts; without it the current one is taken. Raises `ConfigError` that
    says what to do.
    """
    if kubeconfig is None and context is None and not environment.get("KUBECONFIG") and in_cluster(environment):
        found = account or Path(environment.get(ACCOUNT_VARIABLE) or SERVICE_ACCOUNT)
        return await trio.to_thread.run_sync(_of_pod, dict(environment), found)
    source = _Source(_paths(kubeconfig, environment), context, dict(environment))
    return await source.load_in_thread()


def in_cluster(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether we run in a pod that may speak to its API server."""
    return bool(environment.get(_HOST) and environment.get(_PORT))


# A kubeconfig


def _paths(kubeconfig: Path | None, environment: Mapping[str, str]) -> tuple[Path, ...]:
    if kubeconfig is not None:
        return (kubeconfig,)
    named = [each for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    home = environment.get("HOME")
    usual = Path(home, ".kube", "config") if home else Path(_USUAL).expanduser()
    return tuple(Path(each) for each in named) or (usual,)


class _Source:
    """Reads a kubeconfig as often as it must: exec plugins give credentials that end."""

    def __init__(self, paths: tuple[Path, ...], context: str | None, environment: Mapping[str, str]) -> None:
        self._paths = paths
        self._context = context
        self._environment = environment
        self._trust: Trust | None = None
        self._tls: ssl.SSLContext | None = None

    async def load_in_thread(self) -> Endpoint:
        """An exec plugin may wait for a person for ever: whoever is cancelled does not wait with it."""
        return await trio.to_thread.run_sync(self._load, abandon_on_cancel=True)

    def _load(self) -> Endpoint:
        chosen = choose(read_files(self._paths), self._context)
        _expect_server(chosen)
        self._expect_plugin(chosen)
        loaded, said = self._through_package(chosen)
        authorization = (loaded.api_key or {}).get("BearerToken", "")
        if chosen.plugin and not authorization and not loaded.cert_file:
            raise ConfigError(
                f"The program {chosen.plugin!r}, by which context {chosen.context!r} gets its credentials, failed: "
                f"{said[:_SAID_MAX] or 'it gave none'}. Run it by hand, or log in anew."
            )
        return Endpoint(
            server=loaded.host,
            tls=self._tls_of(loaded) if loaded.host.startswith("https:") else None,
            authorization=authorization,
            tls_name=loaded.tls_server_name or "",
            proxy=chosen.proxy or proxy_for(loaded.host, self._environment),
            namespace=chosen.namespace or "default",
            context=chosen.context,
            renew=self.load_in_thread,
        )

    def _expect_plugin(self, chosen: Chosen) -> None:
        path = self._environment.get("PATH", os.defpath)
        if not chosen.plugin or shutil.which(chosen.plugin, path=path) or (chosen.folder / chosen.plugin).is_file():
            return
        hint = f" {chosen.plugin_hint}" if chosen.plugin_hint else ""
        raise ConfigError(
            f"Context {chosen.context!r} gets its credentials from the program {chosen.plugin!r}, which is not "
            f"installed here. Install it, or put it on the PATH.{hint}"
        )

    def _through_package(self, chosen: Chosen) -> tuple[Configuration, str]:
        from kubernetes.client import Configuration
        from kubernetes.config import ConfigException, load_kube_config

        loaded = type.__call__(Configuration)
        files = os.pathsep.join(str(path) for path in self._paths)
        with _overheard() as said:
            try:
                load_kube_config(  # type: ignore[no-untyped-call]  # the package has none
                    files, chosen.context, client_configuration=loaded, persist_config=False
                )
            except (ConfigException, OSError, ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"Context {chosen.context!r} of {files} cannot be used: {error}") from error
        return loaded, " ".join(said)

    def _tls_of(self, loaded: Configuration) -> ssl.SSLContext:
        roots, certificate, key = map(_bytes_of, (loaded.ssl_ca_cert, loaded.cert_file, loaded.key_file))
        trust = Trust(roots, certificate, key, loaded.verify_ssl)
        if self._tls is None or trust != self._trust:
            self._trust, self._tls = trust, tls_of(loaded.ssl_ca_cert, verified=loaded.verify_ssl)
            if loaded.cert_file:
                _load_own(self._tls, loaded.cert_file, loaded.key_file)
        return self._tls


def _expect_server(chosen: Chosen) -> None:
    if urllib.parse.urlsplit(chosen.server).scheme not in ("http", "https"):
        raise ConfigError(
            f"The cluster {chosen.cluster!r} of context {chosen.context!r} has no server that is an https:// address. "
            "Correct it: kubectl config set-cluster."
        )


def _load_own(tls: ssl.SSLContext, certificate: str, key: str | None) -> None:
    try:
        tls.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"The client certificate of the kubeconfig cannot be used: {error}.") from error


def _bytes_of(path: str | None) -> bytes | None:
    try:
        return Path(path).read_bytes() if path else None
    except OSError as error:
        raise ConfigError(f"The kubeconfig names {path}, which cannot be read: {error.strerror}.") from error


def tls_of(roots: str | None, *, verified: bool = True) -> ssl.SSLContext:
    """A context that trusts the CA in the file `roots`, or the system's. Raises `ConfigError`."""
    try:
        tls = ssl.create_default_context(cafile=roots)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"{roots} holds no CA certificate: {error}.") from error
    if roots:
        # Kubernetes' own CAs often lack what the strict reading of RFC 5280 asks for, and Go does not ask.
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verified:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


@contextmanager
def _overheard() -> Iterator[list[str]]:
    """What the package logs in this thread: it tells the failure of an exec plugin nowhere else."""
    said: list[str] = []
    here = threading.get_ident()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == here and record.levelno >= logging.ERROR:
                said.append(record.getMessage())

    ear, root = Ear(), logging.getLogger()
    root.addHandler(ear)
    try:
        yield said
    finally:
        root.removeHandler(ear)


# The service account of our own pod


def _of_pod(environment: Mapping[str, str], account: Path, known: Endpoint | None = None) -> Endpoint:
    host = environment[_HOST]
    server = f"https://{f'[{host}]' if ':' in host else host}:{environment[_PORT]}"
    again = functools.partial(_of_pod, environment, account)
    endpoint = Endpoint(
        server=server,
        tls=known.tls if known else tls_of(str(account / "ca.crt")),
        authorization=f"Bearer {_read_account(account / 'token')}",
        proxy=proxy_for(server, environment),
        namespace=_read_account(account / "namespace"),
        renew_after_s=TOKEN_READ_AGAIN_S,
    )
    return msgspec.structs.replace(endpoint, renew=lambda: trio.to_thread.run_sync(again, endpoint))


def _read_account(path: Path) -> str:
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}): does the pod have a service account, and "
            "automountServiceAccountToken?"
        ) from error
    if not text:
        raise ConfigError(f"{path} is empty: the pod's service account has no token.")
    return text
