"""What a person may say of a cluster, as Kubernetes would take it."""

from __future__ import annotations

import msgspec
import pytest
from levers9_test_cluster import SPEC

from levers9.actors.cluster.specs import LONGEST, check
from levers9.errors import Refused


@pytest.mark.parametrize(
    "changes",
    [
        {"namespace": "A b\nc"},
        {"namespace": "has.dots"},
        {"namespace": "-x"},
        {"namespace": "n" * 64},
        {"gpu_type": "H\0"},
        {"gpu_type": "\x1b[2JH100"},
        {"gpu_type": "H 100"},
        {"gpu_type": "H" * 64},
        {"worker_image": "a b"},
        {"worker_image": "a\nb"},
        {"worker_image": "x" * (LONGEST + 1)},
        {"pull_secret": "Secret"},
        {"pull_secret": "a/b"},
        {"selector": "a/b/c"},
        {"selector": "a=-x"},
        {"selector": "a=b\n"},
        {"selector": "a=" + "b" * LONGEST},
    ],
    ids=str,
)
def test_what_kubernetes_would_refuse_later_is_refused_at_once_in_words(changes: dict[str, str]) -> None:
    with pytest.raises(Refused) as refused:
        check(msgspec.structs.replace(SPEC, **changes))
    assert str(refused.value).isprintable()
    assert refused.value.fix


@pytest.mark.parametrize(
    "changes",
    [
        {"namespace": "gpu-team-1", "gpu_type": "A100-40", "pull_secret": "reg.cred-1"},
        {"gpu_type": "MIG-1g.10gb", "worker_image": "127.0.0.1:5000/a/b_c:1.2-x@sha256:00ff"},
        {"selector": "cloud.example/pool in (a,b),!spot,tier!=x"},
    ],
    ids=str,
)
def test_what_kubernetes_takes_is_taken(changes: dict[str, str]) -> None:
    spec = msgspec.structs.replace(SPEC, **changes)
    assert check(spec) is None
