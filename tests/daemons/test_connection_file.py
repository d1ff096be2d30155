"""Where programs of a user find the `levers9 dev` that runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from levers9.daemons.dev import connection_file
from levers9.daemons.root import Ready

GONE = 2**22 + 1  # no process has such a number


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "levers9" / "dev.json"


def ready(port: int) -> Ready:
    return Ready(stream_url=f"ws://127.0.0.1:{port}", http_url=f"http://127.0.0.1:{port}")


def found(path: Path) -> str:
    return str(json.loads(path.read_text())["http_url"])


def left_by(path: Path, pid: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"http_url": "http://127.0.0.1:1", "pid": pid}))


def test_it_is_there_for_its_owner_alone_and_gone_with_the_control_plane(path: Path) -> None:
    with connection_file(ready(2), "secret"):
        assert found(path) == "http://127.0.0.1:2"
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


def test_the_one_that_ran_before_is_found_again_when_the_later_one_has_ended(path: Path) -> None:
    left_by(path, os.getpid())
    with connection_file(ready(2), "secret"):
        assert found(path) == "http://127.0.0.1:2"
    assert found(path) == "http://127.0.0.1:1"
    assert path.stat().st_mode & 0o777 == 0o600


def test_one_that_has_ended_meanwhile_is_not_found_again(path: Path) -> None:
    left_by(path, GONE)
    with connection_file(ready(2), "secret"):
        pass
    assert not path.exists()


def test_what_is_no_word_of_anybody_is_dropped(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("half a wo")
    with connection_file(ready(2), "secret"):
        pass
    assert not path.exists()


def test_a_later_one_is_left_alone(path: Path) -> None:
    with connection_file(ready(2), "secret"):
        left_by(path, os.getpid())
    assert found(path) == "http://127.0.0.1:1"
