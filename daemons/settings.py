"""What a control plane is told: a TOML file, the environment over it, flags over both.

A wrong key is refused with the file, the line and the nearest right key.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, cast

import msgspec

from ..errors import ConfigError, Refused
from ..model.clusters import NAMESPACE, ClusterSpec
from ..model.figures import GUARD_PENDING, GUARD_PER_MINUTE, HTTP_PORT, IDLE_WORKER_S, METRICS_PORT, STREAM_PORT
from ..model.nodes import NodeOffer, NodeState, Traits
from ..model.queue_tables import QueueingTable
from ..model.resources import CARD_MILLI, Amount, Capacity, cpu_milli, memory_mib
from .advice import with_advice
from .cluster_pools import OF_CLUSTERS, SAID_BY_CLUSTER, wrong_in_spec, wrong_name
from .cluster_tables import AttachedClustersTable, NodeCacheTable, wrong_in_clusters

Table = Mapping[str, object]

PORT_MAX: Final = 65_535
CLUSTER_KINDS: Final = ("local", "kubernetes")


class NodeTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[pools.nodes]]`: a node of a name, with at most one worker on it. What it does not say is as in its pool."""

    name: str
    labels: dict[str, str] = {}
    cpu: float | None = None
    memory: int | str | None = None
    gpu: str | None = None
    gpu_count: int | None = None
    state: Literal["ready", "cordoned", "tainted", "not ready", "stale"] = "ready"


class PoolTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[pools]]`: workers as child processes, all of one size, or one on each of `nodes`; `memory` is MiB, or "4Gi".

    Code runs as plain processes there, so a pool serves the workspace `default` only; with `isolation = "trusted"` it
    serves all workspaces, which then trust each other. Pools are asked for workers in their order in the file.

    A pool of kind `local` has its workers in the Kubernetes cluster that we run in, one of kind `kubernetes` in another
    one that we call with a credential: its nodes are those with cards that `selector` names.
    """

    name: str
    kind: Literal["process", "replay", "local", "kubernetes"] = "process"
    min_workers: int = 0
    max_workers: int | None = None  # None: the number of nodes, or 1
    min_free_cpu: float = 0.0
    min_free_memory: int | str = 0
    min_free_gpu: int = 0
    idle_s: float = IDLE_WORKER_S
    cpu: float = 1.0
    memory: int | str = 1024
    gpu: str = ""
    gpu_count: int = 0
    gpu_sharing: bool = False
    labels: dict[str, str] = {}
    placement: str = ""
    isolation: Literal["none", "trusted"] = "none"
    nodes: tuple[NodeTable, ...] = ()
    namespace: str = NAMESPACE
    selector: str = ""
    kubeconfig: str = ""
    context: str = ""
    worker_image: str = ""
    pull_secret: str = ""
    host_network: bool | None = None  # None: as [attached_clusters] says

    @property
    def most_workers(self) -> int:
        """How many workers it has at most."""
        return (len(self.nodes) or 1) if self.max_workers is None else self.max_workers

    def capacity(self) -> Capacity:
        """The size of one worker. Raises `Refused` for what is no quantity."""
        return Capacity(
            cpu_milli=cpu_milli(self.cpu),
            memory_mib=memory_mib(self.memory),
            gpu_count=self.gpu_count,
            gpu_type=self.gpu,
        )

    def kept_free(self) -> Amount:
        """What is ordered ahead of anybody's wish. Raises `Refused` for what is no quantity."""
        return Amount(
            cpu_milli(self.min_free_cpu) if self.min_free_cpu else 0,
            memory_mib(self.min_free_memory) if self.min_free_memory else 0,
            self.min_free_gpu * CARD_MILLI,
        )

    def offers(self) -> tuple[NodeOffer, ...]:
        """Its named nodes, with what a worker on each has. Raises `Refused` for what is no quantity."""
        return tuple(NodeOffer(capacity=self._size(node), traits=self._traits(node), state=NodeState(node.state))
                     for node in self.nodes)  # fmt: skip

    def _size(self, node: NodeTable) -> Capacity:
        return Capacity(
            cpu_milli=cpu_milli(self.cpu if node.cpu is None else node.cpu),
            memory_mib=memory_mib(self.memory if node.memory is None else node.memory),
            gpu_count=self.gpu_count if node.gpu_count is None else node.gpu_count,
            gpu_type=self.gpu if node.gpu is None else node.gpu,
        )

    def _traits(self, node: NodeTable) -> Traits:
        labels = tuple(sorted({**self.labels, **node.labels}.items()))
        return Traits(node=node.name, labels=labels, gpu_sharing=self.gpu_sharing)

    def traits(self) -> Traits:
        """Those of workers that stand on no named node."""
        return Traits(labels=tuple(sorted(self.labels.items())), gpu_sharing=self.gpu_sharing)


class GuardTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[provisioning_guard]`: each pool has at most so many pending workers, and gets so many within a minute.

    Below zero a limit is off; 0 holds everything.
    """

    pending: int = GUARD_PENDING
    per_minute: int = GUARD_PER_MINUTE


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A control plane. Without `database_url` and `redis_url` it runs servers of its own in `state_dir`.

    `external_url` is where callers and workers find it from outside, and `external_ca` a file with certificates that
    attached clusters trust beside their system's; `advertise_url` is where other replicas dial its streams. Port 0
    takes any free one. `metrics_port` -1 is none.
    """

    state_dir: str = ""
    run_dir: str = ""
    database_url: str = ""
    redis_url: str = ""
    objects_url: str = ""
    bind: str = "127.0.0.1"
    stream_port: int = STREAM_PORT
    http_port: int = HTTP_PORT
    metrics_port: int = METRICS_PORT
    external_url: str = ""
    external_ca: str = ""
    advertise_url: str = ""
    cert: str = ""
    key: str = ""
    gateways: int = 1
    pools: tuple[PoolTable, ...] = ()
    provisioning_guard: GuardTable = GuardTable()
    attached_clusters: AttachedClustersTable = AttachedClustersTable()
    queueing: QueueingTable = QueueingTable()


TABLES: Final = frozenset({"pools", "provisioning_guard", "attached_clusters", "queueing"})  # said in a file only
_ENVIRONMENT: Final = {f"LEVERS9_{name.upper()}": name for name in Settings.__struct_fields__ if name not in TABLES}


def load_settings(path: Path | None, environment: Mapping[str, str] = os.environ, **flags: object) -> Settings:
    """The settings from a file (None: no file), the environment and flags. Raises `ConfigError`."""
    table: dict[str, object] = dict(_read(path)) if path is not None else {}
    for variable, name in _ENVIRONMENT.items():
        if variable in environment:
            table[name] = environment[variable]
    table.update({name: value for name, value in flags.items() if value is not None})
    try:
        settings = msgspec.convert(table, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(_bad_value(path, with_advice(str(error)))) from error
    check_values(settings, path)
    return settings


def check_values(settings: Settings, path: Path | None = None) -> None:
    """Raises `ConfigError` for values of the right kind that no control plane can have; `path` is where they stand."""
    for place, wrong in _wrong_values(settings):
        raise ConfigError(_bad_value(path, f"{wrong} - at `$.{place}`"))


def _wrong_values(settings: Settings) -> Iterator[tuple[str, str]]:
    """Where a value stands, and what is wrong with it and right instead."""
    if settings.gateways < 1:
        yield "gateways", f"{settings.gateways} is too few: write 1 or more"
    ports = {"stream_port": settings.stream_port, "http_port": settings.http_port}
    for key, port in ports.items():
        if not 0 <= port <= PORT_MAX:
            yield key, f"{port} is no port: write one from 1 to {PORT_MAX}, or 0 for any that is free"
    if not -1 <= settings.metrics_port <= PORT_MAX:
        yield "metrics_port", f"{settings.metrics_port} is no port: write one from 0 to {PORT_MAX}, or -1 for none"
    names = [pool.name for pool in settings.pools]
    for number, pool in enumerate(settings.pools):
        if pool.name in names[:number]:
            yield f"pools[{number}].name", f'another pool is named "{pool.name}": write a name of its own'
        yield from ((f"pools[{number}].{key}", wrong) for key, wrong in wrong_in_pool(pool))
    yield from nodes_of_two_pools(settings.pools)
    for key, wrong in wrong_in_clusters(settings.attached_clusters):
        yield f"attached_clusters.{key}", wrong


def nodes_of_two_pools(pools: tuple[PoolTable, ...]) -> Iterator[tuple[str, str]]:
    """A node is owned by one pool: two would each start a worker on it. Where it stands, and what is wrong."""
    owners: dict[str, str] = {}
    for number, pool in enumerate(pools):
        for node in pool.nodes:
            owner = owners.setdefault(node.name, pool.name)
            if owner != pool.name:
                yield f"pools[{number}].nodes", f"node {node.name!r} is in pool {owner!r} already: write it in one pool"


def wrong_in_pool(pool: PoolTable) -> Iterator[tuple[str, str]]:
    """Which keys of a pool have values that no pool can have, and what is right instead."""
    if not pool.name:
        yield "name", 'it is empty: write a name such as "default"'
    if "/" in pool.name:
        yield "name", f'{pool.name!r} has a slash in it: write a name such as "default"'
    counts = {"max_workers": pool.most_workers, "gpu_count": pool.gpu_count, "min_free_gpu": pool.min_free_gpu}
    for key, number in counts.items():
        if number < 0:
            yield key, f"{number} is too few: write 0 or more"
    if not 0 <= pool.min_workers <= pool.most_workers:
        yield "min_workers", f"{pool.min_workers} does not fit: write 0 to {pool.most_workers}, which is max_workers"
    if not pool.idle_s >= 0:
        yield "idle_s", f"{pool.idle_s:g} is no time: write seconds, 0 or more"
    if pool.placement:
        yield from _wrong_placement(pool.placement)
    yield from _wrong_quantities(pool)
    yield from _wrong_nodes(pool)
    if pool.kind in CLUSTER_KINDS:
        yield from _wrong_cluster(pool)
        return
    for key in _changed(pool, OF_CLUSTERS):
        yield key, f'a pool of kind "{pool.kind}" is in no cluster: leave it out, or write kind = "kubernetes"'


def _changed(pool: PoolTable, keys: tuple[str, ...]) -> Iterator[str]:
    """Those of these keys that say something else than what holds anyway."""
    usual = PoolTable(name=pool.name)
    return (key for key in keys if getattr(pool, key) != getattr(usual, key))


def spec_of(pool: PoolTable) -> ClusterSpec:
    """What a pool in a cluster says of it, as of one that is attached."""
    return ClusterSpec(
        name=pool.name,
        gpu_type=pool.gpu,
        namespace=pool.namespace,
        selector=pool.selector,
        worker_image=pool.worker_image,
        pull_secret=pool.pull_secret,
        host_network=pool.host_network,
    )


def _wrong_cluster(pool: PoolTable) -> Iterator[tuple[str, str]]:
    """What a pool in a Kubernetes cluster must say, and what the cluster says itself."""
    yield from wrong_name(pool.name)
    yield from wrong_in_spec(spec_of(pool))
    for key in _changed(pool, SAID_BY_CLUSTER):
        yield key, "its cluster says what its workers are: leave it out"
    if pool.nodes:
        yield "nodes", "its nodes are those of its cluster: name them by `selector`"
    for key in _changed(pool, ("max_workers", "min_workers")):
        yield key, "it has at most one worker a node: leave min_workers and max_workers out"
    if pool.kind == "local" and (pool.kubeconfig or pool.context):
        yield "kind", 'it is in the cluster that we run in: for another one write kind = "kubernetes"'


def _wrong_placement(name: str) -> Iterator[tuple[str, str]]:
    from ..actors.scheduler.placement import PLACEMENTS  # no root and no gateway loads a scheduler

    if name not in PLACEMENTS:
        yield "placement", f'"{name}" is none: write {", ".join(f"{one!r}" for one in PLACEMENTS)}'


def _wrong_quantities(pool: PoolTable) -> Iterator[tuple[str, str]]:
    for read, prefix in ((pool.capacity, ""), (pool.kept_free, "min_free_")):
        try:
            read()
        except Refused as refused:
            yield f"{prefix}{'memory' if refused.what.startswith('memory') else 'cpu'}", str(refused)


def _wrong_nodes(pool: PoolTable) -> Iterator[tuple[str, str]]:
    """Nodes without a name, nodes listed twice, sizes that are none."""
    names = [node.name for node in pool.nodes]
    for number, node in enumerate(pool.nodes):
        if not node.name:
            yield "nodes", f'node {number + 1} of pool {pool.name!r} has no name: write one, such as "node-1"'
        if node.name in names[:number]:
            yield "nodes", f"pool {pool.name!r} lists node {node.name!r} twice: write each node once"
        if (node.gpu_count or 0) < 0:
            yield "nodes", f"gpu_count of node {node.name!r} is {node.gpu_count}: write 0 or more"
        try:
            msgspec.structs.replace(pool, nodes=(node,)).offers()
        except Refused as refused:
            yield "nodes", f"node {node.name!r}: {refused}"


def _read(path: Path) -> Table:
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. Name another file with --config.") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)
        where = f"{path}, line {line[1] if line else text.count(chr(10)) + 1}"
        raise ConfigError(f"{where}: this is not TOML: {what}. Write `key = value`, and texts in quotes.") from error
    _check_keys(path, text, table, Settings.__struct_fields__)
    for pool in _tables(table.get("pools")):
        _check_keys(path, text, pool, PoolTable.__struct_fields__)
        for node in _tables(pool.get("nodes")):
            _check_keys(path, text, node, NodeTable.__struct_fields__)
    for guard in _tables([table.get("provisioning_guard")]):
        _check_keys(path, text, guard, GuardTable.__struct_fields__)
    for clusters in _tables([table.get("attached_clusters")]):
        _check_keys(path, text, clusters, AttachedClustersTable.__struct_fields__)
        for cache in _tables([clusters.get("node_cache")]):
            _check_keys(path, text, cache, NodeCacheTable.__struct_fields__)
    if "queueing" not in table:
        return table
    from .queueing import read_queueing  # most configurations have none

    return {**table, "queueing": read_queueing(table["queueing"], path)}


def _tables(found: object) -> list[Table]:
    """The tables of a list of them; whatever else is there is told by its kind later."""
    return [cast("Table", one) for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _check_keys(path: Path, text: str, table: Table, known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(unknown_key(path, text, key, known))


def unknown_key(path: Path, text: str, key: str, known: tuple[str, ...]) -> str:
    """The sentence for a key that does not exist: the file, its line, the nearest key that does."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
    advice = f"Did you mean `{near[0]}`?" if near else f"Known keys: {', '.join(sorted(known))}."
    return f"{path}, line {line_of(text, key)}: there is no key `{key}`. {advice}"


def line_of(text: str, key: str, pool: int = 0) -> int:
    """The line that sets a key, counted from 1; of a key of pools, that of the pool with this number."""
    starts = [match.end() for match in re.finditer(r"^\s*\[\[\s*pools\s*\]\]", text, re.MULTILINE)]
    begin = starts[pool] if key in PoolTable.__struct_fields__ and pool < len(starts) else 0
    of_line = re.compile(rf"^[^\S\n]*\[*[^\S\n]*(?:pools\.)?[\"']?{re.escape(key)}[\"']?\s*[\]=]", re.MULTILINE)
    within = re.compile(rf"[{{,]\s*{re.escape(key)}\s*=")  # a table in one line
    match = of_line.search(text, begin) or within.search(text, begin)
    return text.count("\n", 0, match.start() if match else begin) + 1


def _bad_value(path: Path | None, said: str) -> str:
    """The sentence for a value of the wrong kind, wherever it came from."""
    what, _, place = said.partition(" - at `$.")
    names = re.match(r"(\w+)(?:\[(\d+)\]\.(\w+))?(?:\[\d+\]\.(\w+))?", place)
    deep = re.fullmatch(r"\w+(?:\.(\w+))+`?", place)  # a key of a table within a table
    key = deep[1] if deep else (names[4] or names[3] or names[1]) if names else ""
    variable = f"LEVERS9_{key.upper()}"
    if path is None or not (key in path.read_text() or place.startswith(("pools[", "attached_clusters"))):
        return f"{key or 'The settings'}: {what}. It comes from a flag, or from the variable {variable}."
    line = line_of(path.read_text(), key, int(names[2] or 0) if names else 0)
    return f"{path}, line {line}: {key}: {what.rstrip('.')}."
