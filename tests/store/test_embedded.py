"""The embedded servers: made once, ready soon, and what was left from before is out of the way."""

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from levers9_test_servers import RunningServer, quick_folder

from levers9.errors import Refused
from levers9.store import embedded
from levers9.store.embedded import prepare_postgres, prepare_valkey, run_embedded_postgres, run_embedded_valkey
from levers9.store.operations import ListWorkspaces
from levers9.store.postgres import open_postgres
from levers9.store.redis import open_redis
from levers9.store.unprivileged import drop_prefix

from ..faults.controlplane import all_pids, command_of

pytestmark = pytest.mark.slow


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="levers9-", dir=quick_folder()) as made:
        yield Path(made)


async def test_both_run_until_cancelled_and_the_second_start_is_quick(folder: Path) -> None:
    for start in range(2):
        async with trio.open_nursery() as nursery:
            began = time.monotonic()
            with trio.fail_after(60):
                postgres = await nursery.start(run_embedded_postgres, folder / "data", folder / "run")
                valkey = await nursery.start(run_embedded_valkey, folder / "run")
            took_s = time.monotonic() - began
            async with open_postgres(postgres.url) as store, open_redis(valkey.url) as soft:
                assert await store.apply(ListWorkspaces()) == ((),)
                await soft.set("key", "value", 5.0)
                assert await soft.get("key") == "value"
            nursery.cancel_scope.cancel()
        assert start == 0 or took_s < 2.0
        assert not (folder / "data" / "postmaster.pid").exists()


def test_a_postmaster_left_from_before_is_stopped(folder: Path) -> None:
    first = RunningServer(prepare_postgres(folder / "data", folder / "run"))
    first.wait_until_ready()
    second = RunningServer(prepare_postgres(folder / "data", folder / "run"))
    second.wait_until_ready()
    assert first.process.poll() is not None
    second.stop()


def test_a_pid_that_is_another_process_by_now_is_forgotten(folder: Path) -> None:
    prepare_postgres(folder / "data", folder / "run")
    pid_file = folder / "data" / "postmaster.pid"
    sleeper = subprocess.Popen(["sleep", "60"])
    pid_file.write_text(f"{sleeper.pid}\n{folder / 'data'}\n")
    prepare_postgres(folder / "data", folder / "run")
    assert not pid_file.exists()
    assert sleeper.poll() is None
    sleeper.kill()
    sleeper.wait()


@pytest.fixture
def foreign(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of the account that Postgres runs as: to Postgres, its number in a lock is one that lives."""
    (folder / "foreign").mkdir()
    sleeper = subprocess.Popen([*drop_prefix(folder / "foreign"), "sleep", "60"])
    yield sleeper
    sleeper.kill()
    sleeper.wait()


def leave_locks(folder: Path, pid: int) -> None:
    """As a postmaster of this number leaves them that was killed."""
    text = f"{pid}\n{folder / 'data'}\n1796074237\n5432\n{folder / 'run' / 'postgres'}\n"
    for lock in (folder / "data" / "postmaster.pid", folder / "run" / "postgres" / ".s.PGSQL.5432.lock"):
        lock.write_text(text)


def test_a_socket_that_by_its_lock_is_of_another_process_by_now_is_taken(
    folder: Path, foreign: "subprocess.Popen[bytes]"
) -> None:
    prepare_postgres(folder / "data", folder / "run")
    leave_locks(folder, foreign.pid)
    server = RunningServer(prepare_postgres(folder / "data", folder / "run"))
    server.wait_until_ready()
    assert foreign.poll() is None
    server.stop()


def test_a_postmaster_that_ended_and_that_nobody_reaps_is_in_nobodys_way(
    folder: Path, foreign: "subprocess.Popen[bytes]"
) -> None:
    prepare_postgres(folder / "data", folder / "run")
    leave_locks(folder, foreign.pid)
    foreign.kill()
    os.waitid(os.P_PID, foreign.pid, os.WEXITED | os.WNOWAIT)
    server = RunningServer(prepare_postgres(folder / "data", folder / "run"))
    server.wait_until_ready()
    server.stop()


def test_a_run_directory_with_the_socket_of_another_postgres_is_refused_with_what_to_do(folder: Path) -> None:
    first = RunningServer(prepare_postgres(folder / "data", folder / "run"))
    first.wait_until_ready()
    with pytest.raises(Refused) as refused:
        prepare_postgres(folder / "other", folder / "run")
    assert f"(process {first.process.pid}, of {folder / 'data'})" in str(refused.value)
    assert "--run-dir" in refused.value.fix
    assert first.process.poll() is None
    first.stop()


def test_who_waits_for_another_start_on_the_same_data_can_be_stopped_and_does_not_wait_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def stop() -> None:
        looks.append("look")
        raise KeyboardInterrupt

    with (folder / "data.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(KeyboardInterrupt):
            prepare_postgres(folder / "data", folder / "run", go_on=stop)
        monkeypatch.setattr(embedded, "_LOCK_WAIT_S", 0.05)
        with pytest.raises(Refused, match="Another start"):
            prepare_postgres(folder / "data", folder / "run")
    assert looks == ["look"]


def test_a_stop_in_the_middle_of_initialising_leaves_nothing_running_and_the_next_start_is_well(folder: Path) -> None:
    def stop() -> None:
        if (folder / "data.new" / "PG_VERSION").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_postgres(folder / "data", folder / "run", go_on=stop)
    assert [command for pid in all_pids() if str(folder) in (command := command_of(pid))] == []
    prepare_postgres(folder / "data", folder / "run")
    assert (folder / "data" / "global").is_dir()


def test_a_folder_that_cannot_be_written_is_told_as_a_sentence(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "postgres").write_text("a file where a folder is to be")
    with pytest.raises(Refused, match=r"could not be prepared: .*File exists") as refused:
        prepare_postgres(folder / "data", folder / "run")
    assert "--state-dir" in refused.value.fix


def test_a_start_killed_while_initialising_is_made_good(folder: Path) -> None:
    (folder / "data.new").mkdir()
    (folder / "data.new" / "PG_VERSION").write_text("18\n")
    prepare_postgres(folder / "data", folder / "run")
    assert (folder / "data" / "global").is_dir()
    assert not (folder / "data.new").exists()


def test_a_folder_with_other_things_in_it_is_left_alone(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "thesis.txt").write_text("years of work")
    with pytest.raises(Refused, match="is not empty"):
        prepare_postgres(folder / "data", folder / "run")
    assert (folder / "data" / "thesis.txt").read_text() == "years of work"


def test_a_run_directory_too_deep_for_a_socket_is_refused(folder: Path) -> None:
    with pytest.raises(Refused, match="too long for a socket"):
        prepare_valkey(folder / ("deep" * 30))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another account")
def test_as_root_it_runs_as_another_account_even_in_a_closed_folder(folder: Path) -> None:
    folder.chmod(0o700)
    server = RunningServer(prepare_postgres(folder / "data", folder / "run"))
    server.wait_until_ready()
    owner = os.stat(f"/proc/{server.process.pid}").st_uid
    assert owner != 0
    assert folder.stat().st_mode & 0o777 == 0o700
    server.stop()
