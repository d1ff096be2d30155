"""A real API server, spoken to as `Kube`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Final, TypeVar

import msgspec

from ..errors import KubeUnavailable, VersionGone
from ..model.ids import Chance
from . import paths
from .connection import Connection, MakeClient, Reply, Request, http_client, open_connection
from .decoding import Reader, reader_of
from .endpoint import Endpoint
from .face import Access, Body, Change, Kind, Listing
from .kinds import PODS
from .statuses import error_of, read_status
from .watching import Events

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")

WATCH_S: Final = 300.0  # a watch lasts so long at least, and up to twice, so that they never all end at once
WATCH_BEGINS_WITHIN_S: Final = 15.0  # the API server begins to answer at once, or once its cache has that version
WATCH_END_GRACE_S: Final = 30.0  # nothing for as long as the watch was to last, and this: its end got lost
PAGED_TRIES: Final = 3  # a list that expires while we read it page by page so often is asked for in one piece
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"  # JSON is YAML
_NOT_FOUND: Final = frozenset({404})
_NO_LOG: Final = frozenset({400, 404})  # its container waits, or there is no such pod
_GONE_OR_OTHER: Final = frozenset({404, 409})  # a delete conflicts only with the uid that it names


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


_review: Final = msgspec.json.Decoder(_AccessReview)


class KubeClient:
    """See `Kube`. Made by `open_kube`."""

    def __init__(self, connection: Connection, chance: Chance) -> None:
        self._connection = connection
        self._chance = chance

    @property
    def endpoint(self) -> Endpoint:
        """Where the API server is."""
        return self._connection.endpoint

    async def list(self, kind: Kind[T], namespace: str = "", *, labels: str = "", fields: str = "") -> Listing[T]:
        """See `Kube`."""
        for _ in range(PAGED_TRIES):
            with contextlib.suppress(VersionGone):
                return await self._list(kind, namespace, labels, fields, limit=paths.PAGE)
        return await self._list(kind, namespace, labels, fields, limit=0)

    async def _list(self, kind: Kind[T], namespace: str, labels: str, fields: str, limit: int) -> Listing[T]:
        reader = reader_of(kind.type)
        root = paths.collection(kind, namespace)
        items: list[T] = []
        after = ""
        while True:
            asked = Request(
                method="GET",
                target=root + paths.page_of(labels, fields, limit=limit, after=after),
                what=f"list {kind.plural}",
            )
            reply = await self._connection.ask(asked)
            page = _read(reader.page, reply, asked)
            items += page.items or ()
            after = page.metadata.continue_
            if not after:
                version = page.metadata.resource_version
                return Listing(items=tuple(items), version=version, served_at_s=reply.at_s)

    @contextlib.asynccontextmanager
    async def watch(
        self, kind: Kind[T], namespace: str = "", *, since: str, labels: str = "", fields: str = ""
    ) -> AsyncIterator[AsyncIterator[Change[T]]]:
        """See `Kube`."""
        lasts_s = self._chance.uniform(WATCH_S, 2 * WATCH_S)
        asked = Request(
            method="GET",
            target=paths.collection(kind, namespace)
            + paths.watch_of(labels, fields, since=since, limit_s=int(lasts_s)),
            what=f"watch {kind.plural}",
            begins_within_s=WATCH_BEGINS_WITHIN_S,
            quiet_s=lasts_s + WATCH_END_GRACE_S,
        )
        events = Events(kind.type, f"{asked.what} at {self.endpoint.server}")
        async with self._connection.stream(asked) as pieces, contextlib.aclosing(_changes(pieces, events)) as changes:
            yield changes

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T | None:
        """See `Kube`."""
        asked = Request(method="GET", target=paths.single(kind, name, namespace), what=f"get {kind.singular} {name}")
        return self._found(kind, asked, await self._connection.ask(asked, seen=_NOT_FOUND))

    async def create(self, kind: Kind[T], body: Body, namespace: str = "") -> T:
        """See `Kube`."""
        asked = Request(
            method="POST",
            target=paths.collection(kind, namespace),
            what=f"create {kind.singular}",
            body=msgspec.json.encode(paths.typed(kind, body)),
        )
        return self._made(kind, asked, await self._connection.ask(asked))

    async def delete(
        self, kind: Kind[T], name: str, namespace: str = "", *, uid: str = "", grace_s: int | None = None
    ) -> bool:
        """See `Kube`."""
        options: dict[str, object] = {"propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid:
            options["preconditions"] = {"uid": uid}
        asked = Request(
            method="DELETE",
            target=paths.single(kind, name, namespace),
            what=f"delete {kind.singular} {name}",
            body=msgspec.json.encode(options),
        )
        reply = await self._connection.ask(asked, seen=_GONE_OR_OTHER if uid else _NOT_FOUND)
        if reply.status not in _GONE_OR_OTHER:
            return True
        self._expect_object_missing(asked, reply)
        return False

    async def patch(
        self, kind: Kind[T], name: str, body: Body, namespace: str = "", *, subresource: str = ""
    ) -> T | None:
        """See `Kube`."""
        asked = Request(
            method="PATCH",
            target=paths.single(kind, name, namespace, subresource),
            what=f"patch {kind.singular} {name}",
            body=msgspec.json.encode(body),
            content_type=MERGE_PATCH,
        )
        return self._found(kind, asked, await self._connection.ask(asked, seen=_NOT_FOUND))

    async def apply(self, kind: Kind[T], body: Body, namespace: str = "", *, manager: str) -> T:
        """See `Kube`."""
        name = _name_of(body)
        asked = Request(
            method="PATCH",
            target=paths.single(kind, name, namespace) + paths.query({"fieldManager": manager, "force": "true"}),
            what=f"apply {kind.singular} {name}",
            body=msgspec.json.encode(paths.typed(kind, body)),
            content_type=APPLY_PATCH,
        )
        return self._made(kind, asked, await self._connection.ask(asked))

    async def log_tail(self, pod: str, namespace: str, *, container: str, lines: int) -> str:
        """See `Kube`."""
        asked = Request(
            method="GET",
            target=paths.single(PODS, pod, namespace, "log")
            + paths.query({"container": container, "tailLines": lines}),
            what=f"read the log of pod {pod}",
        )
        reply = await self._connection.ask(asked, seen=_NO_LOG)
        return "" if reply.status in _NO_LOG else reply.body.decode(errors="replace")

    async def allowed(self, access: Access) -> bool:
        """See `Kube`."""
        asked = Request(
            method="POST",
            target="/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            what=f"asking whether we may {access.verb} {access.plural}",
            body=msgspec.json.encode(_review_of(access)),
        )
        return _read(_review.decode, await self._connection.ask(asked), asked).status.allowed

    def _found(self, kind: Kind[T], asked: Request, reply: Reply) -> T | None:
        if reply.status != 404:
            return self._made(kind, asked, reply)
        self._expect_object_missing(asked, reply)
        return None

    def _made(self, kind: Kind[T], asked: Request, reply: Reply) -> T:
        reader: Reader[T] = reader_of(kind.type)
        item = _read(reader.item, reply, asked)
        if item is None:
            raise KubeUnavailable(f"{asked.what} at {self.endpoint.server}: the object that came cannot be read")
        return item

    def _expect_object_missing(self, asked: Request, reply: Reply) -> None:
        """A 404 by Kubernetes means that there is no such object; one by anything else means nothing."""
        status = read_status(reply.body, reply.status)
        if status.reason not in ("NotFound", "Conflict"):
            raise error_of(status, f"{asked.what} at {self.endpoint.server}")


@contextlib.asynccontextmanager
async def open_kube(endpoint: Endpoint, chance: Chance, make: MakeClient = http_client) -> AsyncIterator[KubeClient]:
    """The API server at `endpoint`, while the context lasts. Nothing is sent before something is asked."""
    async with open_connection(endpoint, chance, make) as connection:
        yield KubeClient(connection, chance)


async def _changes(pieces: AsyncIterator[bytes], events: Events[T]) -> AsyncGenerator[Change[T], None]:
    async for piece in pieces:
        for change in events.feed(piece):
            yield change


def _read(read: Callable[[bytes], R], reply: Reply, asked: Request) -> R:
    try:
        return read(reply.body)
    except msgspec.MsgspecError as error:
        raise KubeUnavailable(f"{asked.what}: the answer is not what Kubernetes says ({error})") from error


def _name_of(body: Body) -> str:
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        raise ValueError("what is applied needs a metadata.name")
    return name


def _review_of(access: Access) -> Body:
    attributes = {
        "verb": access.verb,
        "resource": access.plural,
        "group": access.group,
        "namespace": access.namespace,
        "subresource": access.subresource,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
