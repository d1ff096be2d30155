"""One container of the process runtime, from the worker's side."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from ....model.states import End
from ....wire.message import Failure, Payload
from ....wire.work import AttemptKey, AttemptOrder, AttemptResult
from . import framing
from .face import Exit, Revoked, Sink
from .judging import Evidence, judge
from .pipes import LogPipes

_READ_BYTES: Final = 256 << 10
_CLAIM_BYTES: Final = 64 << 10
_TREE_LEFT_S: Final = 2.0  # where the keeper itself was killed: its tree has this long to close its pipes


class ProcessContainer:
    """A tree held by a keeper. Calls go through the claim pipe (whose turn) and a socket (what arguments)."""

    def __init__(
        self,
        runner: socket.socket,
        keeper: socket.socket,
        claims: tuple[int, int],
        pipes: LogPipes,
        sink: Sink,
        memory_limit_bytes: int,
        end_rest: Callable[[], Awaitable[None]],
    ) -> None:
        runner.setblocking(False)
        keeper.setblocking(False)
        self._runner = runner
        self._keeper = keeper
        self._claims_out, self._claims_in = claims
        self._pipes = pipes
        self._sink = sink
        self._memory_limit_bytes = memory_limit_bytes
        self._end_rest = end_rest
        self._index = 0
        self._given: dict[int, AttemptKey] = {}
        self._frames = framing.FrameReader()
        self._unsent = bytearray()
        self._more = trio.Event()
        self._loaded = False
        self._load_failure: Failure | None = None
        self._status: int | None = None
        self._gone: tuple[bool, int] | None = None
        self._closed = False

    def give(self, orders: tuple[AttemptOrder, ...]) -> None:
        """Run these after those given before; of one that has ended its end is on its way, and says that none ran."""
        if self._closed:
            return
        calls: list[tuple[int, AttemptOrder]] = []
        for order in orders:
            self._index += 1
            key = AttemptKey(order.task_id, order.attempt)
            self._given[self._index] = key
            self._pipes.splitter.expect(self._index, key)
            calls.append((self._index, order))
        os.write(self._claims_in, framing.claims(index for index, _ in calls))
        self._write(framing.calls_frame(calls))

    def revoke(self, keys: frozenset[AttemptKey] | None) -> Revoked:
        """Take back those of `keys` (None: all) that have not started."""
        if self._closed:
            return Revoked(dropped=(), started=())
        unstarted = self._unclaimed()
        dropped = [index for index in unstarted if keys is None or self._given[index] in keys]
        left = [index for index in unstarted if index not in set(dropped)]
        if left:
            os.write(self._claims_in, framing.claims(left))
        if dropped:
            self._write(framing.dropped_frame(dropped))
        waiting = set(unstarted)
        started = tuple(key for index, key in self._given.items() if index not in waiting)
        return Revoked(dropped=tuple(self._given.pop(index) for index in dropped), started=started)

    def _unclaimed(self) -> tuple[int, ...]:
        try:
            return framing.claimed(os.read(self._claims_out, _CLAIM_BYTES))
        except BlockingIOError:
            return ()

    def terminate(self) -> None:
        """Ask the whole tree to end (SIGTERM)."""
        self._tell(b"T")

    def kill(self) -> None:
        """End the whole tree (SIGKILL)."""
        self._tell(b"K")

    def _tell(self, letter: bytes) -> None:
        try:
            self._keeper.send(letter)
        except OSError:  # it has ended; its report is on its way
            pass

    def _write(self, frame: bytes) -> None:
        sent = 0
        if not self._unsent:
            try:
                sent = self._runner.send(frame)
            except BlockingIOError:
                pass
            except OSError:  # it has ended; its keeper will say so
                return
        if sent < len(frame):
            self._unsent += frame[sent:]
            self._more.set()

    async def run(self) -> Exit:
        """See the container through to its end. Cancelling kills the tree and waits for that."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_rest)
                nursery.start_soon(self._pipes.read, 0)
                nursery.start_soon(self._pipes.read, 1)
                await self._read_results_and_end()
                nursery.cancel_scope.cancel(reason="the container has ended")
            return self._exit()
        except trio.Cancelled:
            await self._end_now()
            raise
        finally:
            self.close()

    async def _end_now(self) -> None:
        self.kill()
        with trio.CancelScope(shield=True), trio.move_on_after(_TREE_LEFT_S):
            await self._see_the_tree_end()

    async def _see_the_tree_end(self) -> None:
        await self._read_keeper()
        if self._gone is None:  # the keeper was killed, and could not end what it kept
            await self._end_rest()

    async def _read_results_and_end(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_results)
            await self._see_the_tree_end()
            nursery.cancel_scope.deadline = trio.current_time() + _TREE_LEFT_S

    async def _read_results(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._runner)
            try:
                data = self._runner.recv(_READ_BYTES)
            except BlockingIOError:
                continue
            except ConnectionError:
                return
            if not data:
                return
            self._handle(self._frames.feed(data))

    def _handle(self, frames: list[tuple[bytes, bytes]]) -> None:
        results: list[AttemptResult] = []
        for kind, body in frames:
            if kind == framing.LOADED:
                self._loaded = True
                self._sink.loaded()
            elif kind == framing.LOAD_FAILED:
                self._load_failure = framing.failure(body)
            else:
                self._pipes.drain()
                results += self._results(body)
        if results:
            self._sink.finished(tuple(results))

    def _results(self, body: bytes) -> list[AttemptResult]:
        found: list[AttemptResult] = []
        for outcome in framing.outcomes(body):
            self._pipes.close_lines(outcome.index)
            key = self._given.pop(outcome.index, None)
            if key is not None:
                found.append(_result(key, outcome, self._pipes.splitter.last_number(outcome.index)))
        return found

    async def _write_rest(self) -> None:
        while True:
            await self._more.wait()
            await trio.lowlevel.wait_writable(self._runner)
            try:
                del self._unsent[: self._runner.send(self._unsent)]
            except BlockingIOError:
                continue
            except OSError:
                return
            if not self._unsent:
                self._more = trio.Event()

    async def _read_keeper(self) -> None:
        text = b""
        while self._gone is None:
            await trio.lowlevel.wait_readable(self._keeper)
            try:
                data = self._keeper.recv(4096)
            except BlockingIOError:
                continue
            except ConnectionError:
                return
            if not data:
                return
            *lines, text = (text + data).split(b"\n")
            for line in lines:
                self._note(line.split())

    def _note(self, fields: list[bytes]) -> None:
        if fields[0] == b"E":
            self._status = int(fields[1])
        elif fields[0] == b"G":
            self._gone = (fields[1] == b"1", int(fields[2]))

    def _exit(self) -> Exit:
        self._pipes.drain()
        self._pipes.close_lines()
        out_of_memory, memory_bytes = self._gone or (False, 0)
        end, why = judge(
            Evidence(
                status=self._status,
                out_of_memory=out_of_memory,
                memory_bytes=memory_bytes,
                memory_limit_bytes=self._memory_limit_bytes,
                loaded=self._loaded,
                load_failure=self._load_failure,
            )
        )
        return Exit(end=end, why=why, started=self.revoke(None).started)

    def close(self) -> None:
        """Close our ends. Whatever still lives of the tree is ended by its keeper."""
        self._closed = True
        self._runner.close()
        self._keeper.close()
        os.close(self._claims_out)
        os.close(self._claims_in)
        self._pipes.close()


def _result(key: AttemptKey, outcome: framing.Outcome, last_log_line: int) -> AttemptResult:
    if outcome.ok:
        payload = Payload(outcome.format, outcome.data, "", len(outcome.data))
        end, result, failure = End.OK, payload, None
    else:
        end, result, failure = End.ERROR, None, framing.failure(outcome.data)
    return AttemptResult(key.task_id, key.attempt, end, True, result, failure, outcome.duration_s, last_log_line)
