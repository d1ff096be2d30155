"""A worker's process over a real WebSocket: it reports, runs, leaves when asked, and ends with its root."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from levers9.actors.worker.meeting import own_address
from levers9.daemons.worker import main, parse
from levers9.errors import ConfigError
from levers9.model.ids import Chance
from levers9.model.resources import Capacity, Shape
from levers9.wire.carrier import Carrier
from levers9.wire.carriers import websocket
from levers9.wire.client import StubSpec
from levers9.wire.letter import Letter, open_envelope, seal
from levers9.wire.link import Acceptor, Link, Received
from levers9.wire.message import Message, Payload
from levers9.wire.scheduling import ContainerReady, StartContainer, WorkerLeaving, WorkerReported
from levers9.wire.work import AttemptOrder, AttemptsFinished, RunAttempts

DROP_FROM_BOUNDING_SET, MAY_TRACE = 24, 19
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


class Gateway:
    """Takes a worker's stream, notes what it hears, and speaks."""

    def __init__(self) -> None:
        self.acceptor = Acceptor(chance=Chance(1))
        self.heard: list[Message] = []
        self.link: Link | None = None
        self.news = trio.Event()
        self.port = 0

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.acceptor.run)
            self.port = await nursery.start(partial(websocket.serve, "127.0.0.1", 0, self.handle))
            task_status.started()

    async def handle(self, request: websocket.RequestInfo, carrier: Carrier) -> None:

        await self.acceptor.serve(carrier, name="worker/w1", on_link=self.on_link)

    async def on_link(self, link: Link) -> None:
        self.link = link
        while True:
            event = await link.next_event()
            if isinstance(event, Received):
                self.heard += [open_envelope(envelope).message for envelope in event.envelopes]
                self.news.set()
                self.news = trio.Event()

    async def say(self, *messages: Message) -> None:
        assert self.link is not None
        await self.link.send(*(seal(Letter(one, source="tasks", target="worker/w1"), Chance()) for one in messages))

    async def until(self, kind: type[Message]) -> Message:
        with trio.fail_after(20):
            while True:
                found = [message for message in self.heard if isinstance(message, kind)]
                if found:
                    return found[-1]
                await self.news.wait()


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


async def run_a_call(gateway: Gateway, env: tuple[tuple[str, str], ...] = ()) -> bytes:
    await gateway.until(WorkerReported)
    shape = Shape(cpu_milli=100, memory_mib=256)
    spec = StubSpec(
        app="a",
        name="n",
        kind="job",
        handler="mod:function",
        code_key="",
        python=PYTHON,
        shape=shape,
        timeout_s=60,
        retries=0,
        env=env,
    )
    await gateway.say(StartContainer(container_id="c1", stub_id="s", workspace_id="ws", spec=spec))
    await gateway.until(ContainerReady)
    order = AttemptOrder("t1", 1, Payload("msgpack", b"\x92\x90\x80"), 60.0)
    await gateway.say(RunAttempts(container_id="c1", attempts=(order,)))
    finished = await gateway.until(AttemptsFinished)
    assert isinstance(finished, AttemptsFinished)
    assert finished.results[0].result is not None
    return finished.results[0].result.data


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
