"""Objects as plain JSON: what the in-memory cluster stores. They are never changed, only replaced. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

Json = dict[str, object]


def copied(body: Mapping[str, object]) -> Json:
    """A copy that shares nothing, and is JSON: what else is in it raises `TypeError`."""
    return msgspec.json.decode(msgspec.json.encode(body), type=Json)


def merged(body: Json, patch: Json) -> Json:
    """A merge patch (RFC 7386): null takes away, objects are merged, all else replaces."""
    new = dict(body)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict):
            before = new.get(key)
            new[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            new[key] = value
    return new


def without(body: Json, given_up: Json, kept: Json) -> Json:
    """A body less those leaves that `given_up` has and `kept` lacks: what one who applies no longer says."""
    new = dict(body)
    for key, value in given_up.items():
        stays = kept.get(key)
        if key not in kept:
            new.pop(key, None)
        elif isinstance(value, dict) and isinstance(stays, dict) and isinstance(new.get(key), dict):
            new[key] = without(map_at(new, key), value, stays)
    return new


def at(body: object, *path: str) -> object:
    """What is at a path; None where there is nothing."""
    for key in path:
        if not isinstance(body, dict):
            return None
        body = body.get(key)
    return body


def text_at(body: object, *path: str) -> str:
    """The text at a path, or ""."""
    found = at(body, *path)
    return found if isinstance(found, str) else ""


def number_at(body: object, *path: str, default: int = 0) -> int:
    """The whole number at a path, also one that is written as a text."""
    found = at(body, *path)
    if isinstance(found, str) and found.isdecimal():
        return int(found)
    return found if isinstance(found, int) else default


def map_at(body: object, *path: str) -> Json:
    """The object at a path, or an empty one."""
    found = at(body, *path)
    return found if isinstance(found, dict) else {}


def list_at(body: object, *path: str) -> list[Json]:
    """The objects of the list at a path."""
    found = at(body, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def texts_at(body: object, *path: str) -> dict[str, str]:
    """The texts of the object at a path, such as labels."""
    return cast("dict[str, str]", map_at(body, *path))
