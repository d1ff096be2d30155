"""Objects in a local folder, in S3, or in memory, by URL: obstore's blocking calls, in threads of their own."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from pathlib import Path
from typing import IO, Final, TypeVar
from urllib.parse import urlsplit

import obstore
import trio
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import LocalStore, MemoryStore, ObjectStore, from_url

from ...errors import Refused, StoreUnavailable

THREADS: Final = 16
PIECE_BYTES: Final = 1 << 20
_SPOOLED_BYTES: Final = 4 << 20  # larger ones wait for their hash on disk
T = TypeVar("T")


def open_objects(url: str) -> StoredObjects:
    """The objects at `file:///folder`, `s3://bucket/prefix` or `memory://`. Raises `Refused` for anything else."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "memory":
            return StoredObjects(MemoryStore())
        if parts.scheme == "file":
            Path(parts.path).mkdir(mode=0o700, parents=True, exist_ok=True)
            return StoredObjects(LocalStore(parts.path))
        return StoredObjects(from_url(url))
    except (BaseError, OSError, ValueError) as error:
        raise Refused(
            f"Objects cannot be kept at {url!r}.", f"{error}.", "Give --objects-url file:///folder or s3://bucket."
        ) from error


class StoredObjects:
    """Raises `StoreUnavailable` where the store below fails."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._limiter = trio.CapacityLimiter(THREADS)

    async def get(self, key: str) -> bytes | None:
        """The whole object, or None."""
        return await self._run(lambda: _get(self._store, key))

    async def put(self, key: str, data: bytes) -> None:
        """Keep an object; a known key is replaced."""
        await self._run(lambda: obstore.put(self._store, key, data))

    async def missing(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Those of `keys` that the store lacks."""
        return await self._run(lambda: tuple(key for key in keys if _size(self._store, key) is None))

    async def keys_under(self, prefix: str, after: str = "") -> tuple[str, ...]:
        """Whole keys that begin with `prefix` and sort after `after`, sorted."""
        return await self._run(lambda: _keys(self._store, prefix, after))

    async def size_bytes(self, key: str) -> int | None:
        """How large an object is, or None without one."""
        return await self._run(lambda: _size(self._store, key))

    async def write(self, key: str, chunks: AsyncIterable[bytes]) -> None:
        """Keep a large object; nothing is kept when `chunks` raises."""
        with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as spool:
            async for chunk in chunks:
                await self._run(lambda part=chunk: spool.write(part))  # type: ignore[misc]
            await self._run(lambda: _put_spooled(self._store, key, spool))

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """The object in pieces."""
        stream = await self._run(lambda: iter(obstore.get(self._store, key).stream(min_chunk_size=PIECE_BYTES)))
        while True:
            piece = await self._run(lambda: next(stream, None))
            if piece is None:
                return
            yield bytes(piece)

    async def _run(self, call: Callable[[], T]) -> T:
        try:
            return await trio.to_thread.run_sync(call, limiter=self._limiter)
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the object store failed: {error}") from error


def _get(store: ObjectStore, key: str) -> bytes | None:
    try:
        return bytes(obstore.get(store, key).bytes())
    except (NotFoundError, FileNotFoundError):
        return None


def _size(store: ObjectStore, key: str) -> int | None:
    try:
        return int(obstore.head(store, key)["size"])
    except (NotFoundError, FileNotFoundError):
        return None


def _keys(store: ObjectStore, prefix: str, after: str) -> tuple[str, ...]:
    pages = obstore.list(store, prefix=prefix, offset=after or None)
    return tuple(sorted(meta["path"] for page in pages for meta in page))


def _put_spooled(store: ObjectStore, key: str, spool: IO[bytes]) -> None:
    spool.seek(0)
    obstore.put(store, key, spool)
