"""Large things by key: code, large arguments and results, logs. In a folder, in S3, or in memory."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec
import obstore
import trio
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, S3Store, from_url

from ..errors import INVALID, NOT_FOUND, Refused, StoreUnavailable

T = TypeVar("T")

THREADS: Final = 8
CHUNK_BYTES: Final = 1 << 20
KEY_MAX: Final = 1024  # S3


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An object, without its bytes."""

    key: str
    size_bytes: int


class Objects(Protocol):
    """Objects by key: words divided by `/`. All raise `Refused` for a bad key, `StoreUnavailable` for a failure."""

    async def put(self, key: str, data: bytes) -> None:
        """Keep an object, whole or not at all; one of this key is replaced."""
        ...

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        """Keep it unless there is one of this key; answers whether it was kept."""
        ...

    async def put_all(self, objects: Mapping[str, bytes]) -> None:
        """Keep many small ones; those whose key is known are left as they are."""
        ...

    async def put_stream(self, key: str, chunks: AsyncIterable[bytes]) -> int:
        """Keep a large object as it comes in, whole or not at all; answers its size in bytes."""
        ...

    async def get(self, key: str) -> bytes:
        """Its bytes. Raises `Refused` (`not_found`)."""
        ...

    async def get_all(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The bytes of many small ones; those that do not exist are missing."""
        ...

    def get_stream(self, key: str) -> AsyncIterator[bytes]:
        """Its bytes in chunks of about a mebibyte. Raises `Refused` (`not_found`) at the first one."""
        ...

    async def head(self, key: str) -> ObjectInfo | None:
        """What is known of it, or None."""
        ...

    async def missing(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Which of these keys have no object, in the order given."""
        ...

    async def list(self, prefix: str) -> tuple[ObjectInfo, ...]:
        """All below a folder `prefix` ("" for all), by key."""
        ...

    async def delete(self, *keys: str) -> None:
        """Remove objects; those that do not exist are no error."""
        ...


def checked(key: str) -> str:
    """The key, if it is one. Raises `Refused` (`invalid`): nothing may lead out of a folder, or mean two things.

    `#` marks files in the making, in a folder.
    """
    words = key.split("/")
    if (
        len(key.encode("utf-8", "replace")) > KEY_MAX
        or not key.isprintable()
        or "#" in key
        or {"", ".", ".."} & set(words)
    ):
        raise Refused(f"{key[:80]!r} is no key of an object.", "Keys are words divided by '/'.", code=INVALID)
    return key


def _not_found(key: str) -> Refused:
    return Refused(f"There is no object {key!r}.", code=NOT_FOUND)


class StoredObjects:
    """Objects in a folder or in S3, by blocking calls in threads of their own. `open_objects` makes one."""

    def __init__(self, store: LocalStore | S3Store) -> None:
        self._store = store
        self._limiter = trio.CapacityLimiter(THREADS)

    async def _thread(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(_mapped, function, limiter=self._limiter)

    async def put(self, key: str, data: bytes) -> None:
        """See `Objects.put`."""
        checked(key)
        await self._thread(lambda: obstore.put(self._store, key, data, use_multipart=False))

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        """See `Objects.put_if_absent`."""
        checked(key)
        return await self._thread(lambda: self._create(key, data))

    def _create(self, key: str, data: bytes) -> bool:
        try:
            obstore.put(self._store, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    async def put_all(self, objects: Mapping[str, bytes]) -> None:
        """See `Objects.put_all`."""
        each = [(checked(key), data) for key, data in objects.items()]

        def put_each() -> None:
            for key, data in each:
                self._create(key, data)

        await self._thread(put_each)

    async def put_stream(self, key: str, chunks: AsyncIterable[bytes]) -> int:
        """See `Objects.put_stream`. Memory holds a few chunks at most."""
        checked(key)
        size_bytes = 0
        source = aiter(chunks)

        async def next_chunk() -> bytes | None:
            return await anext(source, None)

        def pull() -> Iterator[bytes]:
            nonlocal size_bytes
            try:
                while (chunk := trio.from_thread.run(next_chunk)) is not None:
                    size_bytes += len(chunk)
                    yield chunk
            except BaseException as error:
                failed.append(error)
                raise

        def put() -> None:
            try:
                obstore.put(self._store, key, pull(), chunk_size=5 * CHUNK_BYTES)
            except BaseException:
                if failed:
                    raise failed[0] from None  # the source's own error, Cancelled too, and not what it became inside
                raise

        failed: list[BaseException] = []
        await self._thread(put)
        return size_bytes

    async def get(self, key: str) -> bytes:
        """See `Objects.get`."""
        found = await self._thread(lambda: self._read(checked(key)))
        if found is None:
            raise _not_found(key)
        return found

    def _read(self, key: str) -> bytes | None:
        try:
            return obstore.get(self._store, key).bytes().to_bytes()
        except FileNotFoundError:
            return None

    async def get_all(self, keys: Iterable[str]) -> dict[str, bytes]:
        """See `Objects.get_all`."""
        wanted = [checked(key) for key in keys]
        found = await self._thread(lambda: [(key, self._read(key)) for key in wanted])
        return {key: data for key, data in found if data is not None}

    async def get_stream(self, key: str) -> AsyncIterator[bytes]:
        """See `Objects.get_stream`."""
        chunks = await self._thread(lambda: self._open(checked(key)))
        if chunks is None:
            raise _not_found(key)
        while (chunk := await self._thread(lambda: next(chunks, None))) is not None:
            yield chunk

    def _open(self, key: str) -> Iterator[bytes] | None:
        try:
            return (bytes(chunk) for chunk in obstore.get(self._store, key).stream(min_chunk_size=CHUNK_BYTES))
        except FileNotFoundError:
            return None

    async def head(self, key: str) -> ObjectInfo | None:
        """See `Objects.head`."""
        return await self._thread(lambda: self._look(checked(key)))

    def _look(self, key: str) -> ObjectInfo | None:
        try:
            return ObjectInfo(key=key, size_bytes=obstore.head(self._store, key)["size"])
        except FileNotFoundError:
            return None

    async def missing(self, keys: Iterable[str]) -> tuple[str, ...]:
        """See `Objects.missing`."""
        wanted = [checked(key) for key in keys]
        return await self._thread(lambda: tuple([key for key in wanted if self._look(key) is None]))

    async def list(self, prefix: str) -> tuple[ObjectInfo, ...]:
        """See `Objects.list`."""
        folder = checked(prefix.rstrip("/")) if prefix else None
        found = await self._thread(lambda: [each for page in obstore.list(self._store, folder) for each in page])
        infos = [ObjectInfo(key=each["path"], size_bytes=each["size"]) for each in found]
        return tuple(sorted(infos, key=lambda info: info.key))

    async def delete(self, *keys: str) -> None:
        """See `Objects.delete`."""
        wanted = [checked(key) for key in keys]

        def delete_each() -> None:
            for key in wanted:
                try:
                    obstore.delete(self._store, key)
                except FileNotFoundError:
                    pass

        await self._thread(delete_each)


def _mapped(function: Callable[[], T]) -> T:
    with _foreign_errors_translated():
        return function()


@contextmanager
def _foreign_errors_translated() -> Iterator[None]:
    """obstore speaks in classes of its own and, for the disk, in the system's words."""
    try:
        yield
    except (BaseError, OSError) as error:
        text = str(error)
        if f"os error {errno.ENOSPC}" in text or getattr(error, "errno", 0) == errno.ENOSPC:
            raise StoreUnavailable("the disk of the object store is full: make room on it") from error
        raise StoreUnavailable(
            f"the object store failed: {text.splitlines()[0] if text else type(error).__name__}"
        ) from error


def open_objects(where: str | Path) -> StoredObjects:
    """Objects in a folder (made where it is missing) or at `s3://bucket/prefix`, with credentials of the environment.

    Raises `Refused` where neither can be.
    """
    try:
        if str(where).startswith("s3://"):
            return StoredObjects(_s3(str(where)))
        return StoredObjects(LocalStore(Path(where).absolute(), mkdir=True))
    except (BaseError, OSError, ValueError) as error:
        raise Refused(f"The object store {where} cannot be used.", str(error).splitlines()[0]) from error


def _s3(url: str) -> S3Store:
    store = from_url(url)
    assert isinstance(store, S3Store)
    return store


class MemoryObjects:
    """Objects in a dict, for tests and worlds in virtual time."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    async def put(self, key: str, data: bytes) -> None:
        """See `Objects.put`."""
        await trio.lowlevel.checkpoint()
        self._objects[checked(key)] = bytes(data)

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        """See `Objects.put_if_absent`."""
        await trio.lowlevel.checkpoint()
        if checked(key) in self._objects:
            return False
        self._objects[key] = bytes(data)
        return True

    async def put_all(self, objects: Mapping[str, bytes]) -> None:
        """See `Objects.put_all`."""
        for key in objects:
            checked(key)
        for key, data in objects.items():
            await self.put_if_absent(key, data)

    async def put_stream(self, key: str, chunks: AsyncIterable[bytes]) -> int:
        """See `Objects.put_stream`."""
        checked(key)
        data = b"".join([chunk async for chunk in chunks])
        await self.put(key, data)
        return len(data)

    async def get(self, key: str) -> bytes:
        """See `Objects.get`."""
        await trio.lowlevel.checkpoint()
        if checked(key) not in self._objects:
            raise _not_found(key)
        return self._objects[key]

    async def get_all(self, keys: Iterable[str]) -> dict[str, bytes]:
        """See `Objects.get_all`."""
        await trio.lowlevel.checkpoint()
        return {key: self._objects[key] for key in map(checked, keys) if key in self._objects}

    async def get_stream(self, key: str) -> AsyncIterator[bytes]:
        """See `Objects.get_stream`."""
        data = await self.get(key)
        for start in range(0, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]

    async def head(self, key: str) -> ObjectInfo | None:
        """See `Objects.head`."""
        await trio.lowlevel.checkpoint()
        data = self._objects.get(checked(key))
        return None if data is None else ObjectInfo(key=key, size_bytes=len(data))

    async def missing(self, keys: Iterable[str]) -> tuple[str, ...]:
        """See `Objects.missing`."""
        await trio.lowlevel.checkpoint()
        return tuple([key for key in map(checked, keys) if key not in self._objects])

    async def list(self, prefix: str) -> tuple[ObjectInfo, ...]:
        """See `Objects.list`."""
        await trio.lowlevel.checkpoint()
        folder = checked(prefix.rstrip("/")) + "/" if prefix else ""
        found = [
            ObjectInfo(key=key, size_bytes=len(data)) for key, data in self._objects.items() if key.startswith(folder)
        ]
        return tuple(sorted(found, key=lambda info: info.key))

    async def delete(self, *keys: str) -> None:
        """See `Objects.delete`."""
        await trio.lowlevel.checkpoint()
        for key in keys:
            self._objects.pop(checked(key), None)
