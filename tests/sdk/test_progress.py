"""The line that says how far long work is."""

from __future__ import annotations

import io
from types import ModuleType

import pytest

from levers9.sdk.progress import EVERY_S, PATIENCE_S, ProgressLine, sentence
from levers9.wire.client import TasksProgressed

from .control_plane import FakeControlPlane


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("done", "total", "spent_s", "more", "said"),
    [
        (0, 100, 1.0, "no worker is free", "0/100 · 0.0/s · no worker is free"),
        (50, 100, 10.0, "", "50/100 · 5.0/s · 10 s left"),
        (1000, 10_000_000, 10.0, "", "1,000/10,000,000 · 100/s · 27.8 h left"),
        (600, 1200, 300.0, "", "600/1,200 · 2.0/s · 5 min left"),
        (7, 0, 1.0, "", "7 · 7.0/s"),
        (100, 100, 2.0, "", "100/100 · 50/s"),
    ],
)
def test_the_sentence(done: int, total: int, spent_s: float, more: str, said: str) -> None:
    assert sentence(done, total, spent_s, more) == said


def test_the_line_is_patient_seldom_and_leaves_nothing() -> None:
    terminal, now = Terminal(), [0.0]
    line = ProgressLine("f", terminal, lambda: now[0])
    line.show(1, 4)
    assert terminal.getvalue() == ""
    now[0] = PATIENCE_S
    line.show(2, 4)
    now[0] += EVERY_S / 2
    line.show(3, 4)
    assert terminal.getvalue() == "\r\x1b[Kf: 2/4 · 2.0/s · 1 s left"
    line.clear()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_in_a_pipe_nothing_is_drawn() -> None:
    pipe = io.StringIO()
    line = ProgressLine("f", pipe, lambda: 100.0)
    line.show(1, 4)
    assert (line.on, pipe.getvalue()) == (False, "")


class Releasing(Terminal):
    """Lets the held calls run once the line says what they wait for."""

    def __init__(self, plane: FakeControlPlane) -> None:
        super().__init__()
        self._plane = plane

    def write(self, text: str) -> int:
        if "no worker is free" in text:
            self._plane.release()
        return len(text)


def test_a_map_draws_what_it_waits_for(
    plane: FakeControlPlane, work: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", Releasing(plane))
    monkeypatch.setattr("levers9.sdk.progress.PATIENCE_S", 0.0)
    monkeypatch.setattr("levers9.sdk.mapping.EVERY_S", 0.01)
    plane.hold = True
    results = work.double.map(range(5), progress=True)
    plane.wait_until(lambda: len(plane.tasks) == 5)
    told = TasksProgressed(stub_id="stub-0", pending=5, running=0, containers=0, waiting_because="no worker is free")
    plane.tell(told)
    assert list(results) == [0, 2, 4, 6, 8]
