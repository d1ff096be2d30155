"""What text a row can hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)
_PACKED: Final = frozenset({"arguments", "result", "failure", "spec", "why"})  # kept as bytes, or made storable


def storable(text: str) -> str:
    """The text without what no Postgres text can hold: NUL, and halves of surrogate pairs, each replaced."""
    if "\0" not in text and text.isprintable():
        return text
    return _without_halves(text.replace("\0", "�"))


def encodable(value: S) -> S:
    """The same with texts that can be kept as bytes, and sent: halves of surrogate pairs in its fields are replaced."""
    texts = {name: getattr(value, name) for name in value.__struct_fields__}
    whole = {
        name: _without_halves(text) for name, text in texts.items() if isinstance(text, str) and not text.isprintable()
    }
    return msgspec.structs.replace(value, **whole) if whole else value


def _without_halves(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def unstorable(operation: msgspec.Struct) -> str | None:
    """The first text of an operation, names and identities above all, that no row can hold; None where all is well."""
    return next((text for text in _texts(operation) if storable(text) != text), None)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for pair in value.items():
            yield from _texts(pair)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            if name not in _PACKED:
                yield from _texts(getattr(value, name))
