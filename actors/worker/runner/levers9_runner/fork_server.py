"""The fork server: one thread, no sockets but one, everything the runner needs already imported; it forks keepers.

It ends when the worker does: its socket closes. The keepers it forked see the end of their own sockets.
"""

from __future__ import annotations

# Imported here so that no container waits for them.
import asyncio  # noqa: F401
import concurrent.futures  # noqa: F401
import contextlib  # noqa: F401
import ctypes
import dataclasses  # noqa: F401
import gc
import importlib
import inspect  # noqa: F401
import json  # noqa: F401
import logging
import os
import random  # noqa: F401
import signal
import socket
import struct
import sys
import threading  # noqa: F401
import typing  # noqa: F401

from . import keeper, packing, request, serializing

_LENGTH = struct.Struct("<I")
_SET_CHILD_SUBREAPER = 36


def main(descriptor: int, preload: list[str]) -> None:
    """Serve the worker at the other end of `descriptor` until it goes."""
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    mark = Mark()
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # where a keeper is killed, what it kept comes to us
    bundle = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:] = [entry for entry in sys.path if entry and os.path.abspath(entry) != bundle]
    serializing.load_cloudpickle(os.path.join(bundle, "vendored"))
    for name in preload:
        try:
            importlib.import_module(name)
        except Exception:
            logging.getLogger(__name__).debug("not preloaded: %s", name, exc_info=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the keepers
    gc.collect()
    gc.freeze()
    hello = packing.pack([f"{sys.version_info[0]}.{sys.version_info[1]}", sys.version.split()[0]])
    connection.sendall(_LENGTH.pack(len(hello)) + hello)
    while _serve_one(connection, mark):
        pass


class Mark:
    """The place in this process's first environment where a container's name stands while its keeper is forked.

    The kernel shows that place of each descendant that calls no exec, in whatever session it is; others inherit the
    variable. The worker finds them by it where a keeper was killed (`runtime/leftovers.py`).
    """

    _NAME = "LEVERS9_CONTAINER_ID"

    def __init__(self) -> None:
        getenv = ctypes.CDLL(None).getenv
        getenv.restype = ctypes.c_void_p
        self._address = getenv(self._NAME.encode())
        self._size = len(os.environ.pop(self._NAME, ""))

    def write(self, name: str) -> None:
        """Mark this process; an empty name unmarks it."""
        if self._address:
            ctypes.memmove(self._address, name.encode()[: self._size].ljust(self._size), self._size)


def _serve_one(connection: socket.socket, mark: Mark) -> bool:
    head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, len(request.Descriptors._fields))
    if not head:
        return False
    head += _exactly(connection, _LENGTH.size - len(head))
    asked = request.decode(_exactly(connection, *_LENGTH.unpack(head)))
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    mark.write(asked.container_id)
    if os.fork() == 0:
        connection.close()
        keeper.keep(asked, request.Descriptors(*descriptors))
    mark.write("")
    for descriptor in descriptors:
        os.close(descriptor)
    return True


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise SystemExit(0)
        data += piece
    return bytes(data)
