"""Objects out of JSON: one decoder a type, made once. What is stored strangely is read as well as it can be."""

from __future__ import annotations

import functools
from typing import Final, Generic, TypeVar, cast

import msgspec
import structlog

T = TypeVar("T", bound=msgspec.Struct)
_log: Final = structlog.get_logger()


class PageMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Which version a page is of, and where the next one begins."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list."""

    metadata: PageMeta
    items: list[T] | None = None


class _RawPage(msgspec.Struct, frozen=True):
    metadata: PageMeta
    items: list[msgspec.Raw] | None = None


_raw_page: Final = msgspec.json.Decoder(_RawPage)


class Reader(Generic[T]):
    """Reads objects of one type."""

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self._item = msgspec.json.Decoder(type_)
        self._page = cast("msgspec.json.Decoder[Page[T]]", msgspec.json.Decoder(Page[type_]))  # type: ignore[valid-type]

    def item(self, data: bytes | msgspec.Raw) -> T | None:
        """One object; None, with a warning, for what cannot be understood at all. Raises on what is no JSON."""
        try:
            return self._item.decode(data)
        except msgspec.ValidationError:
            return lenient(msgspec.json.decode(data), self._type)

    def page(self, data: bytes) -> Page[T]:
        """A page of a list; items that cannot be understood at all are left out, with a warning."""
        try:
            return self._page.decode(data)
        except msgspec.ValidationError:
            raw = _raw_page.decode(data)
        items = [self.item(each) for each in raw.items or ()]
        return Page(metadata=raw.metadata, items=[item for item in items if item is not None])


@functools.cache
def _reader(type_: type[msgspec.Struct]) -> Reader[msgspec.Struct]:
    return Reader(type_)


def reader_of(type_: type[T]) -> Reader[T]:
    """The reader of a type."""
    return cast("Reader[T]", _reader(type_))


def lenient(stored: object, type_: type[T]) -> T | None:
    """An object out of plain data in which null stands for nothing, and "3" for 3."""
    try:
        return msgspec.convert(_without_nulls(stored), type_, strict=False)
    except msgspec.ValidationError as error:
        _log.warning("an object of the cluster cannot be read", type=type_.__name__, error=str(error))
        return None


def _without_nulls(value: object) -> object:
    match value:
        case dict():
            return {key: _without_nulls(each) for key, each in value.items() if each is not None}
        case list():
            return [_without_nulls(each) for each in value if each is not None]
    return value
