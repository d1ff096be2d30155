"""Values to bytes and back. Plain values travel as msgpack and keep their exact types; everything else is pickled.

Plain means: exactly None, bool, int of 64 bits, float, str, bytes, and lists and dicts (with str keys) of those. A
tuple, a set, an array or an instance of a class is not plain, because it would not come back as what it was.
"""

from __future__ import annotations

import importlib
import io
import operator
import pickle
import sys
from typing import Final, Protocol

import cloudpickle
import msgspec

from ..errors import INVALID, TOO_LARGE, LeversError, Refused
from ..model.blobs import blob_key
from ..model.figures import INLINE_MAX_BYTES, PAYLOAD_MAX_BYTES
from ..wire.message import Payload

MSGPACK: Final = "msgpack"
PICKLE: Final = "pickle"
_PROTOCOL: Final = 5  # every Python from 3.8 on reads it
_DEPTH: Final = 64  # deeper values are pickled, which also takes care of those that contain themselves
_SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes})
_STRINGS: Final = frozenset({str})
_encoder: Final = msgspec.msgpack.Encoder()


class Objects(Protocol):
    """Where values go that are too large for a message."""

    def put(self, key: str, data: bytes) -> None:
        """Store one object; storing it again changes nothing."""

    def get(self, key: str) -> bytes:
        """The bytes of one object. Raises `Refused` when it is not there."""


def pack_call(arguments: tuple[object, ...], keywords: dict[str, object], main_name: str = "") -> tuple[str, bytes]:
    """The format and the bytes of one call. `main_name` is the module that `__main__` is known by where the call runs.

    Raises `Refused` naming the argument that cannot be pickled.
    """
    listed = list(arguments)
    plain = _plainly([listed, keywords])
    if plain is not None:
        return MSGPACK, plain
    try:
        return PICKLE, pickled((arguments, keywords), main_name)
    except Exception as error:  # an edge to the person's code: their objects pickle themselves, and may raise anything
        raise _unpicklable(arguments, keywords, main_name, error) from error


def payload(format: str, data: bytes, objects: Objects) -> Payload:
    """A payload for a message; data beyond 512 KiB goes to the object store. Raises `Refused` beyond 256 MiB."""
    size = len(data)
    if size <= INLINE_MAX_BYTES:
        return Payload(format, data, "", size)
    refuse_too_large("The arguments of this call are", size)
    key = blob_key(data)
    objects.put(key, data)
    return Payload(format, b"", key, size)


def refuse_too_large(what: str, size_bytes: int) -> None:
    """Raises `Refused` with the sizes when this is more than one object may hold; `what` begins the sentence."""
    if size_bytes > PAYLOAD_MAX_BYTES:
        raise Refused(
            f"{what} {size_bytes / 2**20:,.1f} MiB.",
            f"The limit is {PAYLOAD_MAX_BYTES >> 20} MiB.",
            "Put the data where workers can read it and pass its path, or split it.",
            TOO_LARGE,
        )


def unpack_result(packed: Payload, objects: Objects) -> object:
    """The value of a result. Raises `Refused` when its object is gone, or when it cannot be unpickled here."""
    data = objects.get(packed.object_key) if packed.object_key else packed.data
    if packed.format == MSGPACK:
        value: object = msgspec.msgpack.decode(data)
        return value
    try:
        return unpickled(data)
    except Exception as error:  # an edge to the person's code: their classes unpickle themselves
        raise Refused(
            f"The result of the task cannot be unpickled here: {error!r}.",
            "It needs a module or a class that this program does not have.",
            "Install the same packages here, or return plain values.",
            INVALID,
        ) from error


def is_plain(value: object, depth: int = 0) -> bool:
    """Whether msgpack brings the value back as exactly what it is."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if depth >= _DEPTH:
        return False
    if kind is list:
        assert isinstance(value, list)
        return _all_plain(value, depth)
    if kind is dict:
        assert isinstance(value, dict)
        return set(map(type, value)) <= _STRINGS and _all_plain(list(value.values()), depth)
    return False


def _all_plain(values: list[object], depth: int) -> bool:
    if set(map(type, values)) <= _SCALARS:  # at the speed of C: long lists of numbers are what people send
        return True
    return all(is_plain(value, depth + 1) for value in values)


def _plainly(value: object) -> bytes | None:
    if not is_plain(value):
        return None
    try:
        return _encoder.encode(value)
    except (OverflowError, ValueError):  # an int beyond 64 bits, a str with a lone surrogate
        return None


class _Module:
    """Unpickles as the imported module of this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return importlib.import_module, (self._name,)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Cloudpickle, but what a script defines in `__main__` is looked up in the module the script is known by remotely.

    Else a class would arrive as a copy of itself, and `isinstance` in the person's own code would be false.
    """

    def __init__(self, file: io.BytesIO, main_name: str) -> None:
        super().__init__(file, protocol=_PROTOCOL)
        self._main_name = main_name

    def reducer_override(self, value: object) -> object:
        if self._main_name and getattr(value, "__module__", "") == "__main__":
            name = getattr(value, "__qualname__", "")
            if isinstance(name, str) and name and _defined_in_main(name) is value:
                return operator.attrgetter(name), (_Module(self._main_name),)
        return super().reducer_override(value)


def pickled(value: object, main_name: str = "") -> bytes:
    """The pickle of a value; see `pack_call` for `main_name`."""
    with io.BytesIO() as file:
        _Pickler(file, main_name).dump(value)
        return file.getvalue()


def unpickled(data: bytes) -> object:
    """The value in a pickle."""
    value: object = pickle.loads(data)
    return value


def _defined_in_main(qualified: str) -> object:
    try:
        return operator.attrgetter(qualified)(sys.modules["__main__"])
    except AttributeError:
        return None


def _unpicklable(
    arguments: tuple[object, ...], keywords: dict[str, object], main_name: str, error: Exception
) -> LeversError:
    named = [(f"Argument {place}", value) for place, value in enumerate(arguments, 1)]
    named += [(f"Argument {name!r}", value) for name, value in keywords.items()]
    culprit = next((f"{name}, a {type(value).__name__}," for name, value in named if _fails(value, main_name)), None)
    return Refused(
        f"{culprit or 'An argument'} cannot be pickled: {error}.",
        "Open files, locks, connections and generators live in one process only.",
        "Pass what it is made from (a path, a URL, a list), and make it inside the function.",
        INVALID,
    )


def _fails(value: object, main_name: str) -> bool:
    try:
        pickled(value, main_name)
    except Exception:  # an edge to the person's code: whatever it raises, this is the value that cannot be pickled
        return True
    return False
