"""The variables of a container: what Kubernetes sets, what its pod asks for, and its cards, numbered from 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ..kube.config import ACCOUNT_VARIABLE
from .expansion import MountPaths, PodPlace, expand, field_of, resource_of
from .folder import MARK_VARIABLE
from .objects import Container, EnvFrom, EnvVar, Pod, ValueFrom
from .trays import Card
from .volumes import ACCOUNT_MOUNT, ConfigMissing, Sources

CONTAINER_VARIABLE: Final = "LEVERS9_LAB_CONTAINER"  # whose process it is: pod UID and container
ROOT_VARIABLE: Final = "LEVERS9_LAB_ROOT"
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for all pods of a lab."""

    lab_id: str
    api_host: str
    api_port: int
    programs: Path  # has `levers9`, `python` and so on


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod was given by its node; `room` is all that the node has."""

    place: PodPlace
    cards: tuple[Card, ...]
    room: dict[str, str]


def card_variables(cards: Sequence[Card]) -> dict[str, str]:
    """The device plugin's word to the container: its cards by UUID, and numbers that begin at 0."""
    return {
        "NVIDIA_VISIBLE_DEVICES": ",".join(card.uuid for card in cards) or "void",
        "CUDA_VISIBLE_DEVICES": ",".join(str(number) for number in range(len(cards))),
    }


class Environment:
    """Makes the variables of the containers of one pod."""

    def __init__(self, pod: Pod, given: Given, around: Surroundings, sources: Sources, bin_folder: Path) -> None:
        """`bin_folder` has what is the pod's own, such as `nvidia-smi`."""
        self._pod = pod
        self._given = given
        self._around = around
        self._sources = sources
        self._bin = bin_folder

    async def of(self, container: Container, paths: MountPaths, root: Path) -> dict[str, str]:
        """All variables of a container. Raises `ConfigMissing`."""
        known = self._usual(root)
        for source in container.env_from or ():
            known |= await self._from(source)
        for variable in container.env or ():
            value = await self._value(container, variable, known)
            if value is not None:
                known[variable.name] = value
        ours = self._usual(root)
        found = {name: paths.rewrite(value) if value != ours.get(name) else value for name, value in known.items()}
        account = paths.rewrite(ACCOUNT_MOUNT)
        if account != ACCOUNT_MOUNT:
            found.setdefault(ACCOUNT_VARIABLE, account)
        mine = f"{self._pod.metadata.uid}/{container.name}"
        return found | {MARK_VARIABLE: self._around.lab_id, CONTAINER_VARIABLE: mine}

    def _usual(self, root: Path) -> dict[str, str]:
        return {
            "PATH": f"{self._bin}:{self._around.programs}:{_SYSTEM_PATH}",
            "HOME": str(root),
            "HOSTNAME": self._pod.spec.hostname or self._pod.metadata.name,
            "LANG": "C.UTF-8",
            "KUBERNETES_SERVICE_HOST": self._around.api_host,
            "KUBERNETES_SERVICE_PORT": str(self._around.api_port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(self._around.api_port),
            ROOT_VARIABLE: str(root),
            **card_variables(self._given.cards),
        }

    async def _from(self, source: EnvFrom) -> dict[str, str]:
        namespace = self._pod.metadata.namespace
        found: Mapping[str, bytes] = {}
        if (secret := source.secret_ref) is not None:
            found = await self._sources.secret(namespace, secret.name, optional=secret.optional)
        elif (table := source.config_map_ref) is not None:
            found = await self._sources.config_map(namespace, table.name, optional=table.optional)
        return {f"{source.prefix}{key}": value.decode(errors="replace") for key, value in found.items()}

    async def _value(self, container: Container, variable: EnvVar, known: Mapping[str, str]) -> str | None:
        if variable.value_from is None:
            return expand(variable.value or "", known)
        return await self._looked_up(container, variable.value_from)

    async def _looked_up(self, container: Container, source: ValueFrom) -> str | None:
        """None for a key that is not there and need not be."""
        if source.field_ref is not None:
            return field_of(self._pod, source.field_ref.field_path, self._given.place)
        if source.resource_field_ref is not None:
            return resource_of(self._pod.spec.containers, container, source.resource_field_ref, self._given.room)
        namespace = self._pod.metadata.namespace
        if (ref := source.secret_key_ref) is not None:
            table, what = await self._sources.secret(namespace, ref.name, optional=ref.optional), "Secret"
        elif (ref := source.config_map_key_ref) is not None:
            table, what = await self._sources.config_map(namespace, ref.name, optional=ref.optional), "ConfigMap"
        else:
            return None
        if ref.key not in table and not ref.optional:
            raise ConfigMissing(f"couldn't find key {ref.key} in {what} {namespace}/{ref.name}")
        found = table.get(ref.key)
        return None if found is None else found.decode(errors="replace")
