"""A control plane's settings, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from levers9.daemons.settings import line_of, load_settings
from levers9.errors import ConfigError

TEXT = """\
# a comment about gateways
gateways = 2

[[pools]]
name = "a"
cpu = 2

[[pools]]
name = "b"
cpu = 4
"""


def test_flags_come_before_variables_and_those_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(TEXT)
    assert load_settings(path, {}).gateways == 2
    assert load_settings(path, {"LEVERS9_GATEWAYS": "3"}).gateways == 3
    assert load_settings(path, {"LEVERS9_GATEWAYS": "3"}, gateways=4).gateways == 4


@pytest.mark.parametrize(("key", "pool", "line"), [("gateways", 0, 2), ("cpu", 0, 6), ("cpu", 1, 10), ("none", 0, 1)])
def test_the_line_of_a_key(key: str, pool: int, line: int) -> None:
    assert line_of(TEXT, key, pool) == line


def test_a_wrong_value_of_the_second_pool_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(TEXT.replace("cpu = 4", "cpu = 'four'"))
    with pytest.raises(ConfigError, match=rf"{path}, line 10: cpu: Expected `float`, got `str`: write a number"):
        load_settings(path, {})


def test_a_wrong_variable_is_told_by_its_name() -> None:
    with pytest.raises(ConfigError, match=r"gateways: .* the variable LEVERS9_GATEWAYS"):
        load_settings(None, {"LEVERS9_GATEWAYS": "two"})


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml cannot be read: No such file or directory. Name another"):
        load_settings(tmp_path / "none.toml", {})


WRONG = """\
gateways = 2
stream_port = 1993
http_port = 1994
metrics_port = -1

[[pools]]
name = "a"

[[pools]]
name = "b"
kind = "process"
isolation = "none"
min_workers = 1
max_workers = 3
cpu = 4
memory = 512
gpu_count = 0
"""


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("gateways = 2", "gateways = -3", "line 1: gateways: -3 is too few: write 1 or more."),
        ("gateways = 2", "gateways = 0", "line 1: gateways: 0 is too few: write 1 or more."),
        (
            "1993",
            "99999",
            "line 2: stream_port: 99999 is no port: write one from 1 to 65535, or 0 for any that is free.",
        ),
        ("1994", "-1", "line 3: http_port: -1 is no port: write one from 1 to 65535, or 0 for any that is free."),
        ("= -1", "= -2", "line 4: metrics_port: -2 is no port: write one from 0 to 65535, or -1 for none."),
        ('"b"', '"a"', 'line 10: name: another pool is named "a": write a name of its own.'),
        ('"b"', '""', 'line 10: name: it is empty: write a name such as "default".'),
        (
            '"process"',
            '"docker"',
            'line 11: kind: Invalid enum value \'docker\': write "process", "local", "kubernetes" or "replay".',
        ),
        ('"none"', '"some"', 'line 12: isolation: Invalid enum value \'some\': write "none" or "trusted".'),
        (
            "min_workers = 1",
            "min_workers = 5",
            "line 13: min_workers: 5 does not fit: write 0 to 3, which is max_workers.",
        ),
        (
            "min_workers = 1",
            "min_workers = -1",
            "line 13: min_workers: -1 does not fit: write 0 to 3, which is max_work",
        ),
        ("max_workers = 3", "max_workers = -2", "line 14: max_workers: -2 is too few: write 0 or more."),
        ("cpu = 4", "cpu = 0", "line 15: cpu: cpu=0.0 is not a quantity. Give CPUs as a number such as 0.5"),
        ("cpu = 4", "cpu = -1", "line 15: cpu: cpu=-1.0 is not a quantity. Give CPUs as a number such as 0.5"),
        ("memory = 512", "memory = 0", "line 16: memory: memory=0 is not a quantity. Give MiB as a number"),
        ("gpu_count = 0", "gpu_count = -1", "line 17: gpu_count: -1 is too few: write 0 or more."),
    ],
)
def test_a_value_that_cannot_be_is_told_with_its_line_and_what_to_write(
    tmp_path: Path, right: str, wrong: str, told: str
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(WRONG)
    assert len(load_settings(path, {}).pools) == 2
    path.write_text(WRONG.replace(right, wrong))
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})
    assert f"{path}, {told}" in str(caught.value)


def test_a_flag_that_cannot_be_is_told_as_one() -> None:
    with pytest.raises(ConfigError, match=r"gateways: -3 is too few: write 1 or more\. It comes from a flag"):
        load_settings(None, {}, gateways=-3)


NODES = """\
[[pools]]
name = "emulated"
cpu = 4
gpu = "GB200"
gpu_count = 4
gpu_sharing = true
labels = { region = "r" }
placement = "best_fit"
min_free_gpu = 2
idle_s = 60

[[pools.nodes]]
name = "n1"
labels = { nvl = "d1" }

[[pools.nodes]]
name = "n2"
cpu = 8
gpu = "A100"
gpu_count = 1
state = "cordoned"

[provisioning_guard]
pending = -1
"""


def test_nodes_are_as_their_pool_but_for_what_they_say(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(NODES)
    settings = load_settings(path, {})
    (pool,) = settings.pools
    first, second = pool.offers()
    assert (first.capacity.cpu_milli, first.capacity.gpu_type, first.capacity.gpu_count) == (4000, "GB200", 4)
    assert (second.capacity.cpu_milli, second.capacity.gpu_type, second.capacity.gpu_count) == (8000, "A100", 1)
    assert first.traits.labels == (("nvl", "d1"), ("region", "r"))
    assert (first.traits.node, first.traits.gpu_sharing, second.state) == ("n1", True, "cordoned")
    assert (pool.most_workers, pool.kept_free().gpu_milli, pool.idle_s) == (2, 2000, 60.0)
    assert (settings.provisioning_guard.pending, settings.provisioning_guard.per_minute) == (-1, 30)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "n2"', 'name = "n1"', "line 12: nodes: pool 'emulated' lists node 'n1' twice: write each node once."),
        ('name = "n2"', 'nam = "n2"', "line 17: there is no key `nam`. Did you mean `name`?"),
        ('"cordoned"', '"odd"', 'line 21: state: Invalid enum value \'odd\': write "ready", "cordoned", '),
        ("cpu = 8", "cpu = -8", "line 12: nodes: node 'n2': cpu=-8.0 is not a quantity."),
        ('"best_fit"', '"luck"', "line 8: placement: \"luck\" is none: write 'best_fit', "),
        ("idle_s = 60", "idle_s = -1", "line 10: idle_s: -1 is no time: write seconds, 0 or more."),
        ("pending = -1", "pendin = -1", "line 24: there is no key `pendin`. Did you mean `pending`?"),
    ],
)
def test_what_is_wrong_with_nodes_and_the_guard_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(NODES.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})
    assert str(caught.value).startswith(f"{path}, {said}")


def test_a_node_of_two_pools_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(NODES + '[[pools]]\nname = "b"\n[[pools.nodes]]\nname = "n1"\n')
    with pytest.raises(ConfigError, match="node 'n1' is in pool 'emulated' already: write it in one pool"):
        load_settings(path, {})


CLUSTERS = """
external_ca = "ca.pem"

[attached_clusters]
worker_image = "worker:1"
clusters_per_workspace = 0
host_network = false
isolation = "trusted"

[attached_clusters.node_cache]
max_gb = 50
"""


def test_what_is_said_of_attached_clusters(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(CLUSTERS)
    table = load_settings(path, {}).attached_clusters
    assert (table.worker_image, table.clusters_per_workspace, table.host_network) == ("worker:1", 0, False)
    assert (table.isolation, table.node_cache.max_gb, table.node_cache.min_free_pct) == ("trusted", 50, 20)
    assert table.agent_image.startswith("levers9:")


def test_by_default_five_clusters_a_workspace_none_of_them_shared() -> None:
    table = load_settings(None, {}).attached_clusters
    assert (table.clusters_per_workspace, table.isolation, table.host_network) == (5, "none", True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("clusters_per_workspace = 0", "clusters_per_workspace = -1", "line 6: clusters_per_workspace: -1 is too few"),
        ('"worker:1"', '"worker 1"', "line 5: worker_image: 'worker 1' is no image"),
        ('"trusted"', '"full"', 'line 8: isolation: Invalid enum value \'full\': write "none" or "trusted"'),
        ("max_gb = 50", "max_gb = 0", "line 11: max_gb: 0 is too small: write 1 or more"),
        ("max_gb = 50", "min_free_pct = 100", "line 11: min_free_pct: 100 is no share of a disk"),
        ("max_gb = 50", "max_mb = 50", "line 11: there is no key `max_mb`. Did you mean `max_gb`?"),
        ("host_network", "hostnetwork", "line 7: there is no key `hostnetwork`. Did you mean `host_network`?"),
    ],
)
def test_what_is_wrong_with_attached_clusters_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(CLUSTERS.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})
    assert said in str(caught.value)
