"""Finding the programs of a control plane, and building them."""

import threading
from pathlib import Path

import pytest

from levers9.errors import Refused
from levers9.lab import KUBERNETES
from levers9.lab.binaries import BUILT, ETCD, arguments, build, cache_folder, found, missing, provide

GO_MOD = Path(__file__).resolve().parents[2] / "lab" / "kube" / "go.mod"

# Stands for the `go` command: writes what it is asked to build into the folder behind -o, and notes each call.
FAKE_GO = """#!/bin/sh
echo "$@" >> {calls}
while [ "$1" != -o ]; do shift; done
for name in {names}; do printf '#!/bin/sh\\n' > "$2$name"; /bin/chmod +x "$2$name"; done
{then}
"""


def program(folder: Path, name: str, text: str = "#!/bin/sh\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nothing but a home and a path for programs; the machine's own shell is reached by scripts' first lines."""
    return {"HOME": str(tmp_path / "home"), "PATH": f"{tmp_path / 'bin'}"}


def fake_go(tmp_path: Path, then: str = "") -> str:
    text = FAKE_GO.format(calls=tmp_path / "calls", names=" ".join(BUILT), then=then)
    return str(program(tmp_path / "bin", "go", text))


def silent(words: str) -> None:
    """Say nothing."""


def test_assets_come_before_the_path_and_the_path_before_the_cache(tmp_path: Path, environment: dict[str, str]) -> None:
    name = BUILT[0]
    assert found(name, environment) == ""
    in_cache = program(cache_folder(environment), name)
    assert found(name, environment) == str(in_cache)
    on_path = program(tmp_path / "bin", name)
    assert found(name, environment) == str(on_path)
    in_assets = program(tmp_path / "assets", name)
    assert found(name, {**environment, "KUBEBUILDER_ASSETS": str(tmp_path / "assets")}) == str(in_assets)


def test_the_cache_is_where_the_system_says(environment: dict[str, str], tmp_path: Path) -> None:
    assert cache_folder(environment) == tmp_path / "home/.cache/levers9/kube" / KUBERNETES
    assert cache_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/levers9/kube") / KUBERNETES


def test_what_is_missing_is_named_with_what_to_install(tmp_path: Path, environment: dict[str, str]) -> None:
    assert "apt-get install etcd-server" in missing(environment)
    with pytest.raises(Refused, match="etcd-server"):
        provide(environment, silent)
    program(tmp_path / "bin", ETCD)
    fake_go(tmp_path)
    assert "`levers9 lab up` builds them" in missing(environment)
    for name in BUILT:
        program(tmp_path / "bin", name)
    assert missing(environment) == ""


def test_without_go_it_says_which_go_to_install(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", ETCD)
    monkeypatch.setattr("levers9.lab.binaries.go_program", lambda environment: "")
    assert "Install Go 1.26 or newer" in missing(environment)
    with pytest.raises(Refused, match=r"Install Go 1\.26 or newer"):
        provide(environment, silent)


def test_what_is_missing_is_built_once_into_the_cache(tmp_path: Path, environment: dict[str, str]) -> None:
    program(tmp_path / "bin", ETCD)
    fake_go(tmp_path)
    for _ in range(2):
        paths = provide(environment, silent)
    assert paths == {
        ETCD: str(tmp_path / "bin" / ETCD),
        **{name: str(cache_folder(environment) / name) for name in BUILT},
    }
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_two_who_need_it_build_it_once(tmp_path: Path, environment: dict[str, str]) -> None:
    go = fake_go(tmp_path)
    folder = cache_folder(environment)
    builders = [threading.Thread(target=build, args=(go, folder, environment, silent)) for _ in range(3)]
    for each in builders:
        each.start()
    for each in builders:
        each.join()
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    assert sorted(path.name for path in folder.iterdir()) == sorted(BUILT)


def test_a_build_that_fails_leaves_nothing_and_says_what_go_said(tmp_path: Path, environment: dict[str, str]) -> None:
    go = fake_go(tmp_path, then="echo no network >&2; exit 1")
    with pytest.raises(Refused, match="no network"):
        build(go, cache_folder(environment), environment, silent)
    assert not cache_folder(environment).exists()
    assert not list(cache_folder(environment).parent.glob(".building-*"))


def test_what_a_killed_build_has_left_is_removed_by_the_next(tmp_path: Path, environment: dict[str, str]) -> None:
    left = cache_folder(environment).parent / ".building-left"
    left.mkdir(parents=True)
    build(fake_go(tmp_path), cache_folder(environment), environment, silent)
    assert not left.exists()


def test_the_release_is_the_one_that_the_module_pins() -> None:
    text = GO_MOD.read_text()
    assert f"k8s.io/kubernetes {KUBERNETES}" in text
    assert all(f"k8s.io/kubernetes/cmd/{name}" in text for name in BUILT)
    assert f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}" in " ".join(arguments("go", Path("x")))
