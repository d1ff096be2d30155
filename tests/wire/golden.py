"""Writes the bytes of messages that have none yet into `golden.json`; what stands there is never written anew.

Run it after a new message: `python tests/wire/golden.py`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import inspect as types

from levers9.wire.codec import MESSAGES, Envelope, pack, pack_batch
from levers9.wire.control import StopAsked

PATH: Final = Path(__file__).with_suffix(".json")


def readable(thing: msgspec.Struct) -> object:
    """All that a message says, as plain values; an envelope's payload as text."""
    if isinstance(thing, Envelope):
        return [value if isinstance(value, (str, float)) else bytes(value).hex() for value in _values(thing)]
    return msgspec.to_builtins(thing)


def bytes_of(thing: msgspec.Struct) -> bytes:
    """As it goes over the wire."""
    return pack_batch((thing,)) if isinstance(thing, Envelope) else bytes(pack(thing))  # type: ignore[arg-type]


def _values(thing: msgspec.Struct) -> Iterator[object]:
    return (getattr(thing, name) for name in thing.__struct_fields__)


def _struct(info: types.StructType, numbers: Iterator[int]) -> msgspec.Struct:
    values = {field.name: _value(field.type, field.name, numbers, field.default) for field in info.fields}
    made: msgspec.Struct = info.cls(**values)
    return made


def _value(info: types.Type, name: str, numbers: Iterator[int], default: object = None) -> object:
    """A value of this type that no default is."""
    number = next(numbers)
    match info:
        case types.StructType():
            return _struct(info, numbers)
        case types.EnumType():
            return list(info.cls)[-1]
        case types.BoolType():
            return not default
        case types.UnionType():
            return _value(next(one for one in info.types if not isinstance(one, types.NoneType)), name, numbers)
        case types.VarTupleType():
            return tuple(_value(info.item_type, name, numbers) for _ in range(2))
        case types.DictType():
            return {str(_value(info.key_type, name, numbers)): _value(info.value_type, name, numbers)}
        case types.TupleType():
            return tuple(_value(item, name, numbers) for item in info.item_types)
        case types.RawType():
            return pack(StopAsked(reason="golden"))
    plain: dict[type, object] = {
        types.StrType: f"{name}-{number}",
        types.IntType: 1000 + number,
        types.FloatType: number + 0.5,
        types.BytesType: bytes((0, number % 256, 255)),
    }
    return plain[type(info)]


def main() -> None:
    """Add what is missing."""
    known = json.loads(PATH.read_text()) if PATH.exists() else {}
    for kind in (*MESSAGES, Envelope):
        if kind.__name__ not in known:
            info = types.type_info(kind)
            assert isinstance(info, types.StructType)
            made = _struct(info, itertools.count(1))
            known[kind.__name__] = {"bytes": bytes_of(made).hex(), "says": readable(made)}
    lines = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(known.items()))
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
