"""Values to payloads and back, and exceptions to failures. Plain values go as msgpack, everything else as a pickle."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
import traceback
from types import ModuleType, TracebackType

from . import packing

MSGPACK, PICKLE = 0, 1
_TEXT_MAX = 64 << 10
_EXCEPTION_MAX_BYTES = 256 << 10
_modules: list[ModuleType] = []


class TooLarge(Exception):
    """A result is over the limit; built from the two sizes."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"The result has {size_bytes / 2**20:.0f} MiB; at most {limit_bytes / 2**20:.0f} MiB can be returned."
        )


class NotPicklable(Exception):
    """A result that does not survive a journey; built from what pickling said."""


def load_cloudpickle(vendored: str) -> None:
    """Load the interpreter's own cloudpickle, or the one in `vendored` where it has none: pickles name it."""
    try:
        module = importlib.import_module("cloudpickle.cloudpickle")
    except ImportError:
        sys.path.insert(0, vendored)
        try:
            module = importlib.import_module("cloudpickle.cloudpickle")
        finally:
            sys.path.remove(vendored)
    _modules[:] = [module]


def dumps(value: object) -> bytes:
    """A pickle that holds what is defined in `__main__` by value."""
    return _modules[0].dumps(value)


def pack(value: object, limit_bytes: int) -> tuple[int, bytes]:
    """Format and bytes of a result. Raises `TooLarge` or `NotPicklable`."""
    if value is None:
        return MSGPACK, b"\xc0"
    try:
        form, data = MSGPACK, packing.pack(value)
    except packing.NotPlain:
        form, data = PICKLE, _pickle_of(value)
    if len(data) > limit_bytes:
        raise TooLarge(len(data), limit_bytes)
    return form, data


def _pickle_of(value: object) -> bytes:
    try:
        return dumps(value)
    except Exception as error:
        raise NotPicklable(f"It is a {type(value).__name__}, and pickling it said: {error}.") from error


def unpack_call(form: int, data: bytes) -> tuple[list, dict]:
    """Arguments of a call: positional and by name."""
    if data == packing.EMPTY_CALL:
        return [], {}
    value = pickle.loads(data) if form == PICKLE else packing.unpack(data)
    positional, named = value
    return positional, named


def failure(error: BaseException, code: str = "exception", fix: str = "", what: str = "") -> bytes:
    """A failure as the wire has it: code, what, why, fix, the pickled exception, and the text of its traceback."""
    text = _traceback_text(error)
    summary = what or "".join(traceback.format_exception_only(type(error), error)).strip()
    fields: list[object] = [code, _cut(summary), _cut(str(error)) if what else "", fix, _pickled(error), text]
    return packing.pack(fields)


def _traceback_text(error: BaseException) -> str:
    frames = _without_ours(error.__traceback__)
    out = io.StringIO()
    traceback.TracebackException(type(error), error, frames).print(file=out)
    text = out.getvalue()
    shown = text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX // 2] + "\n  ...\n" + text[-_TEXT_MAX // 2 :]
    return _printable(shown)


def _without_ours(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_globals.get("__package__") == __package__:
        frames = frames.tb_next
    return frames


def _pickled(error: BaseException) -> bytes:
    """The exception, if it survives the journey; one that cannot be unpickled would only break its reader."""
    try:
        data = dumps(error)
        pickle.loads(data)
    except Exception:
        return b""
    return data if len(data) <= _EXCEPTION_MAX_BYTES else b""


def _cut(text: str) -> str:
    return _printable(text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + " ...")


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
