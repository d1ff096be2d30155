"""The runner: one process that loads the person's function and runs its calls, one after another.

Which call is next comes through a pipe of 4-byte indexes that the worker can read as well: whoever reads an index owns
the call, so that a call the worker took back never starts. Arguments come, and results go, through a socket.
"""

from __future__ import annotations

import atexit
import io
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time

from . import frames, loading, serializing
from .request import Descriptors, Request

_CLAIM = struct.Struct("<I")
FLUSH_S = 0.002  # while more calls wait, results leave this often


class Ending(SystemExit):
    """The tree was asked to end: raised where the person's code runs, so that its `finally` blocks do."""


def run(request: Request, descriptors: Descriptors) -> int:
    """Run the container in this freshly forked process and return its exit status."""
    connection = _take_over(request, descriptors)
    runner = Runner(request, connection, descriptors.claims)
    signal.signal(signal.SIGTERM, runner.on_terminate)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # the keeper blocked it until here
    code = 0
    try:
        runner.run()
    except SystemExit:
        code = 128 + signal.SIGTERM
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _take_over(request: Request, descriptors: Descriptors) -> socket.socket:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(descriptors.stdout, 1)
    os.dup2(descriptors.stderr, 2)
    kept = {0, 1, 2, descriptors.runner, descriptors.claims}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # the one that listed the folder
                pass
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, request.open_files)
    _limit(resource.RLIMIT_NPROC, request.processes)
    sys.stdout = sys.__stdout__ = _text(1)
    sys.stderr = sys.__stderr__ = _text(2)
    os.environ.clear()
    os.environ.update(request.env)
    sys.argv[:] = [request.handler]
    if request.code_path:
        folders = request.env.get("LEVERS9_IMPORT_FOLDERS", "").split(":")  # of the code, relative: the caller's own
        sys.path[:0] = [request.code_path, *(os.path.join(request.code_path, one) for one in folders if one)]
        os.chdir(request.code_path)
    return socket.socket(fileno=descriptors.runner)


def _text(descriptor: int) -> io.TextIOWrapper:
    """A fresh writer: the fork server's own thinks of what its descriptor was."""
    raw = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _limit(kind: int, wanted: int) -> None:
    if wanted < 0:
        return
    _, hard = resource.getrlimit(kind)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(kind, (allowed, hard if kind == resource.RLIMIT_NOFILE else allowed))


class Runner:
    """Calls in, results out."""

    def __init__(self, request: Request, connection: socket.socket, claims: int) -> None:
        self._request = request
        self._claims = claims
        self._inbox = frames.Inbox(connection)
        self._outbox = Outbox(connection)
        self._poll = select.poll()
        self._poll.register(claims, select.POLLIN)
        self._interruptible = False
        self._ending = False
        self._process = os.getpid()

    def on_terminate(self, *_: object) -> None:
        """Leave the person's code, or the wait for the next call; between the two the loop looks for itself."""
        self._ending = True
        if self._interruptible:
            self._interruptible = False
            raise Ending(128 + signal.SIGTERM)

    def run(self) -> None:
        """Load, then run calls until the worker has no more for us."""
        function = self._load()
        if function is None:
            return
        try:
            while not self._ending:
                index = self._next_index()
                if index is None:
                    break
                self._run_one(function, index)
        finally:
            self._outbox.flush()

    def _load(self) -> loading.Function | None:
        try:
            self._interruptible = True
            if self._ending:
                raise Ending(128 + signal.SIGTERM)
            function = loading.load(self._request.handler, self._request.function)
            self._interruptible = False
        except Ending:
            raise
        except BaseException as error:
            self._interruptible = False
            what = f"{self._request.handler} could not be loaded."
            self._outbox.send(frames.LOAD_FAILED, serializing.failure(error, "load", what=what))
            return None
        self._outbox.send(frames.LOADED, b"")
        return function

    def _next_index(self) -> int | None:
        while True:
            try:
                claim = os.read(self._claims, _CLAIM.size)
            except BlockingIOError:
                self._outbox.flush()
                self._wait()
                continue
            return _CLAIM.unpack(claim)[0] if claim else None

    def _wait(self) -> None:
        self._interruptible = True
        if self._ending:
            raise Ending(128 + signal.SIGTERM)
        self._poll.poll()
        self._interruptible = False

    def _run_one(self, function: loading.Function, index: int) -> None:
        self._interruptible = True
        call = self._inbox.call(index)
        self._interruptible = False
        self._mark(index)
        environ = os.environ
        environ["LEVERS9_TASK_ID"] = call.task_id
        environ["LEVERS9_ATTEMPT"] = str(call.attempt)
        if call.rank0:
            environ["LEVERS9_RANK0_ADDRESS"] = call.rank0
            host, _, environ["MASTER_PORT"] = call.rank0.rpartition(":")
            environ["MASTER_ADDR"] = host.strip("[]")  # of an IPv6 address, which libraries take bare
        began = time.monotonic()
        outcome, form, data = self._outcome(function, call)
        ended = time.monotonic()
        if os.getpid() != self._process:  # the person's code forked, and its child came back here
            os._exit(0)
        sys.stdout.flush()
        sys.stderr.flush()
        if not (self._ending and outcome != frames.OK):
            self._outbox.add(frames.result(index, outcome, form, ended - began, data), ended)

    def _mark(self, index: int) -> None:
        mark = b"%s%d\n" % (self._request.marker, index)
        os.write(1, mark)
        os.write(2, mark)

    def _outcome(self, function: loading.Function, call: frames.Call) -> tuple[int, int, bytes]:
        try:
            self._interruptible = True
            positional, named = serializing.unpack_call(call.form, call.data)
            value = function(*positional, **named)
            form, data = serializing.pack(value, self._request.payload_max_bytes)
            self._interruptible = False
        except serializing.TooLarge as error:
            self._interruptible = False
            fix = "Write it to a Volume, and return its path."
            return frames.ERROR, 0, serializing.failure(error, "too_large", fix, "The result is too large.")
        except serializing.NotPicklable as error:
            self._interruptible = False
            fix = "Return plain values, or what it can be made from again; write large things to files."
            return frames.ERROR, 0, serializing.failure(error, "invalid", fix, "The result cannot be pickled.")
        except BaseException as error:
            self._interruptible = False
            return frames.ERROR, 0, serializing.failure(error)
        return frames.OK, form, data


class Outbox:
    """Results on their way. While calls wait they leave together, every 2 ms; a thread sends what a call holds up."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._records: list[bytes] = []
        self._lock = threading.Lock()
        self._last_s = 0.0
        self._armed: threading.Event | None = None

    def send(self, kind: bytes, body: bytes) -> None:
        """Send one frame now."""
        with self._lock:
            self._connection.sendall(frames.frame(kind, body))

    def add(self, record: bytes, now_s: float) -> None:
        """Take a result; it leaves at once if none has left lately, and within milliseconds in any case."""
        with self._lock:
            self._records.append(record)
            if now_s - self._last_s >= FLUSH_S:
                self._flush_locked()
                return
        if self._armed is None:
            self._armed = threading.Event()
            threading.Thread(target=self._flush_later, name="levers9-results", daemon=True).start()
        self._armed.set()

    def flush(self) -> None:
        """Send what there is."""
        if self._records:
            with self._lock:
                self._flush_locked()

    def _flush_locked(self) -> None:
        if self._records:
            records, self._records = self._records, []
            self._connection.sendall(frames.frame(frames.RESULTS, b"".join(records)))
            self._last_s = time.monotonic()

    def _flush_later(self) -> None:
        assert self._armed is not None
        while True:
            self._armed.wait()
            self._armed.clear()
            time.sleep(FLUSH_S)
            self.flush()
