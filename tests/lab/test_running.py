"""Starting and ending labs, where something is in the way."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from levers9.errors import Refused
from levers9.lab.folder import MARK_VARIABLE, DaemonMark, LabFolder, LabSettings, lab_folder, write_whole
from levers9.lab.marks import kill_marked, marked, signal_exactly
from levers9.lab.running import end_lab, is_running, start_lab
from levers9.lab.talk import AskStatus, ask
from levers9.process_identity import start_ticks


@pytest.fixture
def folder(tmp_path: Path) -> LabFolder:
    return LabFolder(tmp_path / "lab")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that carries the mark of the lab `one`."""
    process = subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK_VARIABLE: "one"}, start_new_session=True)
    yield process
    process.kill()
    process.wait()


def programs(folder: Path, script: str) -> dict[str, str]:
    """A control plane each of whose programs is this shell script."""
    program = folder / "etcd"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return dict.fromkeys(("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"), str(program))


def test_a_lab_lies_where_the_variable_says_else_in_the_state_folder() -> None:
    assert lab_folder({"LEVERS9_LAB_DIR": "/x"}).path == Path("/x")
    assert lab_folder({"XDG_STATE_HOME": "/s"}).path == Path("/s/levers9/lab")
    assert lab_folder({"HOME": "/h"}).path == Path("/h/.local/state/levers9/lab")


def test_its_folder_is_for_its_owner_alone(folder: LabFolder) -> None:
    folder.create()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    write_whole(folder.kubeconfig(), b"secret")
    assert folder.kubeconfig().stat().st_mode & 0o777 == 0o600


def test_without_a_lab_every_question_says_how_to_start_one(folder: LabFolder) -> None:
    with pytest.raises(Refused, match="levers9 lab up"):
        ask(folder, AskStatus())
    assert not end_lab(folder)
    folder.create()
    with pytest.raises(Refused, match="levers9 lab up"):
        ask(folder, AskStatus())


def test_a_second_lab_in_the_same_folder_is_refused(folder: LabFolder) -> None:
    folder.create()
    mark = DaemonMark(os.getpid(), start_ticks(os.getpid()) or 0)
    write_whole(folder.daemon_file, msgspec.json.encode(mark))
    with pytest.raises(Refused, match="runs here already"):
        start_lab(folder, LabSettings(lab_id="two"), print)
    folder.daemon_file.unlink()


def test_another_process_with_the_number_of_a_dead_lab_is_no_lab_and_is_left_alone(
    folder: LabFolder, sleeper: subprocess.Popen[bytes]
) -> None:
    folder.create()
    ticks = start_ticks(sleeper.pid) or 0
    write_whole(folder.daemon_file, msgspec.json.encode(DaemonMark(sleeper.pid, ticks - 1)))
    assert not is_running(folder)
    end_lab(folder)
    signal_exactly(sleeper.pid, ticks - 1, signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        sleeper.wait(0.1)


def test_what_a_killed_lab_has_left_is_killed_and_its_files_go(
    folder: LabFolder, sleeper: subprocess.Popen[bytes]
) -> None:
    folder.create()
    write_whole(folder.settings_file, msgspec.json.encode(LabSettings(lab_id="one")))
    assert [pid for pid, _ in marked(MARK_VARIABLE, "one")] == [sleeper.pid]
    assert end_lab(folder)
    assert sleeper.wait(5) == -signal.SIGKILL
    assert [path.name for path in folder.path.iterdir()] in ([], ["lock"])


def test_processes_of_another_lab_are_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    kill_marked(MARK_VARIABLE, "on")
    kill_marked(MARK_VARIABLE, "one-more")
    with pytest.raises(subprocess.TimeoutExpired):
        sleeper.wait(0.1)


@pytest.mark.slow
def test_a_control_plane_that_does_not_start_says_what_it_said_last(folder: LabFolder, tmp_path: Path) -> None:
    settings = LabSettings(lab_id="broken", binaries=programs(tmp_path, "echo the disk is full\nexit 1"))
    with pytest.raises(Refused, match="the disk is full"):
        start_lab(folder, settings, lambda words: None)
    assert not folder.settings_file.exists()
    assert not list(marked(MARK_VARIABLE, "broken"))


@pytest.mark.slow
def test_a_lab_that_does_not_become_ready_is_ended_and_says_what_its_programs_said_last(
    folder: LabFolder, tmp_path: Path
) -> None:
    binaries = programs(tmp_path, "echo waiting for a quorum\nexec sleep 1000")
    settings = LabSettings(lab_id="stands", binaries=binaries)
    with pytest.raises(Refused, match="waiting for a quorum") as caught:
        start_lab(folder, settings, lambda words: None, within_s=3.0)
    assert caught.value.what == "The lab did not become ready, and was ended."
    assert not folder.settings_file.exists()
    assert not list(marked(MARK_VARIABLE, "stands"))


@pytest.mark.slow
def test_a_lab_that_is_interrupted_while_it_starts_leaves_nothing(folder: LabFolder, tmp_path: Path) -> None:
    binaries = programs(tmp_path, "exec sleep 1000")
    program = (
        "import sys, msgspec; from pathlib import Path\n"
        "from levers9.lab.folder import LabFolder, LabSettings; from levers9.lab.running import start_lab\n"
        "settings = msgspec.json.decode(sys.argv[2], type=LabSettings)\n"
        "try: start_lab(LabFolder(Path(sys.argv[1])), settings, lambda words: print(words, flush=True))\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    settings = msgspec.json.encode(LabSettings(lab_id="hangs", binaries=binaries)).decode()
    argv = [sys.executable, "-P", "-c", program, str(folder.path), settings]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Starting etcd")
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"
    assert not list(marked(MARK_VARIABLE, "hangs"))
    assert not folder.settings_file.exists()
