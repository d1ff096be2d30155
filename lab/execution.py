"""`kubectl exec`: a command beside a container's process, over Kubernetes' WebSocket channels."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from typing import Final

import msgspec
import trio
import trio_websocket

from ..child_process import Program, tied, wait_for_exit
from .container import Setting

V5: Final = "v5.channel.k8s.io"
_PROTOCOLS: Final = (V5, "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_PIECE_BYTES: Final = 32 << 10
_DRAIN_S: Final = 0.5
_CLOSE_S: Final = 1.0
# Runs in the new process: its terminal becomes the one that signals of keys come from.
_TERMINAL: Final = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


class ExecCall(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, where, and which of its streams somebody wants."""

    argv: tuple[str, ...]
    setting: Setting
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class _Cause(msgspec.Struct, frozen=True):
    reason: str
    message: str


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...]


class ExecStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a command ended, as the last message on the error channel."""

    status: str
    metadata: dict[str, str] = {}
    reason: str = ""
    message: str = ""
    details: _Details | None = None


def status_of(exit_code: int) -> ExecStatus:
    """Success, or the exit code as kubectl reads it."""
    if exit_code == 0:
        return ExecStatus(status="Success")
    return ExecStatus(
        status="Failure",
        reason="NonZeroExitCode",
        message=f"command terminated with non-zero exit code: exit status {exit_code}",
        details=_Details((_Cause("ExitCode", str(exit_code)),)),
    )


class _Size(msgspec.Struct, frozen=True):
    width: int = msgspec.field(default=80, name="Width")
    height: int = msgspec.field(default=24, name="Height")


class _ReadAgain(trio.abc.Stream):
    """A stream of which the first bytes have been read already."""

    def __init__(self, stream: trio.abc.Stream, head: bytes) -> None:
        self._stream = stream
        self._head = head

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._head:
            await trio.lowlevel.checkpoint()
            head, self._head = self._head, b""
            return head
        return bytes(await self._stream.receive_some(max_bytes))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def serve_exec(stream: trio.abc.Stream, head: bytes, call: ExecCall) -> None:
    """Shake hands, run the command, and say how it ended. When the caller goes, the command is killed."""
    async with trio.open_nursery() as nursery:
        request = await trio_websocket.wrap_server_stream(nursery, _ReadAgain(stream, head))
        chosen = next((each for each in _PROTOCOLS if each in request.proposed_subprotocols), None)
        connection = await request.accept(subprotocol=chosen)
        try:
            await _Session(connection, call).run()
        finally:
            with trio.move_on_after(_CLOSE_S, shield=True):
                await connection.aclose()
            nursery.cancel_scope.cancel(reason="the call is over")


class _Session:
    def __init__(self, connection: trio_websocket.WebSocketConnection, call: ExecCall) -> None:
        self._connection = connection
        self._call = call

    async def run(self) -> None:
        try:
            process, ends = _start(self._call)
        except OSError as error:
            words = f"exec: {self._call.argv[:1]}: {error.strerror}"
            await self._say(ExecStatus(status="Failure", reason="InternalError", message=words))
            return
        try:
            await self._attend(process, ends)
        finally:
            _kill(process)
            if ends.terminal >= 0:
                os.close(ends.terminal)
        await self._say(status_of(process.returncode if process.returncode >= 0 else 128 - process.returncode))

    async def _attend(self, process: subprocess.Popen[bytes], ends: _Ends) -> None:
        async with trio.open_nursery() as outer:
            outer.start_soon(self._hear, ends)
            async with trio.open_nursery() as reading:
                for channel, descriptor in ((_STDOUT, ends.stdout), (_STDERR, ends.stderr)):
                    if descriptor >= 0:
                        reading.start_soon(self._tell, channel, descriptor)
                await wait_for_exit(process)
                reading.cancel_scope.deadline = trio.current_time() + _DRAIN_S
            outer.cancel_scope.cancel(reason="the command has ended")

    async def _tell(self, channel: int, descriptor: int) -> None:
        wanted = self._call.stdout if channel == _STDOUT else self._call.stderr
        async with trio.lowlevel.FdStream(descriptor) as stream:
            while data := await _receive(stream):
                if wanted:
                    await self._connection.send_message(bytes((channel,)) + data)

    async def _hear(self, ends: _Ends) -> None:
        stdin = trio.lowlevel.FdStream(ends.stdin) if ends.stdin >= 0 else None
        try:
            while True:
                message = await self._connection.get_message()
                data = message.encode() if isinstance(message, str) else bytes(message)
                if data[:1] == bytes((_RESIZE,)):
                    _resize(ends.terminal, data[1:])
                elif data[:1] == bytes((_STDIN,)) and stdin is not None and data[1:]:
                    await _send(stdin, data[1:])
                elif data == bytes((_CLOSE, _STDIN)) and stdin is not None:
                    await stdin.aclose()
                    stdin = None
        finally:
            if stdin is not None:
                with trio.CancelScope(shield=True):  # closing a pipe doesn't wait
                    await stdin.aclose()

    async def _say(self, status: ExecStatus) -> None:
        await self._connection.send_message(bytes((_ERROR,)) + msgspec.json.encode(status))


class _Ends(msgspec.Struct, frozen=True, kw_only=True):
    """Our ends of a command's streams, -1 for none; `terminal` is for its size."""

    stdin: int
    stdout: int
    stderr: int
    terminal: int = -1


def _start(call: ExecCall) -> tuple[subprocess.Popen[bytes], _Ends]:
    return _start_on_terminal(call) if call.tty else _start_on_pipes(call)


def _start_on_pipes(call: ExecCall) -> tuple[subprocess.Popen[bytes], _Ends]:
    process = subprocess.Popen(
        _argv(call),
        env=call.setting.environment,
        cwd=call.setting.folder,
        stdin=subprocess.PIPE if call.stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    found = [os.dup(pipe.fileno()) if pipe else -1 for pipe in (process.stdin, process.stdout, process.stderr)]
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    return process, _Ends(stdin=found[0], stdout=found[1], stderr=found[2])


def _start_on_terminal(call: ExecCall) -> tuple[subprocess.Popen[bytes], _Ends]:
    ours, theirs = os.openpty()
    try:
        process = subprocess.Popen(
            _argv(call),
            env={"TERM": "xterm", **call.setting.environment},
            cwd=call.setting.folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return process, _Ends(stdin=os.dup(ours), stdout=os.dup(ours), stderr=-1, terminal=ours)


def _argv(call: ExecCall) -> tuple[str, ...]:
    argv = (sys.executable, "-I", "-S", "-c", _TERMINAL, *call.argv) if call.tty else call.argv
    return tied(Program(argv=argv))


def _resize(terminal: int, data: bytes) -> None:
    if terminal < 0:
        return
    size = msgspec.json.decode(data, type=_Size)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.height, size.width, 0, 0))


async def _receive(stream: trio.lowlevel.FdStream) -> bytes:
    try:
        return bytes(await stream.receive_some(_PIECE_BYTES))
    except trio.BrokenResourceError:
        return b""  # a terminal whose other side is closed says so


async def _send(stream: trio.lowlevel.FdStream, data: bytes) -> None:
    try:
        await stream.send_all(data)
    except trio.BrokenResourceError:
        return  # it doesn't read any more


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Nothing of its group is left; it is not reaped before, so that the id is still its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
