"""What the tests of the command line share: an empty home, a control plane's HTTP face, and the line itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from levers9.cli import main

from ..sdk.http_stub import HttpStub


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Line = Callable[..., Done]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("LEVERS9_TOKEN", "LEVERS9_CONTROLPLANE_HOST", "LEVERS9_CONTROLPLANE_PORT", "LEVERS9_HTTP_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return folder


@pytest.fixture
def http(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpStub]:
    stub = HttpStub()
    stub.start()
    monkeypatch.setenv("LEVERS9_TOKEN", "token-of-a-test")
    monkeypatch.setenv("LEVERS9_HTTP_URL", stub.url)
    yield stub
    stub.stop()


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str]) -> Line:
    """Types a command line."""

    def typed(*arguments: str) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, printed.out, printed.err)

    return typed
