"""The face of a Kubernetes API: what the agent, `cluster join` and the lab need of it, and no more.

`KubeClient` (client) speaks HTTP to a real API server, `MemoryCluster` (memory) is one in memory. Both pass the same
contract tests.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeVar

import msgspec

from .objects import Meta

T = TypeVar("T", bound=msgspec.Struct)


class Kind(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A kind of object: where the API server serves it, and the fields that we read of it.

    `group` "" is the core group. Objects of a kind that is not `namespaced` have no namespace.
    """

    group: str
    version: str
    plural: str
    singular: str  # as in `kind:`, such as "Job"
    type: type[T]
    namespaced: bool = True


class Listing(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """All objects at one moment; a watch `since` this version brings every later change.

    `served_at_s` is when, in Unix time by the server's clock, which is also the one of creation; 0 where it didn't say.
    """

    items: tuple[T, ...]
    version: str
    served_at_s: float = 0.0


class ChangeType(enum.StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"  # nothing happened up to this version


class Change(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One event of a watch. `item` of a bookmark is None; `version` is where to go on after it."""

    type: ChangeType
    item: T | None
    version: str


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the API server: may I do this?"""

    verb: str
    plural: str
    group: str = ""
    namespace: str = ""
    subresource: str = ""


Body = Mapping[str, object]


class Kube(Protocol):
    """An API server. All raise `KubeUnavailable` where it cannot be reached or fails, `KubeRefused` when it says no."""

    async def list(self, kind: Kind[T], namespace: str = "", *, labels: str = "", fields: str = "") -> Listing[T]:
        """Every object of a kind, page by page; `namespace` "" is all of them. `labels` and `fields` are selectors."""
        ...

    def watch(
        self, kind: Kind[T], namespace: str = "", *, since: str, labels: str = "", fields: str = ""
    ) -> AbstractAsyncContextManager[AsyncIterator[Change[T]]]:
        """Changes after a version, with bookmarks. It ends when the server ends it.

        Raises `VersionGone` when that version is too old: list again.
        """
        ...

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """One object, or None."""
        ...

    async def create(self, kind: Kind[T], body: Body, namespace: str = "") -> T:
        """Make an object. Raises `AlreadyThere`, with whose name it is."""
        ...

    async def delete(
        self, kind: Kind[T], name: str, namespace: str = "", *, uid: str = "", grace_s: int | None = None
    ) -> bool:
        """Delete an object and what it owns, in the background; with `uid` only that one. False: there was none.

        `grace_s` is how long a pod may take, None for what it says itself; a kubelet says 0 once it has ended.
        """
        ...

    async def patch(
        self, kind: Kind[T], name: str, body: Body, namespace: str = "", *, subresource: str = ""
    ) -> T | None:
        """Merge fields into an object or its subresource, such as "status"; None where there is none."""
        ...

    async def apply(self, kind: Kind[T], body: Body, namespace: str = "", *, manager: str) -> T:
        """Server-side apply: these fields are ours from now on, whatever else there is."""
        ...

    async def log_tail(self, pod: str, namespace: str, *, container: str, lines: int) -> str:
        """The last lines of a container's log; "" where there is none yet."""
        ...

    async def allowed(self, access: Access) -> bool:
        """Whether our own account may do this."""
        ...


def key_of(meta: Meta) -> str:
    """`namespace/name`, or the name alone."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
