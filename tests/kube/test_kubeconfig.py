"""What is said of a kubeconfig that does not serve, and what is taken from one that does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from levers9.errors import ConfigError
from levers9.kube.kubeconfig import Chosen, choose, read_files


def written(folder: Path, name: str = "config", **parts: object) -> Path:
    path = folder / name
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **parts}))  # JSON is YAML
    return path


def context(name: str, cluster: str = "c", user: str = "u", **parts: str) -> dict[str, object]:
    return {"name": name, "context": {"cluster": cluster, "user": user, **parts}}


CLUSTERS = [{"name": "c", "cluster": {"server": "https://api.test", "proxy-url": "http://proxy.test:3128"}}]


def test_the_current_context_is_taken_where_none_is_named(tmp_path: Path) -> None:
    plugin = {"exec": {"command": "aws", "installHint": "See\n  the docs."}}
    path = written(
        tmp_path,
        contexts=[context("other"), context("prod", namespace="ml")],
        clusters=CLUSTERS,
        users=[{"name": "u", "user": plugin}],
        **{"current-context": "prod"},
    )
    assert choose(read_files([path]), None) == Chosen(
        context="prod",
        cluster="c",
        server="https://api.test",
        folder=tmp_path,
        namespace="ml",
        proxy="http://proxy.test:3128",
        plugin="aws",
        plugin_hint="See the docs.",
    )


def test_several_files_are_one(tmp_path: Path) -> None:
    first = written(tmp_path, "first", contexts=[context("a")], **{"current-context": "b"})
    second = written(tmp_path, "second", contexts=[context("b")], clusters=CLUSTERS)
    files = read_files([first, tmp_path / "none", second])
    assert choose(files, None).context == "b"
    assert choose(files, "a").server == "https://api.test"


@pytest.mark.parametrize(
    ("parts", "wanted", "told"),
    [
        ({}, None, "has no contexts. Point --kubeconfig or KUBECONFIG at one"),
        ({"contexts": [context("a"), context("b")]}, None, "has no current context.*there are a, b"),
        (
            {"contexts": [context("gke_prod"), context("kind")]},
            "gke-prod",
            "no context 'gke-prod': did you mean gke_prod",
        ),
        ({"contexts": [context("gke_prod"), context("kind")]}, "zzz", "no context 'zzz': there are gke_prod, kind"),
        (
            {"contexts": [context("a", cluster="gone")]},
            "a",
            "names the cluster 'gone', which the kubeconfig does not have",
        ),
        ({"contexts": "many"}, None, "is no kubeconfig"),
        ({"contexts": [{"name": "a"}]}, "a", "has no context 'a'"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, parts: dict[str, object], wanted: str | None, told: str) -> None:
    path = written(tmp_path, **parts)
    with pytest.raises(ConfigError, match=told):
        choose(read_files([path]), wanted)


def test_a_long_list_of_contexts_is_cut_short(tmp_path: Path) -> None:
    path = written(tmp_path, contexts=[context(f"c{number}") for number in range(25)])
    with pytest.raises(ConfigError, match="c9 and 15 more"):
        choose(read_files([path]), None)


def test_without_a_file_it_is_told_where_one_was_looked_for_and_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"no kubeconfig at {tmp_path}/none.*get-credentials"):
        read_files([tmp_path / "none"])


def test_a_file_that_is_no_yaml_is_told_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("contexts:\n  - [\n")
    with pytest.raises(ConfigError, match=r"is no YAML: .*line 3"):
        read_files([tmp_path / "config"])


def test_an_empty_file_has_no_contexts(tmp_path: Path) -> None:
    (tmp_path / "config").touch()
    with pytest.raises(ConfigError, match="has no contexts"):
        choose(read_files([tmp_path / "config"]), None)
