"""The house itself: what is installed is what is in the tree, and nothing of it can be imported by a bare name."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import levers9

ROOT = Path(__file__).resolve().parent.parent
NOT_INSTALLED = {"tests", "bench", "examples", "scripts", "docs", "build", "dist", "runner"}
CHECKERS_DEADLINE_S = 300
LONGEST_MODULE_LINES = 500


def shipped_files() -> list[Path]:
    """List the files below the root, relative to it, without those that no wheel holds."""
    found: list[Path] = []
    for folder, below, files in os.walk(ROOT):
        below[:] = [name for name in below if not name.startswith((".", "__")) and name not in NOT_INSTALLED]
        found += [Path(folder, name).relative_to(ROOT) for name in files]
    return found


def folders_with_init() -> set[str]:
    return {".".join(("levers9", *path.parent.parts)) for path in shipped_files() if path.name == "__init__.py"}


def declared_packages() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return set(project["tool"]["setuptools"]["packages"])


def run_python(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MYPY"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=CHECKERS_DEADLINE_S,
        check=False,
    )


def test_the_package_list_is_the_tree() -> None:
    """A folder that got an __init__.py goes into [tool.setuptools] packages in pyproject.toml, or wheels lack it."""
    tree, declared = folders_with_init(), declared_packages()
    missing, gone = sorted(tree - declared), sorted(declared - tree)
    assert not missing, f"add to [tool.setuptools] packages in pyproject.toml: {missing}"
    assert not gone, f"remove from [tool.setuptools] packages in pyproject.toml: {gone}"


def top_level_names() -> list[str]:
    modules = [path.stem for path in ROOT.glob("*.py") if path.stem != "__init__"]
    packages = [path.parent.name for path in ROOT.glob("*/__init__.py")]
    return sorted({*modules, *packages})


def test_a_bare_import_does_not_work_under_pytest() -> None:
    found = [name for name in top_level_names() if importlib.util.find_spec(name) is not None]
    assert "model" in top_level_names()
    assert found == []


@pytest.mark.slow
def test_a_bare_import_does_not_work_in_another_folder(tmp_path: Path) -> None:
    script = "import importlib.util, sys; print([n for n in sys.argv[1:] if importlib.util.find_spec(n)])"
    done = run_python("-c", script, *top_level_names(), cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.slow
def test_importing_the_package_loads_neither_the_sdk_nor_trio(tmp_path: Path) -> None:
    script = "import sys, levers9; print(sorted({'trio', 'levers9.sdk', 'levers9.wire'} & set(sys.modules)))"
    done = run_python("-c", script, cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'jobb'"):
        levers9.jobb  # noqa: B018


def test_the_public_names_are_listed_before_they_are_loaded() -> None:
    assert {"job", "Client", "Task"} <= set(dir(levers9))


def test_no_module_is_too_long_to_be_read_in_one_sitting() -> None:
    modules = [path for path in shipped_files() if path.suffix == ".py"]
    lines = {str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in modules}
    assert {path: length for path, length in lines.items() if length > LONGEST_MODULE_LINES} == {}


def test_the_lock_pins_every_dependency_with_hashes_and_names_no_index() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [number for number, line in enumerate(lines) if "==" in line and not line.startswith((" ", "#"))]
    unhashed = [lines[number] for number in pins if not lines[number + 1].strip().startswith("--hash=sha256:")]
    assert len(pins) > 30
    assert unhashed == []
    assert not [line for line in lines if "://" in line or "index-url" in line]


def test_every_runtime_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {requirement.split(">=")[0] for requirement in project["dependencies"]}
    locked = {line.split("==")[0] for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()}
    assert wanted - locked == set()


def test_every_dependency_is_told_in_the_docs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    untold = [name for name in (entry.split(">=")[0] for entry in project["dependencies"]) if f"`{name}`" not in told]
    assert untold == []


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the tree and return the folder in which it is unpacked."""
    source, dist, target = (tmp_path_factory.mktemp(name) for name in ("source", "dist", "target"))
    hidden = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(ROOT, source, ignore=hidden, dirs_exist_ok=True)
    built = run_python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), str(source), cwd=dist)
    assert built.returncode == 0, built.stdout + built.stderr
    shutil.unpack_archive(next(dist.glob("*.whl")), target, format="zip")
    return target


@pytest.mark.slow
def test_the_wheel_holds_the_packages_and_nothing_generic(installed: Path) -> None:
    package = installed / "levers9"
    unpacked = {".".join(path.parent.relative_to(installed).parts) for path in package.rglob("__init__.py")}
    assert declared_packages() - unpacked == set()
    assert sorted(path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")) == ["levers9"]
    assert (package / "py.typed").exists()
    assert not [name for name in ("tests", "bench", "docs", "README.md") if (package / name).exists()]


@pytest.mark.slow
def test_the_wheel_holds_every_file_that_is_not_python(installed: Path) -> None:
    wanted = [path for path in shipped_files() if path.suffix == ".sql" or path.name == "SPEC.md"]
    assert [str(path) for path in wanted if not (installed / "levers9" / path).exists()] == []


@pytest.mark.slow
def test_the_installed_wheel_passes_mypy_strict(installed: Path, tmp_path: Path) -> None:
    """The settings are the project's own; only the place from which the package is taken differs."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    done = run_python("-m", "mypy", "--strict", "-p", "levers9", cwd=tmp_path, MYPYPATH=str(installed))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Success: no issues found in" in done.stdout
