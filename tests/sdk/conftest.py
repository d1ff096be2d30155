"""What the tests of the SDK share: a control plane in memory, and a person's project."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from levers9.sdk.connection import Connection
from levers9.sdk.current import use

from .control_plane import FakeControlPlane
from .http_stub import HttpStub

SAMPLE = Path(__file__).parent / "sample"


@pytest.fixture
def http() -> Iterator[HttpStub]:
    stub = HttpStub()
    stub.start()
    yield stub
    stub.stop()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, so that no test sees the settings of whoever runs it."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("LEVERS9_TOKEN", "LEVERS9_CONTROLPLANE_HOST", "LEVERS9_CONTROLPLANE_PORT", "LEVERS9_HTTP_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def plane(http: HttpStub) -> Iterator[FakeControlPlane]:
    """A control plane that decorated functions use."""
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
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The sample project's module, imported afresh."""
    monkeypatch.syspath_prepend(str(SAMPLE))
    sys.modules.pop("sample_work", None)
    yield import_module("sample_work")
    sys.modules.pop("sample_work", None)
