"""Values of the wrong kind are told with what is to be written instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from levers9.daemons.settings import load_settings
from levers9.errors import ConfigError

POOL = '\n[[pools]]\nname = "p"\n'
CLUSTERS = "[attached_clusters]\n"


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        (CLUSTERS + 'clusters_per_workspace = "five"', 2, "write a whole number, without quotes."),
        (CLUSTERS + 'host_network = "no"', 2, "write true or false, without quotes."),
        (CLUSTERS + "worker_image = 5", 2, "write a text, in quotes."),
        (CLUSTERS + 'worker_image = "https://registry.example/worker"', 2, 'is no image: write one such as "levers9:'),
        (CLUSTERS + "node_cache = 100", 2, "write [attached_clusters.node_cache], in single brackets, above its keys."),
        (CLUSTERS + '[attached_clusters.node_cache]\nmax_gb = "100 GB"', 3, "write a whole number, without quotes."),
        ("[[attached_clusters]]\nhost_network = true", 1, "write [attached_clusters], in single brackets"),
        ('[pools]\nname = "p"', 1, "write [[pools]], in double brackets, above each pool."),
        ("[[pools]]\ncpu = 1", 1, "Object missing required field `name`: write `name = …`."),
        (POOL + "max_workers = 1.5", 4, "write a whole number, without quotes."),
        (POOL + "nodes = 3", 4, "write a list, in square brackets."),
        (POOL + "labels = 3", 4, "write a table, such as { name = … }."),
        (POOL + "labels = { rack = 3 }", 4, "write a text, in quotes."),
        (POOL + 'nodes = [{ name = "n", cpu = "x" }]', 4, "write a number, without quotes."),
        (POOL + 'nodes = [{ name = "n", state = "gone" }]', 4, 'write "ready", "cordoned", "tainted", "not ready" or'),
    ],
)
def test_what_is_to_be_written_is_told_with_its_line(tmp_path: Path, text: str, line: int, told: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f"{text}\n")
    with pytest.raises(ConfigError) as refused:
        load_settings(path, {})
    assert f"{path}, line {line}: " in str(refused.value)
    assert told in str(refused.value)
