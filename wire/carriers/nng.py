"""Carriers between processes of a host: nng's Pair0 over `ipc://`, driven by readiness and calls that never block.

One socket, one pipe, one carrier: when the pipe ends the carrier is over, and whatever comes next is a new socket, so
nothing of an earlier peer can arrive. The listening side greets; a dialler that was turned away (nng would show it a
pipe all the same) goes on knocking until it is greeted. pynng's `asend` and `arecv` are not used: a cancelled `asend`
leaks its message.
Never fork after the first socket.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

import pynng
import trio

from ...errors import BrokenByPeer, ClosedByUs
from ...model.figures import FRAME_MAX_BYTES, GOODBYE_WAIT_S
from ..carrier import CarrierStatistics, Counts

BUFFERED_FRAMES: Final = 16  # in each direction, in nng: keeps both ends busy, and bounds what a cut can lose
RECONNECT_MS: Final = 10  # a dial waits for its listener to appear, and looks this often …
RECONNECT_MAX_MS: Final = 100  # … and later this often
GREETING: Final = b"levers9/nng/1"

_closing = trio.CapacityLimiter(8)  # closing may block in nng: threads of its own, so that it starves nobody


class _Pipe(Protocol):
    @property
    def id(self) -> int: ...
    def close(self) -> None: ...


class _Socket(Protocol):
    """The few things of `pynng.Pair0` that are used; it has no types of its own."""

    recv_fd: int
    send_fd: int

    def send(self, data: bytes, block: bool) -> None: ...
    def recv(self, block: bool) -> bytes: ...
    def listen(self, address: str) -> object: ...
    def dial(self, address: str, *, block: bool) -> object: ...
    def close(self) -> None: ...
    def add_pre_pipe_connect_cb(self, callback: Callable[[_Pipe], None]) -> None: ...
    def add_post_pipe_connect_cb(self, callback: Callable[[_Pipe], None]) -> None: ...
    def add_post_pipe_remove_cb(self, callback: Callable[[_Pipe], None]) -> None: ...


@functools.cache
def _limit_threads() -> None:
    """Six threads a process instead of twelve; counts only before the first socket."""
    lib = cast(Any, pynng).lib
    for kind, count in (("TASK", 2), ("EXPIRE", 1), ("POLLER", 1)):
        lib.nng_init_set_parameter(getattr(lib, f"NNG_INIT_NUM_{kind}_THREADS"), count)
        lib.nng_init_set_parameter(getattr(lib, f"NNG_INIT_MAX_{kind}_THREADS"), count)
    lib.nng_init_set_parameter(lib.NNG_INIT_NUM_RESOLVER_THREADS, 1)


def set_options(socket: object, options: dict[str, int]) -> None:
    """Set each and read it back: pynng 0.9 swallows the errors of some. Raises `RuntimeError`."""
    for option, value in options.items():
        setattr(socket, option, value)
        taken = getattr(socket, option)
        if taken != value:
            raise RuntimeError(f"nng did not take {option}={value}; it has {taken}")


def _open_socket() -> _Socket:
    _limit_threads()
    socket = cast(Any, pynng).Pair0()
    set_options(
        socket,
        {
            "recv_max_size": FRAME_MAX_BYTES,
            "recv_buffer_size": BUFFERED_FRAMES,
            "send_buffer_size": BUFFERED_FRAMES,
            "reconnect_time_min": RECONNECT_MS,
            "reconnect_time_max": RECONNECT_MAX_MS,
        },
    )
    return cast(_Socket, socket)


class NngCarrier:
    """One end of a pipe. Made by `dial`, `listen` and `serve`."""

    ordered: Final = True

    def __init__(self) -> None:
        self._socket = _open_socket()
        self._receive_fd = self._socket.recv_fd
        self._send_fd = self._socket.send_fd
        self._counts = Counts("nng")
        self._latest: int | None = None
        self._pipe: int | None = None
        self._up = trio.Event()
        self._gone = trio.Event()
        self._over = False
        self._closed = False
        self._token = trio.lowlevel.current_trio_token()

    async def listen(self, url: str, started: Callable[[], None]) -> None:
        """Listen, call `started`, and wait for one peer, who is greeted."""
        self._watch_pipes(listening=True)
        try:
            self._socket.listen(url)
        except pynng.NNGException as error:
            await self.aclose()
            raise OSError(f"cannot listen on {url}: {error}") from error
        try:
            started()
            await self._up.wait()
            self._socket.send(GREETING, block=False)
        except BaseException:
            await self.aclose()
            raise

    async def dial(self, url: str) -> None:
        """Dial until somebody greets."""
        self._watch_pipes(listening=False)
        try:
            self._socket.dial(url, block=False)
            await self._receive_next()  # the greeting
            while self._latest is None:  # nng tells of a pipe after it has delivered from it
                self._up = trio.Event()
                await self._up.wait()
            self._pipe = self._latest
        except BaseException:
            await self.aclose()
            raise

    # These three run on a thread of nng's, where little is allowed.

    def _watch_pipes(self, *, listening: bool) -> None:
        def before(pipe: _Pipe) -> None:  # pragma: no cover - coverage does not see nng's threads
            if self._pipe is not None:
                pipe.close()

        def after(pipe: _Pipe) -> None:  # pragma: no cover
            if listening:
                self._pipe = pipe.id
            tell(self._token, self._pipe_up, pipe.id)

        self._socket.add_pre_pipe_connect_cb(before)
        self._socket.add_post_pipe_connect_cb(after)
        self._socket.add_post_pipe_remove_cb(lambda pipe: tell(self._token, self._pipe_down, pipe.id))

    def _pipe_up(self, pipe: int) -> None:
        self._latest = pipe
        self._up.set()

    def _pipe_down(self, pipe: int) -> None:
        self._latest = None if pipe == self._latest else self._latest
        if pipe == self._pipe and not self._closed:
            self._over = True
            self._wake()

    def _wake(self) -> None:
        trio.lowlevel.notify_closing(self._receive_fd)
        trio.lowlevel.notify_closing(self._send_fd)

    async def send(self, frame: bytes) -> None:
        """Hand a frame to nng; waits while 16 are there. Cancelled, it was not sent."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            self._check_open()
            if self._over:
                raise BrokenByPeer("the other process closed the pipe")
            try:
                self._socket.send(frame, block=False)
            except pynng.TryAgain:
                await self._wait(self._send_fd)
            else:
                self._counts.sent(frame)
                await trio.lowlevel.cancel_shielded_checkpoint()  # others run after the frame has left, not before
                return

    async def receive(self) -> bytes:
        """The next frame. What arrived before the pipe ended is still received."""
        frame = await self._receive_next()
        while frame == GREETING:
            frame = await self._receive_next()
        self._counts.received(frame)
        return frame

    async def _receive_next(self) -> bytes:
        await trio.lowlevel.checkpoint()
        while True:
            self._check_open()
            try:
                return self._socket.recv(block=False)
            except pynng.TryAgain:
                if self._over:
                    raise BrokenByPeer("the other process closed the pipe") from None
                await self._wait(self._receive_fd)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedByUs("the carrier was closed")

    async def _wait(self, fd: int) -> None:
        try:
            await trio.lowlevel.wait_readable(fd)
        except trio.ClosedResourceError:
            pass  # woken by `_wake`: the caller looks why

    async def aclose(self) -> None:
        """Close in a thread, for two seconds at most: nng has been seen to block there."""
        with trio.move_on_after(GOODBYE_WAIT_S, shield=True):
            if self._closed:
                await self._gone.wait()
                return
            self._closed = True
            self._wake()
            await trio.to_thread.run_sync(self._socket.close, abandon_on_cancel=True, limiter=_closing)
        self._gone.set()

    def watch_peer(self, changed: Callable[[], None]) -> bool:
        """A process that stands still keeps its pipe: only heartbeats tell."""
        return False

    def peer_heard(self) -> bool:
        """Not known."""
        return False

    def statistics(self) -> CarrierStatistics:
        """Counts since the pipe came up."""
        return self._counts.statistics()


def tell(token: trio.lowlevel.TrioToken, told: Callable[..., object], *details: int) -> None:
    """Hop from nng's thread to Trio's."""
    try:
        token.run_sync_soon(told, *details)
    except trio.RunFinishedError:
        pass  # the socket outlived the run, and nobody is left to be told


async def dial(url: str) -> NngCarrier:
    """Dial `ipc://PATH`, and wait until somebody there is free for us."""
    carrier = NngCarrier()
    await carrier.dial(url)
    return carrier


async def listen(url: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> NngCarrier:
    """Listen on `ipc://PATH`, started once it can be dialled; wait for one peer. Raises `OSError` when it is taken."""
    carrier = NngCarrier()
    await carrier.listen(url, task_status.started)
    return carrier


async def serve(
    url: str,
    handler: Callable[[NngCarrier], Awaitable[None]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Take one peer after the other on `ipc://PATH`, until cancelled; each carrier is closed when `handler` returns."""
    while True:
        carrier = await listen(url, task_status=task_status)
        task_status = trio.TASK_STATUS_IGNORED
        try:
            await handler(carrier)
        finally:
            await carrier.aclose()
