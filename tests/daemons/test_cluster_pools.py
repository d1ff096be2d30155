"""What pools in clusters say, and what they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from levers9.daemons.settings import load_settings
from levers9.errors import ConfigError

PROCESS = '\n[[pools]]\nname = "p"\n'
CLUSTER = '\n[[pools]]\nname = "gke"\nkind = "kubernetes"\ngpu = "H100"\n'
LEFT_OUT = "leave it out"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('selector = "a in b"', "It is no label selector. Write key=value"),
        ('namespace = "Levers9"', "is no namespace. Kubernetes would not take it. Write 1 to 63 of a-z"),
        ('worker_image = "a b"', "is no image. Kubernetes would not take it. Write it as in a pod"),
        ('pull_secret = "A_B"', "is no secret's name"),
        ("cpu = 4", LEFT_OUT),
        ('memory = "4Gi"', LEFT_OUT),
        ("gpu_count = 4", LEFT_OUT),
        ("gpu_sharing = true", LEFT_OUT),
        ('labels = { a = "b" }', LEFT_OUT),
        ("min_workers = 1", "leave min_workers and max_workers out"),
        ("max_workers = 3", "leave min_workers and max_workers out"),
    ],
)
def test_what_a_cluster_would_refuse_or_says_itself_is_told_before_anything_starts(
    tmp_path: Path, line: str, told: str
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f"{CLUSTER}{line}\n")
    with pytest.raises(ConfigError) as refused:
        load_settings(path, {})
    assert str(refused.value).startswith(f"{path}, line 6: {line.split()[0]}: ")
    assert told in str(refused.value)


@pytest.mark.parametrize("key", ["namespace", "selector", "kubeconfig", "context", "worker_image", "pull_secret"])
def test_what_only_pools_in_clusters_have_is_not_passed_over_in_silence(tmp_path: Path, key: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f'{PROCESS}{key} = "x"\n')
    with pytest.raises(ConfigError, match=rf'line 4: {key}: a pool of kind "process" is in no cluster: leave it out'):
        load_settings(path, {})


def test_a_key_that_is_missing_is_told_with_the_line_of_its_pool(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(CLUSTER.replace('gpu = "H100"\n', ""))
    with pytest.raises(ConfigError, match=r"line 2: gpu: the cards of its nodes have no type: write one"):
        load_settings(path, {})


def test_what_is_well_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f'{CLUSTER}selector = "pool in (a,b)"\nnamespace = "gpu"\nhost_network = false\n')
    (pool,) = load_settings(path, {}).pools
    assert (pool.selector, pool.namespace, pool.host_network) == ("pool in (a,b)", "gpu", False)
