"""A small msgpack writer and reader for plain values. Whatever else there is travels as a pickle, so types survive."""

from __future__ import annotations

import struct

EMPTY_CALL = b"\x92\x90\x80"  # [[], {}]
_DEEPEST = 64


class NotPlain(Exception):
    """The value holds something that msgpack would not bring back as it was."""


def pack(value: object) -> bytes:
    """Bytes of None, bool, 64-bit int, float, str, bytes, list, dict with str keys; raises `NotPlain` for others."""
    if value is None:
        return b"\xc0"
    out = bytearray()
    _write(out, value, 0)
    return bytes(out)


def _write(out: bytearray, value: object, depth: int) -> None:  # noqa: C901 - one case a type
    if depth > _DEEPEST:
        raise NotPlain("nested too deeply")
    kind = type(value)
    if value is None:
        out.append(0xC0)
    elif kind is bool:
        out.append(0xC3 if value else 0xC2)
    elif kind is int:
        _write_int(out, value)
    elif kind is float:
        out += struct.pack(">Bd", 0xCB, value)
    elif kind is str:
        _write_str(out, value)
    elif kind is bytes:
        out += _head(len(value), None, 0, 0xC4, 0xC5, 0xC6)
        out += value
    elif kind is list:
        out += _head(len(value), 0x90, 15, None, 0xDC, 0xDD)
        for item in value:
            _write(out, item, depth + 1)
    elif kind is dict:
        _write_dict(out, value, depth)
    else:
        raise NotPlain(kind.__name__)


def _write_int(out: bytearray, value: int) -> None:
    if -32 <= value <= 127:
        out += struct.pack("b" if value < 0 else "B", value)
    elif -(2**63) <= value < 2**63:
        out += struct.pack(">Bq", 0xD3, value)
    else:
        raise NotPlain("int beyond 64 bits")


def _write_str(out: bytearray, value: str) -> None:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise NotPlain("str with lone surrogates") from None
    out += _head(len(data), 0xA0, 31, 0xD9, 0xDA, 0xDB)
    out += data


def _write_dict(out: bytearray, value: dict, depth: int) -> None:
    out += _head(len(value), 0x80, 15, None, 0xDE, 0xDF)
    for key, item in value.items():
        if type(key) is not str:
            raise NotPlain("dict with keys other than str")
        _write_str(out, key)
        _write(out, item, depth + 1)


def _head(length: int, fix: int | None, fix_max: int, one: int | None, two: int, four: int) -> bytes:
    if fix is not None and length <= fix_max:
        return bytes((fix | length,))
    if one is not None and length < 1 << 8:
        return struct.pack(">BB", one, length)
    if length < 1 << 16:
        return struct.pack(">BH", two, length)
    if length < 1 << 32:
        return struct.pack(">BI", four, length)
    raise NotPlain("longer than 4 GiB")


def unpack(data: bytes) -> object:
    """The value in `data`. Raises ValueError for anything that is not one whole msgpack value."""
    try:
        value, end = _read(data, 0)
    except (IndexError, struct.error):
        raise ValueError("msgpack data ends too early") from None
    if end != len(data):
        raise ValueError("msgpack data goes on after its value")
    return value


_NUMBERS = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_LENGTHS = {1: struct.Struct(">B"), 2: struct.Struct(">H"), 4: struct.Struct(">I")}
_SIZED = {
    0xC4: ("bytes", 1), 0xC5: ("bytes", 2), 0xC6: ("bytes", 4),
    0xD9: ("str", 1), 0xDA: ("str", 2), 0xDB: ("str", 4),
    0xDC: ("list", 2), 0xDD: ("list", 4),
    0xDE: ("dict", 2), 0xDF: ("dict", 4),
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def _read(data: bytes, at: int) -> tuple[object, int]:
    tag = data[at]
    at += 1
    if tag <= 0x7F:
        return tag, at
    if tag >= 0xE0:
        return tag - 0x100, at
    if tag <= 0x8F:
        return _read_dict(data, at, tag & 0x0F)
    if tag <= 0x9F:
        return _read_list(data, at, tag & 0x0F)
    if tag <= 0xBF:
        return _read_str(data, at, tag & 0x1F)
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], at
    number = _NUMBERS.get(tag)
    if number is not None:
        return number.unpack_from(data, at)[0], at + number.size
    return _read_sized(data, at, tag)


def _read_sized(data: bytes, at: int, tag: int) -> tuple[object, int]:
    if tag not in _SIZED:
        raise ValueError(f"msgpack tag {tag:#x} is not a plain value")
    kind, width = _SIZED[tag]
    (length,) = _LENGTHS[width].unpack_from(data, at)
    at += width
    if kind == "list":
        return _read_list(data, at, length)
    if kind == "dict":
        return _read_dict(data, at, length)
    if kind == "str":
        return _read_str(data, at, length)
    return _slice(data, at, length), at + length


def _slice(data: bytes, at: int, length: int) -> bytes:
    piece = data[at : at + length]
    if len(piece) != length:
        raise IndexError
    return piece


def _read_str(data: bytes, at: int, length: int) -> tuple[str, int]:
    return _slice(data, at, length).decode(), at + length


def _read_list(data: bytes, at: int, length: int) -> tuple[list, int]:
    items = []
    for _ in range(length):
        item, at = _read(data, at)
        items.append(item)
    return items, at


def _read_dict(data: bytes, at: int, length: int) -> tuple[dict, int]:
    found = {}
    for _ in range(length):
        key, at = _read(data, at)
        found[key], at = _read(data, at)
    return found, at
