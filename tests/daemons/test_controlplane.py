"""`levers9 controlplane` as a whole: what it writes on its standard error, and what it shows of its processes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from ..faults.controlplane import ControlPlane, running

pytestmark = pytest.mark.slow

COMES_BACK_WITHIN_S = 30.0
PROCESSES = {"root/postgres", "root/valkey", "root/brain", "root/gateway-0"}


def processes(plane: ControlPlane) -> dict[str, tuple[int, int]]:
    """The processes that inspect shows: how often each was started again, and its id."""
    headers = {"Authorization": f"Bearer {plane.token}"}
    request = urllib.request.Request(f"{plane.http_url}/api/v1/inspect", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        children = json.load(answer)["children"]
    return {child["path"]: (child["restarts"], child["process_id"]) for child in children if child["kind"] == "process"}


def test_inspect_shows_each_process_and_that_one_was_started_again(tmp_path: Path) -> None:
    with running(ControlPlane(tmp_path / "plane", workers=0)) as plane:
        plane.wait_for_token()
        killed = plane.valkey()
        ends_s = time.monotonic() + COMES_BACK_WITHIN_S
        while (shown := processes(plane)).get("root/valkey") != (0, killed):
            assert time.monotonic() < ends_s, shown
            time.sleep(0.1)
        assert set(shown) == PROCESSES
        assert shown["root/brain"] == (0, plane.brain())
        os.kill(killed, signal.SIGKILL)
        while (shown := processes(plane))["root/valkey"][0] != 1 or not shown["root/valkey"][1]:
            assert time.monotonic() < ends_s, shown
            time.sleep(0.1)
        assert shown["root/valkey"] == (1, plane.valkey())
    said = [json.loads(line) for line in plane.log.read_text().splitlines()]
    assert {line["process"] for line in said} == {"root", "postgres", "valkey", "brain", "gateway-0"}
    assert any(line["process"] == "root" and "root/valkey crashed" in line["event"] for line in said)


def test_on_a_terminal_the_lines_are_for_a_person(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        try:
            while data := os.read(ours, 4096):
                shown.extend(data)
        except OSError:
            return  # nobody has the other end open any more

    plane = ControlPlane(tmp_path / "plane", workers=0)
    plane.log = Path(os.ttyname(theirs))
    reader = threading.Thread(target=read)
    reader.start()
    try:
        with running(plane):
            plane.wait_for_token()  # a leader tells it
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    lines = shown.decode().splitlines()
    (leads,) = [line for line in lines if "\x1b[2mbrain:" in line and "we lead" in line]
    assert "event" not in leads
    assert any("\x1b[2mpostgres:" in line and "ready to accept" in line for line in lines)


def test_why_it_does_not_start_is_an_object_too(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    argv = [sys.executable, "-m", "levers9.daemons.controlplane", "--state-dir", str(tmp_path / "taken")]
    done = subprocess.run(argv, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    said = json.loads(done.stderr)
    assert (done.returncode, said["process"]) == (1, "root")
    assert "cannot be written" in said["event"]
