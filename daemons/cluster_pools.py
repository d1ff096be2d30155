"""What a pool of kind `local` or `kubernetes` must say, what its cluster says itself, and what others do not say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from ..errors import Refused
from ..model.clusters import NAMESPACE, ClusterSpec, check_name

SPEC_KEYS: Final = ("gpu", "namespace", "selector", "worker_image", "pull_secret")
SAID_BY_CLUSTER: Final = ("cpu", "memory", "gpu_count", "gpu_sharing", "labels")
_WELL: Final = ClusterSpec(name="lab", gpu_type="H100")
OF_CLUSTERS: Final = ("namespace", "selector", "kubeconfig", "context", "worker_image", "pull_secret", "host_network")


def wrong_name(name: str) -> Iterator[tuple[str, str]]:
    """A pool in a cluster goes by a name that Kubernetes takes."""
    try:
        check_name(name)
    except Refused as refused:
        yield "name", str(refused)


def wrong_in_spec(spec: ClusterSpec) -> Iterator[tuple[str, str]]:
    """Which keys Kubernetes would refuse, or nobody could read."""
    from ..actors.cluster.specs import check  # most configurations have no such pool

    fields = dict(zip(SPEC_KEYS, (spec.gpu_type, spec.namespace, spec.selector, spec.worker_image, spec.pull_secret)))
    if not spec.gpu_type:
        yield "gpu", 'the cards of its nodes have no type: write one, such as "H100"'
    if not spec.namespace:
        yield "namespace", f'it is empty: write a name such as "{NAMESPACE}"'
    for key, value in fields.items():
        if not value:
            continue
        try:
            check(_only(key, value))
        except Refused as refused:
            yield key, str(refused)


def _only(key: str, value: str) -> ClusterSpec:
    """A cluster of which all else is well."""
    return msgspec.structs.replace(_WELL, **{"gpu_type" if key == "gpu" else key: value})
