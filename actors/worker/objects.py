"""Objects as a worker needs them: code, large arguments, large results."""

from __future__ import annotations

from typing import Protocol

import msgspec
import trio

from ...model.blobs import blob_key


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """For whom objects are read and written: keys are per workspace, and a container may see its own only."""

    workspace_id: str
    container_id: str
    token: str = ""


class Objects(Protocol):
    """The object store. Each method raises `LeversError` when it can't be reached or lacks a key."""

    async def get_many(self, owner: Owner, keys: tuple[str, ...]) -> dict[str, bytes]:
        """Small objects, all of them."""
        ...

    async def get(self, owner: Owner, key: str) -> bytes:
        """One object of any size."""
        ...

    async def put(self, owner: Owner, key: str, data: bytes) -> None:
        """Store one object of any size."""
        ...


async def key_in_thread(data: bytes) -> str:
    """The key of large content: hashing takes long enough to keep the loop waiting."""
    return await trio.to_thread.run_sync(blob_key, data)
