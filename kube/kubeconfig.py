"""What a kubeconfig says of its contexts, so far as we tell people about it. Reading it whole is the package's work."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from ..errors import ConfigError

_HOW_TO_GET_ONE: Final = (
    "Point --kubeconfig or KUBECONFIG at one; `kubectl config view` shows what kubectl uses. Your cloud writes one: "
    "gcloud container clusters get-credentials, aws eks update-kubeconfig, az aks get-credentials."
)


class _Part(msgspec.Struct, frozen=True, rename="kebab"):
    pass


class Exec(_Part, frozen=True):
    """A program that gives credentials."""

    command: str = ""
    install_hint: str | None = msgspec.field(default=None, name="installHint")


class User(_Part, frozen=True):
    """Credentials."""

    exec: Exec | None = None


class Cluster(_Part, frozen=True):
    """An API server."""

    server: str | None = None
    proxy_url: str | None = None


class Context(_Part, frozen=True):
    """A cluster and a user."""

    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class NamedContext(_Part, frozen=True):
    """A context with its name; so below."""

    name: str
    context: Context | None = None


class NamedCluster(_Part, frozen=True):
    """See `NamedContext`."""

    name: str
    cluster: Cluster | None = None


class NamedUser(_Part, frozen=True):
    """See `NamedContext`."""

    name: str
    user: User | None = None


class File(_Part, frozen=True):
    """A kubeconfig."""

    current_context: str | None = None
    contexts: list[NamedContext] | None = None
    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """One context, and what matters of it."""

    context: str
    cluster: str
    server: str
    folder: Path  # of the file that names the user: its programs may lie beside it
    namespace: str = ""
    proxy: str = ""
    plugin: str = ""
    plugin_hint: str = ""


Read = tuple[Path, File]
Named = TypeVar("Named", NamedContext, NamedCluster, NamedUser)


def read_files(paths: Iterable[Path]) -> tuple[Read, ...]:
    """What is in those of these files that are there. Raises `ConfigError` where there is none, or one is wrong."""
    paths = tuple(paths)
    read = tuple((path, _read(path)) for path in paths if path.is_file())
    if not read:
        raise ConfigError(f"There is no kubeconfig at {', '.join(map(str, paths))}. {_HOW_TO_GET_ONE}")
    return read


def _read(path: Path) -> File:
    import yaml

    try:
        return msgspec.convert(yaml.safe_load(path.read_bytes()) or {}, File)
    except OSError as error:
        raise ConfigError(f"The kubeconfig {path} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"The kubeconfig {path} is no YAML: {' '.join(str(error).split())}.") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} is no kubeconfig: {error}.") from error


def choose(files: tuple[Read, ...], name: str | None) -> Chosen:
    """The context of that name, or the current one. Raises `ConfigError` with the names there are."""
    shown = ", ".join(str(path) for path, _ in files)
    names = tuple(each.name for _, file in files for each in file.contexts or ())
    wanted = name or next((file.current_context for _, file in files if file.current_context), "")
    if not names:
        raise ConfigError(f"The kubeconfig {shown} has no contexts. {_HOW_TO_GET_ONE}")
    if not wanted:
        raise ConfigError(
            f"The kubeconfig {shown} has no current context. Choose one with --context, or with kubectl config "
            f"use-context; there are {_listed(names)}."
        )
    found = _first((each for _, file in files for each in file.contexts or ()), wanted)
    if found is None or found.context is None:
        near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
        told = f"did you mean {_listed(near)}?" if near else f"there are {_listed(names)}."
        raise ConfigError(f"The kubeconfig {shown} has no context {wanted!r}: {told}")
    return _chosen(files, wanted, found.context)


def _chosen(files: tuple[Read, ...], name: str, context: Context) -> Chosen:
    cluster = _first((each for _, file in files for each in file.clusters or ()), context.cluster)
    if cluster is None or cluster.cluster is None:
        raise ConfigError(
            f"Context {name!r} names the cluster {context.cluster!r}, which the kubeconfig does not have. Correct it: "
            "kubectl config set-context."
        )
    folder, user = next(
        ((path.parent, each) for path, file in files for each in file.users or () if each.name == context.user),
        (files[0][0].parent, None),
    )
    program = user.user.exec if user and user.user else None
    return Chosen(
        context=name,
        cluster=context.cluster,
        server=cluster.cluster.server or "",
        folder=folder,
        namespace=context.namespace or "",
        proxy=cluster.cluster.proxy_url or "",
        plugin=program.command if program else "",
        plugin_hint=" ".join((program.install_hint or "").split()) if program else "",
    )


def _first(named: Iterable[Named], name: str) -> Named | None:
    return next((each for each in named if each.name == name), None)


def _listed(names: Iterable[str]) -> str:
    names = tuple(names)
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
