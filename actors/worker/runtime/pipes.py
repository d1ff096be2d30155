"""The worker's ends of a container's two log pipes: emptied now and then, and before each result."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Callable
from typing import Final

import trio

from ..logs import LogShipper, LogSplitter

PAUSE_S: Final = 0.05  # a pipe that just spoke is left alone this long: marks of short calls are read many at a time
_PIPE_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 20
_SET_PIPE_SIZE: Final = 1031  # F_SETPIPE_SZ


class LogPipes:
    """Two pipes, the splitter that gives their lines to calls, and the shipper that sends them."""

    def __init__(self, splitter: LogSplitter, shipper: LogShipper, unix_time: Callable[[], float]) -> None:
        self.splitter = splitter
        self._shipper = shipper
        self._unix_time = unix_time
        pairs = (os.pipe(), os.pipe())
        self._ends = tuple(read for read, _ in pairs)
        self.theirs = tuple(write for _, write in pairs)
        for end in self._ends:
            os.set_blocking(end, False)
            try:
                fcntl.fcntl(end, _SET_PIPE_SIZE, _PIPE_BYTES)
            except OSError:  # over the user's allowance; the default of 64 KiB does
                pass

    def close_theirs(self) -> None:
        """The container has its copies."""
        for end in self.theirs:
            os.close(end)

    def close(self) -> None:
        """Close our ends, after both `read` tasks have ended."""
        for end in self._ends:
            os.close(end)

    async def read(self, stream: int) -> None:
        """Read one pipe until nobody can write to it any more."""
        end = self._ends[stream]
        while True:
            await trio.lowlevel.wait_readable(end)
            count = self._read_once(stream)
            if count == 0:
                return
            if count < _PIPE_BYTES // 2:
                await trio.sleep(PAUSE_S)

    def _read_once(self, stream: int) -> int:
        """Bytes read; 0 at the end, -1 when there is nothing now."""
        try:
            data = os.read(self._ends[stream], _READ_BYTES)
        except BlockingIOError:
            return -1
        if data:
            self._shipper.add(self.splitter.feed(stream, data, self._unix_time()))
        return len(data)

    def drain(self) -> None:
        """Read what is in both pipes now: what a call wrote before it ended is there."""
        for stream, end in enumerate(self._ends):
            (waiting,) = struct.unpack("i", fcntl.ioctl(end, termios.FIONREAD, b"\0\0\0\0"))
            while waiting > 0:
                count = self._read_once(stream)
                if count <= 0:
                    break
                waiting -= count

    def close_lines(self, index: int | None = None) -> None:
        """Unfinished lines of the call with this index, or of any (None), are lines now."""
        self._shipper.add(self.splitter.close_lines(index, self._unix_time()))
