"""Fork servers: one process for each interpreter, started when first needed, started anew when it died."""

from __future__ import annotations

import array
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import trio

from ....errors import LeversError, Refused
from .leftovers import CONTAINER_MARK, MARK_CHARACTERS

_BUNDLE: Final = Path(__file__).resolve().parent.parent / "runner" / "start.py"
_LENGTH: Final = struct.Struct("<I")
_HELLO_WITHIN_S: Final = 30.0
_GONE_WITHIN_S: Final = 2.0


class ForkServer:
    """One fork server. `python` is its interpreter's version, such as "3.11"."""

    def __init__(self, connection: trio.socket.SocketType, python: str, pid: int) -> None:
        self._connection = connection
        self._lock = trio.Lock()
        self.python = python
        self.pid = pid
        self.alive = True

    async def fork(self, request: bytes, descriptors: tuple[int, ...]) -> None:
        """Have one keeper forked, which takes over copies of `descriptors`. Raises `LeversError` when it died."""
        async with self._lock:
            try:
                with trio.CancelScope(shield=True):  # half a request would spoil all that follow
                    await self._send(request, descriptors)
            except OSError as error:
                self.alive = False
                raise LeversError(f"the fork server is gone: {error}") from error

    async def _send(self, request: bytes, descriptors: tuple[int, ...]) -> None:
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors).tobytes())]
        data = _LENGTH.pack(len(request)) + request
        sent = await self._connection.sendmsg([data], passed)
        while sent < len(data):
            sent += await self._connection.send(data[sent:])


class ForkServers:
    """The fork servers of a worker."""

    def __init__(self, environment: dict[str, str], preload: tuple[str, ...] = ()) -> None:
        self._environment = environment
        self._preload = preload
        self._servers: dict[str, ForkServer] = {}
        self._locks: dict[str, trio.Lock] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the servers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def get(self, interpreter: str) -> ForkServer:
        """The server of an interpreter ("" is our own). Raises `Refused` when the interpreter cannot be started."""
        path = interpreter or sys.executable
        async with self._locks.setdefault(path, trio.Lock()):
            server = self._servers.get(path)
            if server is None or not server.alive:
                assert self._nursery is not None, "run() comes first"
                server = await self._nursery.start(self._serve, path)
                self._servers[path] = server
            return server

    async def _serve(self, path: str, *, task_status: trio.TaskStatus[ForkServer]) -> None:
        ours, theirs = socket.socketpair()
        with trio.socket.from_stdlib_socket(ours) as connection:
            with theirs:
                process = await self._open(path, theirs.fileno())
            try:
                server = ForkServer(connection, await self._greet(path, connection), process.pid)
                task_status.started(server)
                await process.wait()
                server.alive = False
            finally:
                connection.close()  # it ends when we go
                await _see_out(process)

    async def _open(self, path: str, descriptor: int) -> trio.Process:
        try:
            return await trio.lowlevel.open_process(
                [path, str(_BUNDLE), str(descriptor), *self._preload],
                pass_fds=(descriptor,),
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if _has_descriptor() else subprocess.DEVNULL,
                env=self._environment | {CONTAINER_MARK: " " * MARK_CHARACTERS},
                start_new_session=True,
            )
        except OSError as error:
            raise Refused(f"The interpreter {path} could not be started.", str(error), code="wrong_python") from error

    async def _greet(self, path: str, connection: trio.socket.SocketType) -> str:
        data = b""
        with trio.move_on_after(_HELLO_WITHIN_S):
            while len(data) < 4 or len(data) < 4 + _LENGTH.unpack(data[:4])[0]:
                piece = await connection.recv(4096)
                if not piece:
                    break
                data += piece
        if len(data) < 5:
            why = "It ended, or said nothing, while it loaded the runner."
            raise Refused(f"The interpreter {path} could not be used.", why, code="wrong_python")
        python, _ = msgspec.msgpack.decode(data[4:], type=tuple[str, str])
        return python


async def _see_out(process: trio.Process) -> None:
    with trio.CancelScope(shield=True):
        with trio.move_on_after(_GONE_WITHIN_S):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


def _has_descriptor() -> bool:
    try:
        os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return True
