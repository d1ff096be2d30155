"""`levers9 run`: a function of a file, on a worker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import levers9
from levers9.sdk.connection import Connection
from levers9.sdk.current import use

from ..sdk.control_plane import FakeControlPlane
from ..sdk.http_stub import HttpStub
from .conftest import Line

PROGRAM = '''
from levers9 import job

@job
def double(x: int) -> int:
    """Twice as much."""
    return 2 * x

@job(description="Complains.")
def complain(what: str = "rain", *, loudly: bool = False) -> None:
    raise ValueError(what.upper() if loudly else what)

def plain(x: int) -> int:
    return x + 1
'''


@pytest.fixture
def plane(http: HttpStub) -> Iterator[FakeControlPlane]:
    http.answers["GET /api/v1/tasks/*/logs*"] = (200, b'{"n":1,"stream":"out","time":1,"text":"working"}\n{"end":1}\n')
    fake = FakeControlPlane(http)
    made: list[Connection] = []

    def make() -> Connection:
        made.append(Connection(fake.settings, dial=fake.dial))
        return made[-1]

    restore = use(make)
    yield fake
    restore()
    for connection in made:
        connection.close()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "project" / "program_to_run.py"
    file.parent.mkdir()
    (file.parent / ".levers9ignore").touch()
    file.write_text(PROGRAM)
    yield file
    sys.modules.pop("program_to_run", None)


def test_it_shows_what_the_function_printed_and_returned(plane: FakeControlPlane, program: Path, line: Line) -> None:
    done = line("run", f"{program}:double", "21")
    assert (done.code, done.out) == (0, "working\n42\n")
    assert done.err.startswith("levers9: task-")


def test_a_failure_shows_the_remote_traceback_only(plane: FakeControlPlane, program: Path, line: Line) -> None:
    done = line("run", f"{program}:complain", "snow", "--loudly")
    assert done.code == 1
    assert "ValueError: SNOW" in done.err
    assert str(Path(levers9.__file__).parent / "sdk" / "remote.py") not in done.err


def test_a_function_without_job_runs_here(plane: FakeControlPlane, program: Path, line: Line) -> None:
    assert line("run", f"{program}:plain", "1").out == "2\n"
    assert plane.seen == []


def test_several_functions_are_listed(program: Path, line: Line) -> None:
    done = line("run", str(program))
    assert done.code == 1
    assert f"{program}:double (Twice as much.)" in done.err
    assert f"{program}:complain (Complains.)" in done.err


def test_a_wrong_name_gets_the_nearest(program: Path, line: Line) -> None:
    done = line("run", f"{program}:doubel", "1")
    assert done.code == 1
    assert "It has: double." in done.err


@pytest.mark.parametrize("arguments", [("not-a-number",), ("1", "2"), ("--y", "1"), ()])
def test_wrong_arguments_are_a_wrong_command_line(program: Path, line: Line, arguments: tuple[str, ...]) -> None:
    done = line("run", f"{program}:double", *arguments)
    assert done.code == 2
    assert "Traceback" not in done.err


def test_a_file_that_is_not_there(line: Line) -> None:
    assert line("run", "nowhere.py").err == "levers9: There is no file 'nowhere.py'. Give the path of a Python file.\n"


def test_a_file_that_fails_shows_where(program: Path, line: Line) -> None:
    program.write_text("x = 1\nraise RuntimeError('at import')\n")
    done = line("run", str(program))
    assert done.code == 1
    assert "line 2" in done.err
    assert "at import" in done.err
    assert "importlib" not in done.err
