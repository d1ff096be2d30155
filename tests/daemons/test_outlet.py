"""What a root says is written by a thread of its own."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import pytest

from levers9.daemons import outlet
from levers9.daemons.outlet import Outlet

_F_SETPIPE_SZ = 1031
PIPE_BYTES = 4096


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, _F_SETPIPE_SZ, PIPE_BYTES)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def test_lines_arrive_in_order_before_its_context_ends(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    with Outlet(writing) as said:
        said.say("levers9 runs.")
        said.say("Ctrl-C stops it.")
    assert os.read(reading, PIPE_BYTES) == b"levers9 runs.\nCtrl-C stops it.\n"


def test_who_says_something_goes_on_though_nobody_reads_and_what_is_left_out_is_told(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = pipe
    monkeypatch.setattr(outlet, "LINES_MAX", 2)
    os.write(writing, b"x" * PIPE_BYTES)
    said = Outlet(writing)
    said.say("one")
    assert not said.flush(0.05)
    for line in ("two", "three", "four", "five"):
        said.say(line)
    os.read(reading, PIPE_BYTES)
    assert said.flush(5.0)
    assert os.read(reading, PIPE_BYTES) == b"one\ntwo\nthree\n(2 lines are left out here: nobody read along.)\n"


def test_a_reader_that_is_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with Outlet(writing) as said:
        said.say("to nobody")
        assert said.flush(5.0)
    os.close(writing)


def test_an_outlet_that_was_never_used_has_nothing_to_wait_for() -> None:
    assert Outlet(1).flush(0.0)
