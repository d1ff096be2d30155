"""Volumes of a pod on disk. A process has no mounts of its own: they are folders and links below the pod's folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..errors import LeversError
from ..kube.face import Kube
from .expansion import PodPlace, field_of
from .objects import (
    CONFIG_MAPS,
    SECRETS,
    ConfigMapVolume,
    Container,
    Downward,
    KeyPath,
    Pod,
    Projection,
    SecretVolume,
    TokenSource,
    Volume,
    tokens_of,
)

ACCOUNT_MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


class ConfigMissing(LeversError):
    """A container refers to a secret, configuration map or key that there is not, so it can't be made yet."""

    code = "lab_config"


Files = dict[str, bytes]


class Sources:
    """Reads what pods refer to."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def secret(self, namespace: str, name: str, *, optional: bool) -> Mapping[str, bytes]:
        """The keys of a secret. Raises `ConfigMissing` unless it is optional."""
        found = await self._kube.get(SECRETS, name, namespace)
        if found is None and not optional:
            raise ConfigMissing(f'secret "{name}" not found')
        return (found.data if found else None) or {}

    async def config_map(self, namespace: str, name: str, *, optional: bool) -> Mapping[str, bytes]:
        """The keys of a configuration map. Raises `ConfigMissing` unless it is optional."""
        found = await self._kube.get(CONFIG_MAPS, name, namespace)
        if found is None and not optional:
            raise ConfigMissing(f'configmap "{name}" not found')
        text = {key: value.encode() for key, value in ((found.data if found else None) or {}).items()}
        return {**text, **((found.binary_data if found else None) or {})}

    async def token(self, pod: Pod, source: TokenSource) -> bytes:
        """A token for the pod's service account, bound to the pod."""
        body: dict[str, object] = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [source.audience] if source.audience else [],
                "expirationSeconds": source.expiration_seconds,
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod.metadata.name,
                    "uid": pod.metadata.uid,
                },
            },
        }
        account = pod.spec.service_account_name or "default"
        return (await self._kube.create(tokens_of(account), body, pod.metadata.namespace)).status.token.encode()


class Volumes:
    """The volumes of one pod: made once, before its first container."""

    def __init__(self, folder: Path, host: Path, pod: Pod, place: PodPlace, sources: Sources) -> None:
        """`folder` is the pod's own; `host` stands for the root of its node's file system."""
        self._folder = folder / "volumes"
        self._host = host
        self._pod = pod
        self._place = place
        self._sources = sources

    async def make(self) -> None:
        """Write all volumes. Raises `ConfigMissing`."""
        for volume in self._pod.spec.volumes or ():
            files = await self._files(volume)
            folder = self._folder / volume.name
            if volume.host_path is not None:
                self._link(folder, volume.host_path.path)
                continue
            folder.mkdir(parents=True, exist_ok=True)
            for name, data in files.items():
                _write(folder / name, data)

    def mount(self, container: Container, root: Path) -> dict[str, str]:
        """Links below `root`, which stands for the container's file system; returns the real path of each mount."""
        root.mkdir(parents=True, exist_ok=True)
        found: dict[str, str] = {}
        for mount in sorted(container.volume_mounts or (), key=lambda each: each.mount_path):
            link = root / mount.mount_path.strip("/")
            target = self._folder / mount.name / mount.sub_path
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink() and not link.exists():
                link.symlink_to(target)
            found[mount.mount_path] = str(link)
        return found

    def _link(self, folder: Path, host_path: str) -> None:
        target = self._host / host_path.lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not folder.is_symlink():
            folder.symlink_to(target)

    async def _files(self, volume: Volume) -> Files:
        projections = (volume.projected.sources if volume.projected else None) or ()
        own = Projection(secret=volume.secret, config_map=volume.config_map, downward_api=volume.downward_api)
        found: Files = {}
        for projection in (*projections, own):
            found |= await self._project(projection)
        return found

    async def _project(self, source: Projection) -> Files:
        found: Files = {}
        if source.secret is not None:
            found |= await self._secret(source.secret)
        if source.config_map is not None:
            found |= await self._config_map(source.config_map)
        if source.service_account_token is not None:
            token = await self._sources.token(self._pod, source.service_account_token)
            found[source.service_account_token.path] = token
        if source.downward_api is not None:
            found |= self._downward(source.downward_api)
        return found

    async def _secret(self, volume: SecretVolume) -> Files:
        name = volume.secret_name or volume.name
        data = await self._sources.secret(self._pod.metadata.namespace, name, optional=volume.optional)
        return _chosen(data, volume.items, f'secret "{name}"', volume.optional)

    async def _config_map(self, volume: ConfigMapVolume) -> Files:
        data = await self._sources.config_map(self._pod.metadata.namespace, volume.name, optional=volume.optional)
        return _chosen(data, volume.items, f'configmap "{volume.name}"', volume.optional)

    def _downward(self, volume: Downward) -> Files:
        return {
            item.path: field_of(self._pod, item.field_ref.field_path, self._place).encode()
            for item in volume.items or ()
            if item.field_ref is not None
        }


def _chosen(data: Mapping[str, bytes], items: tuple[KeyPath, ...] | None, what: str, optional: bool) -> Files:
    if items is None:
        return dict(data)
    missing = [item.key for item in items if item.key not in data]
    if missing and not optional:
        raise ConfigMissing(f'couldn\'t find key "{missing[0]}" in {what}')
    return {item.path: data[item.key] for item in items if item.key in data}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(data)
    fresh.replace(path)


def remove(folder: Path) -> None:
    """Remove a pod's folder; links go, what they point to stays."""
    shutil.rmtree(folder, ignore_errors=True)
