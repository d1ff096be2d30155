"""The configuration file through the command line."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import pytest

from levers9.sdk.config import resolve

from ..sdk.http_stub import HttpStub
from .conftest import Line


def test_set_and_show(home: Path, line: Line) -> None:
    assert line("config", "set", "controlplane_host", "127.0.0.1").code == 0
    assert line("config", "set", "token", "l9w_0123456789").code == 0
    shown = line("config", "show").out
    assert "127.0.0.1" in shown
    assert "l9w_01…" in shown
    assert "0123456789" not in shown
    assert resolve(environment={}).token == "l9w_0123456789"


def test_the_file_is_the_users_alone(home: Path, line: Line) -> None:
    line("config", "set", "token", "secret")
    path = Path(line("config", "path").out.strip())
    assert path == home / ".levers9" / "config"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_wrong_key_names_the_nearest(line: Line) -> None:
    done = line("config", "set", "tokn", "x")
    assert (done.code, done.err) == (1, "levers9: There is no key 'tokn'. Did you mean 'token'?\n")


def test_login_tries_the_token_before_it_keeps_it(home: Path, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = HttpStub()
    stub.start()
    try:
        refused = line("login", "--token", "bad", "--http-url", stub.url)
        assert (refused.code, (home / ".levers9").exists()) == (1, False)
        stub.answers["GET /api/v1/whoami"] = (200, {"workspace": "team", "kind": "workspace"})
        monkeypatch.setattr("sys.stdin", io.StringIO("l9w_good\n"))
        done = line("login", "--http-url", stub.url)
    finally:
        stub.stop()
    assert done.code == 0
    assert "workspace team as workspace" in done.out
    assert "Bearer l9w_good" in stub.tokens
    assert resolve(environment={}).token == "l9w_good"


def test_a_home_that_cannot_be_written_to_is_a_sentence(home: Path, line: Line) -> None:
    (home / ".levers9").write_text("in the way")
    done = line("config", "set", "token", "x")
    assert done.code == 1
    assert "cannot be written" in done.err
