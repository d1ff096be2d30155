"""The connection that decorated functions of this process use: one, made at the first call."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .config import Settings, resolve

if TYPE_CHECKING:
    from .connection import Connection, Dial

_lock = threading.Lock()
_current: Connection | None = None
_make: Callable[[], Connection] | None = None


def current() -> Connection:
    """The connection in use. A forked child gets its own, and so does a program whose connection has ended."""
    global _current
    connection = _current
    if connection is not None and connection.ended_by is None and connection.process_id == os.getpid():
        return connection
    with _lock:
        if _current is None or _current.ended_by is not None or _current.process_id != os.getpid():
            _current = _made()
        return _current


def use(make: Callable[[], Connection]) -> Callable[[], None]:
    """From now on use the connection that `make` makes. Returns what brings back the one before, which goes on."""
    global _current, _make
    with _lock:
        before = _current, _make
        _current, _make = None, make

    def restore() -> None:
        global _current, _make
        with _lock:
            _current, _make = before

    return restore


def connect(settings: Callable[[], Settings], dial: Dial | None = None) -> Connection:
    """A connection that is closed when the program ends."""
    from .connection import Connection

    connection = Connection(settings, dial)
    atexit.register(_end, connection)
    return connection


def _end(connection: Connection) -> None:
    mapping = sys.modules.get(f"{__package__}.mapping")
    if mapping is not None:  # a Ctrl-C between two results of a map left its calls behind
        mapping.interrupt_unfinished()
    connection.close()


def _made() -> Connection:
    return _make() if _make is not None else connect(resolve)


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()  # its holder was a thread of the parent


os.register_at_fork(after_in_child=_in_child)
