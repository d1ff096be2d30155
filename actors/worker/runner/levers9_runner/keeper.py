"""The keeper of one container: it starts the runner, and ends the whole tree when told to or when the worker is gone.

Its socket to the worker carries single letters in: `T` asks the tree to end, `K` ends it. The end of the socket is `K`.
Lines go out: `E STATUS` when the runner has exited, then `G OOM MEMORY` when nothing of the tree is left.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import traceback

from . import cgroups, running, tree
from .request import Descriptors, Request

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)
_KILL_AGAIN_S = 0.01


def keep(request: Request, descriptors: Descriptors) -> None:
    """Run the container to its end; never returns."""
    code = 1
    try:
        os.setsid()
        _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        Keeper(request, descriptors).run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class Keeper:
    """One tree and its end."""

    def __init__(self, request: Request, descriptors: Descriptors) -> None:
        self._request = request
        self._socket = socket.socket(fileno=descriptors.keeper)
        self._status: int | None = None
        self._asked_to_end = False
        self._ending = False
        self._out_of_memory = False
        self._memory_bytes = 0
        self._group = cgroups.Cgroup([], False)
        if request.use_cgroup:
            self._group = cgroups.make(request.container_id, request.memory_bytes, request.cpu_milli)
        self._watches = bool(request.memory_bytes) and not self._group.limits_memory
        self._wake, wake_end = os.pipe()
        for end in (self._wake, wake_end):
            os.set_blocking(end, False)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # what comes before the runner can hear it waits
        self._runner = self._fork(descriptors)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        for descriptor in descriptors[:4]:
            os.close(descriptor)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)

    def _fork(self, descriptors: Descriptors) -> int:
        keeper = os.getpid()
        runner = os.fork()
        if runner == 0:
            code = 1
            try:
                os.setsid()
                _libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() == keeper:
                    self._group.join()
                    code = running.run(self._request, descriptors)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        return runner

    def run(self) -> None:
        """Watch until nothing of the tree is left."""
        while self._reap():
            if self._status is not None and not self._asked_to_end:
                self._ending = True
            if self._ending:
                tree.kill_all(os.getpid())
            self._look()
            self._watch_memory()
        out_of_memory = self._out_of_memory or self._killed_for_memory()
        memory_bytes = self._memory_bytes or self._group.peak_bytes()
        self._group.remove()
        self._tell(f"G {int(out_of_memory)} {memory_bytes}\n")

    def _killed_for_memory(self) -> bool:
        killed = (
            self._status is not None and os.WIFSIGNALED(self._status) and os.WTERMSIG(self._status) == signal.SIGKILL
        )
        return killed and self._group.oom_kills() > 0

    def _reap(self) -> bool:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._runner:
                self._status = status
                self._tell(f"E {status}\n")

    def _look(self) -> None:
        wait_s = _KILL_AGAIN_S if self._ending else self._request.watch_s if self._watches else None
        for descriptor, _ in self._poll.poll(None if wait_s is None else wait_s * 1000):
            if descriptor == self._wake:
                os.read(self._wake, 4096)
            else:
                self._obey(self._read())

    def _read(self) -> bytes:
        try:
            return self._socket.recv(64)
        except OSError:
            return b""

    def _obey(self, letters: bytes) -> None:
        if not letters:  # the worker is gone
            self._poll.unregister(self._socket)
        if not letters or b"K" in letters:
            self._ending = True
        elif b"T" in letters:
            self._asked_to_end = True
            tree.send(tree.descendants(os.getpid()), signal.SIGTERM)

    def _watch_memory(self) -> None:
        if not self._watches or self._ending:
            return
        held = tree.memory_bytes(os.getpid(), self._request.memory_bytes)
        if held > self._request.memory_bytes:
            self._out_of_memory = self._ending = True
            self._memory_bytes = held

    def _tell(self, line: str) -> None:
        try:
            self._socket.sendall(line.encode())
        except OSError:  # the worker is gone
            pass
