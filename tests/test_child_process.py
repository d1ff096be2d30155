"""Processes as children. They are real: these tests take real time, in tens of milliseconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from levers9 import child_process
from levers9.child_process import AtOnce, ProcessChild, Program, Readiness, ReadyFd, ReadyLine, ReadyWhen
from levers9.errors import ChildFailed
from levers9.supervisor import Backoff, ChildSpec, Supervisor
from levers9.wire.mailbox import Mailbox

pytestmark = pytest.mark.slow
DEADLINE_S = 20
QUICK = Backoff(min_s=0.01, max_s=0.01)


READY = ReadyLine("ready")


def sh(script: str, ready: Readiness = READY, stop_s: float = 10.0) -> Program:
    return Program(argv=("/bin/sh", "-c", script), ready=ready, stop_s=stop_s)


class Child:
    """A process with what it wrote."""

    def __init__(self, program: Program) -> None:
        self.lines: list[str] = []
        self.process = ProcessChild(program, on_line=self.lines.append)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self.process(Mailbox("x"), task_status=task_status)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        """Run it until the block ends; gives its process id once it is ready."""
        with trio.fail_after(DEADLINE_S):
            async with trio.open_nursery() as nursery:
                await nursery.start(self._start)
                yield self.process.process_id
                nursery.cancel_scope.cancel()

    async def _start(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self.run(task_status=task_status)


def is_alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until_gone(process_id: int) -> None:
    with trio.fail_after(DEADLINE_S):
        while is_alive(process_id):  # noqa: ASYNC110  # it is not our child, so that nothing tells
            await trio.sleep(0.01)


async def test_it_is_ready_when_it_writes_the_line_and_its_output_is_passed_on() -> None:
    child = Child(sh("echo one; echo ready to go; exec sleep 60"))
    async with child.running() as process_id:
        assert child.lines == ["one", "ready to go"]
        assert is_alive(process_id)
    assert not is_alive(process_id)
    assert child.process.process_id == 0


async def test_it_is_ready_when_it_writes_to_the_descriptor_it_was_given() -> None:
    child = Child(sh('sleep 0.05; echo before; echo x > "/dev/fd/$LEVERS9_READY_FD"; exec sleep 60', ReadyFd()))
    async with child.running():
        assert child.lines == ["before"]


async def test_a_descriptor_that_is_closed_without_a_word_says_nothing() -> None:
    script = "import os, time; os.close(int(os.environ['LEVERS9_READY_FD'])); time.sleep(0.05); os._exit(4)"
    child = Child(Program(argv=(sys.executable, "-S", "-c", script), ready=ReadyFd()))
    with trio.fail_after(DEADLINE_S), pytest.raises(ChildFailed, match="it exited with 4"):
        await child.run()


async def test_it_is_ready_when_whoever_asks_it_says_so(tmp_path: Path) -> None:
    async def until_there() -> None:
        while not (tmp_path / "up").exists():  # noqa: ASYNC110  # another process has no event for us
            await trio.sleep(0.01)

    async with Child(sh(f"sleep 0.05; touch {tmp_path}/up; exec sleep 60", ReadyWhen(until_there))).running():
        assert (tmp_path / "up").exists()


async def test_it_may_be_ready_at_once() -> None:
    async with Child(sh("exec sleep 60", AtOnce())).running() as process_id:
        assert is_alive(process_id)


async def test_an_exit_with_nothing_wrong_is_a_return() -> None:
    child = Child(sh("echo last words"))
    with trio.fail_after(DEADLINE_S):
        await child.run()
    assert child.lines == ["last words"]


@pytest.mark.parametrize(
    ("script", "why"),
    [("exit 3", "it exited with 3"), ("kill -9 $$", "it was ended by SIGKILL"), ("kill -40 $$", "ended by signal 40")],
)
async def test_any_other_exit_is_a_failure(script: str, why: str) -> None:
    with trio.fail_after(DEADLINE_S), pytest.raises(ChildFailed, match=why):
        await Child(sh(script)).run()


async def test_a_program_that_is_not_there_says_so() -> None:
    child = Child(Program(argv=("/no/such/program",)))
    with trio.fail_after(DEADLINE_S), pytest.raises(ChildFailed, match="it exited with 1"):
        await child.run()
    assert child.lines == ["/no/such/program can't be started: [Errno 2] No such file or directory"]


@pytest.mark.parametrize("ready", [AtOnce(), ReadyFd()])
async def test_a_fork_that_fails_is_a_failure(ready: AtOnce | ReadyFd, tmp_path: Path) -> None:
    program = Program(argv=("/bin/true",), cwd=str(tmp_path / "missing"), ready=ready)
    with pytest.raises(ChildFailed, match="it can't be started"):
        await Child(program).run()


async def test_each_life_is_prepared_anew(tmp_path: Path) -> None:
    lives: list[int] = []

    async def prepare() -> Program:
        lives.append(len(lives))
        return Program(
            argv=("/bin/sh", "-c", f"test $N -eq {len(lives)}"), env={"N": str(len(lives))}, cwd=str(tmp_path)
        )

    process = ProcessChild(prepare)
    with trio.fail_after(DEADLINE_S):
        for _ in range(2):
            await process(Mailbox("x"), task_status=trio.TASK_STATUS_IGNORED)
    assert lives == [0, 1]


async def test_its_output_goes_to_the_log_by_default(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "levers9.process")
    with trio.fail_after(DEADLINE_S):
        await ProcessChild(sh("echo hello"))(Mailbox("x"), task_status=trio.TASK_STATUS_IGNORED)
    assert [record.getMessage().partition("] ")[2] for record in caplog.records] == ["hello"]


async def test_long_lines_and_a_last_line_without_an_end_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_LINE_MAX_BYTES", 10)
    child = Child(sh("printf 'abc\\ndefghijklmnop'; sleep 0.1; printf 'end'"))
    with trio.fail_after(DEADLINE_S):
        await child.run()
    assert child.lines == ["abc", "defghijklmnop", "end"]


# --- The end ---------------------------------------------------------------------------------------------------------


async def test_it_is_asked_to_end_and_its_last_words_are_heard() -> None:
    child = Child(sh("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done"))
    async with child.running():
        pass
    assert child.lines == ["ready", "bye"]


async def test_what_does_not_end_in_time_is_killed() -> None:
    child = Child(sh("trap '' TERM; echo ready; while :; do sleep 0.01; done", stop_s=0.1))
    async with child.running() as process_id:
        began_s = trio.current_time()
    assert not is_alive(process_id)
    assert 0.1 <= trio.current_time() - began_s < 5


async def test_what_it_leaves_behind_in_its_group_is_killed(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/left; exit 7"
    with trio.fail_after(DEADLINE_S), pytest.raises(ChildFailed):
        await Child(sh(script)).run()
    await until_gone(int((tmp_path / "left").read_text(encoding="ascii")))


async def test_who_holds_its_output_open_from_another_group_does_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "_DRAIN_S", 0.05)
    away = f"setsid sh -c 'echo $$ > {tmp_path}/left; exec sleep 60' &"
    child = Child(sh(f"{away} until test -s {tmp_path}/left; do sleep 0.01; done; exit 0"))
    with trio.fail_after(DEADLINE_S):
        await child.run()
    left = int((tmp_path / "left").read_text(encoding="ascii"))
    assert is_alive(left)
    os.kill(left, signal.SIGKILL)


async def test_where_the_kernel_has_no_pidfd_it_is_looked_at_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    child = Child(sh("echo ready; sleep 0.1; exit 5"))
    with trio.fail_after(DEADLINE_S), pytest.raises(ChildFailed, match="exited with 5"):
        await child.run()


async def test_where_the_kernel_can_not_tie_it_it_runs_untied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with trio.fail_after(DEADLINE_S), pytest.raises(ChildFailed, match="it can't be started"):
        await Child(Program(argv=("/no/such/program",))).run()


PARENT = """
import sys, trio
from levers9.child_process import ProcessChild, Program, ReadyLine
from levers9.wire.mailbox import Mailbox
class Say:
    def started(self, value=None): print(child.process_id, flush=True)
tie = __import__("signal").SIGKILL if sys.argv[1] == "tied" else None
program = Program(argv=("/bin/sh", "-c", "echo ready; exec sleep 60"), ready=ReadyLine("ready"), dies_with_us=tie)
child = ProcessChild(program)
async def main():
    await child(Mailbox("x"), task_status=Say())
trio.run(main)
"""


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
async def test_a_tied_process_dies_with_a_parent_that_is_killed_and_another_lives_on(tied: bool) -> None:
    parent = subprocess.Popen(  # noqa: ASYNC220  # a parent that is to be killed, not a child that is waited for
        [sys.executable, "-c", PARENT, "tied" if tied else "untied"], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout as output:
        process_id = int(await trio.to_thread.run_sync(output.readline))
    await trio.sleep(0.05)
    assert is_alive(process_id)
    parent.kill()
    parent.wait()
    if tied:
        await until_gone(process_id)
    else:
        await trio.sleep(0.2)
        assert is_alive(process_id)
        os.kill(process_id, signal.SIGKILL)


async def test_a_process_that_is_killed_comes_back_and_the_tree_shows_it() -> None:
    child = Child(sh("echo ready; exec sleep 60"))
    supervisor = Supervisor("root", [ChildSpec("postgres", child.process, address="", backoff=QUICK)])

    async def run(task_status: trio.TaskStatus[None]) -> None:
        await supervisor.run(task_status=task_status)

    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(run)
            first = supervisor.inspect()[1]
            assert (first.kind, first.state, is_alive(first.process_id)) == ("process", "running", True)
            os.kill(first.process_id, signal.SIGKILL)
            while (again := supervisor.inspect()[1]).restarts == 0 or again.state != "running":  # noqa: ASYNC110
                await trio.sleep(0.01)
            assert again.process_id not in (0, first.process_id)
            assert again.last_failure == "ChildFailed: /bin/sh: it was ended by SIGKILL"
            supervisor.stop()
    assert not is_alive(again.process_id)
