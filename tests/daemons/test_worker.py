"""A worker's process over a real WebSocket: it reports, runs, leaves when asked, and ends with its root."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
import trio

from levers9.actors.worker.meeting import own_address
from levers9.daemons.worker import main, parse
from levers9.errors import ConfigError
from levers9.model.resources import Capacity
from levers9.wire.scheduling import WorkerLeaving, WorkerReported

from .worker_plane import Gateway, run_a_call

DROP_FROM_BOUNDING_SET, MAY_TRACE = 24, 19


@contextlib.asynccontextmanager
async def a_worker(
    tmp_path: Path, *more: str, before: Callable[[], None] | None = None
) -> AsyncIterator[tuple[Gateway, trio.Process]]:
    gateway = Gateway()
    async with trio.open_nursery() as nursery:
        await nursery.start(gateway.serve)
        argv = [sys.executable, "-m", "levers9.daemons.worker", "--id", "w1", "--pool", "p", "--epoch", "3"]
        argv += ["--url", f"ws://127.0.0.1:{gateway.port}", "--http-url", "http://127.0.0.1:9"]
        argv += ["--state-dir", str(tmp_path / "state"), "--cpu-milli", "500", "--memory-mib", "700", *more]
        token, token_in = os.pipe()
        os.write(token_in, b"secret-token")
        os.close(token_in)
        argv += ["--token-fd", str(token)]
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        log = tmp_path / "worker.log"
        with log.open("wb") as output:
            process = await trio.lowlevel.open_process(
                argv,
                cwd=tmp_path,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(token,),
                preexec_fn=before,
            )
        os.close(token)
        try:
            yield gateway, process
        finally:
            if process.returncode is None:
                process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()
            nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_worker_reports_runs_a_call_and_leaves_when_asked(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("import os\ndef function():\n    return os.environ['LEVERS9_CONTROLPLANE_PORT']\n")
    async with a_worker(tmp_path) as (gateway, process):
        answer = msgspec.msgpack.decode(await run_a_call(gateway))
        report = await gateway.until(WorkerReported)
        assert answer == str(gateway.port)
        process.send_signal(signal.SIGTERM)
        await gateway.until(WorkerLeaving)
        with trio.fail_after(10):
            assert await process.wait() == 0
    assert isinstance(report, WorkerReported)
    assert (report.epoch, report.capacity) == (3, Capacity(cpu_milli=500, memory_mib=700))


@pytest.mark.slow
async def test_a_worker_and_its_containers_end_when_the_root_is_gone(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("import os\ndef function():\n    return os.getpid()\n")
    root = await trio.lowlevel.open_process(["sleep", "60"])
    try:
        async with a_worker(tmp_path, "--root-pid", str(root.pid)) as (gateway, process):
            runner = msgspec.msgpack.decode(await run_a_call(gateway), type=int)
            root.kill()
            with trio.fail_after(10):
                await process.wait()
        assert not os.path.exists(f"/proc/{runner}/cmdline")  # noqa: ASYNC240 - it is no disk
    finally:
        root.kill()
        await root.wait()


def as_an_ordinary_user() -> None:
    """Root may look into every process; from the next exec on this one may not, though it is still root's."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(DROP_FROM_BOUNDING_SET, MAY_TRACE, 0, 0, 0)


PEEKS = """
import ctypes, glob, os
def peek(pattern):
    for path in glob.glob(pattern):
        try:
            with open(path, "rb") as file:
                if b"secret-token" in file.read():
                    yield path
        except OSError:
            pass
def function():
    found = [path for name in ("environ", "cmdline") for path in peek(f"/proc/[0-9]*/{name}")]
    worker = int(os.environ["OF_WORKER"])
    for place in ("mem", "fd/0"):
        try:
            open(f"/proc/{worker}/{place}", "rb").close()
            found.append(place)
        except PermissionError:
            pass
    return found
"""


@pytest.mark.slow
async def test_a_job_of_the_same_user_cannot_read_the_worker_s_token(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text(PEEKS)
    async with a_worker(tmp_path, before=as_an_ordinary_user) as (gateway, process):
        found = msgspec.msgpack.decode(await run_a_call(gateway, (("OF_WORKER", str(process.pid)),)))
    assert found == []


def test_whoever_starts_a_worker_by_hand_is_told_who_does_that(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Workers are started by the pools" in capsys.readouterr().err


def test_a_token_that_cannot_be_read_is_told_apart(tmp_path: Path) -> None:
    words = ["--id", "w", "--url", "ws://h", "--http-url", "http://h", "--state-dir", "s"]
    with pytest.raises(ConfigError, match="file not-here cannot be read"):
        parse([*words, "--token-file", "not-here"])
    with pytest.raises(ConfigError, match="descriptor 987 cannot be read"):
        parse([*words, "--token-fd", "987"])


def test_a_token_is_read_from_a_file_or_a_descriptor(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x\n")
    words = ["--id", "w", "--url", "ws://a", "--url", "ws://b", "--http-url", "http://h", "--state-dir", "s"]
    config = parse([*words, "--token-file", str(tmp_path / "token")])
    assert (config.token, config.urls) == ("x", ("ws://a", "ws://b"))
    end, write_end = os.pipe()
    os.write(write_end, b"y")
    os.close(write_end)
    assert parse([*words, "--token-fd", str(end)]).token == "y"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(end)


def test_a_worker_beside_its_root_is_reached_over_loopback_and_another_by_its_own_address(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    words = ["--id", "w", "--url", "ws://a", "--http-url", "http://h", "--state-dir", "s"]
    words += ["--token-file", str(tmp_path / "token")]
    assert parse([*words, "--root-pid", "1"]).host == "127.0.0.1"
    assert parse(words).host == own_address()
    assert parse([*words, "--root-pid", "1", "--advertise-host", "10.0.0.7"]).host == "10.0.0.7"
