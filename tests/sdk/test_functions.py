"""How functions are found where they run: by name from files, by value from notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from types import ModuleType

import pytest

from levers9 import job
from levers9.errors import Refused
from levers9.sdk.functions import by_value, locate
from levers9.wire.client import RegisterStub

from .control_plane import FakeControlPlane

LOCATE = """
import json
from levers9.sdk.functions import adopt_main, locate, main_name
from levers9.sdk.packing import pickled, unpickled
def function(): pass
class Thing: pass
if __name__ == "__main__":
    found = locate(function)
    adopt_main(found)
    assert type(unpickled(pickled(Thing(), main_name(found)))) is Thing
    print(json.dumps([found.module, main_name(found), str(found.project.root), list(found.import_folders)]))
"""


def located(cwd: Path, *command: str) -> list[object]:
    import json

    done = subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout)
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "studies").mkdir(parents=True)
    (folder / "pyproject.toml").touch()
    (folder / "studies" / "script.py").write_text(LOCATE)
    return folder


@pytest.mark.slow
def test_a_script_is_known_by_its_place_in_the_project(project: Path) -> None:
    found = located(project, "studies/script.py")
    assert found == ["studies.script", "studies.script", str(project), ["studies"]]


@pytest.mark.slow
def test_a_module_run_with_m_is_known_by_its_name(project: Path) -> None:
    assert located(project, "-m", "studies.script")[:2] == ["studies.script", "studies.script"]


def test_a_module_is_known_by_its_name(work: ModuleType) -> None:
    found = locate(work.double.__levers9_function__)
    assert (found.module, found.name) == ("sample_work", "double")
    assert found.project is not None
    assert found.project.root.name == "sample"


def test_a_function_inside_another_is_refused_with_what_to_do(work: ModuleType) -> None:
    @job
    def inner() -> None:
        pass

    with pytest.raises(Refused, match=r"not at the top level of its module.*Move it out"):
        locate(inner.__levers9_function__)


def test_a_call_during_import_is_refused(work: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert work.__spec__ is not None
    monkeypatch.setattr(work.__spec__, "_initializing", True, raising=False)
    with pytest.raises(Refused, match='if __name__ == "__main__":'):
        locate(work.double.__levers9_function__)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """What a kernel's `__main__` looks like: a module without a file."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(tmp_path)
    exec("from levers9 import job\nFACTOR = 3\n@job\ndef times(x):\n    return x * FACTOR\n", main.__dict__)
    return main


def test_a_function_of_a_notebook_goes_by_value(plane: FakeControlPlane, notebook: ModuleType) -> None:
    assert notebook.times.remote(5) == 15
    spec = next(message.spec for message in plane.seen if isinstance(message, RegisterStub))
    assert spec.handler.startswith("pickle:blob/")


def test_a_notebook_that_changed_a_global_gets_what_it_sees(plane: FakeControlPlane, notebook: ModuleType) -> None:
    assert notebook.times.remote(5) == 15
    notebook.FACTOR = 4
    assert notebook.times.remote(5) == 20


def test_of_a_notebooks_folder_only_python_files_are_sent(plane: FakeControlPlane, notebook: ModuleType) -> None:
    Path("secrets.txt").write_text("hush")
    Path("beside.py").write_text("x = 1")
    notebook.times.remote(5)
    spec = next(message.spec for message in plane.seen if isinstance(message, RegisterStub))
    assert b"beside.py" in plane.http.objects[spec.code_key]
    assert b"secrets.txt" not in plane.http.objects[spec.code_key]


def test_a_function_that_cannot_be_pickled_says_why(notebook: ModuleType) -> None:
    exec("import threading\nLOCK = threading.Lock()\ndef bad():\n    return LOCK\n", notebook.__dict__)
    with pytest.raises(Refused, match=r"The function bad cannot be pickled: .*lock.*Make such values"):
        by_value(notebook.bad)


def test_the_process_is_not_the_one_that_was_forked(plane: FakeControlPlane, work: ModuleType) -> None:
    from levers9.sdk.current import current

    ours = current()
    ours.process_id = os.getpid() + 1  # as a child finds its parent's connection
    assert current() is not ours
    ours.process_id = os.getpid()
    ours.close()
