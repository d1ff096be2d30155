"""All objects of a kind, kept up to date: listed once, then watched; whatever breaks, it begins again.

`kube.mirror` does it with manners, for clusters of others. Here the API server is our own, on loopback, and a kubelet
is to be back within a second of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
import trio

from ..errors import KubeRefused, KubeUnavailable, VersionGone
from ..kube.face import Change, ChangeType, Kind, Kube, Listing

T = TypeVar("T", bound=msgspec.Struct)
_RETRY_S: Final = 0.3
_log: Final = logging.getLogger("levers9.lab")


async def follow(
    kube: Kube, kind: Kind[T], fields: str, listed: Callable[[Listing[T]], None], changed: Callable[[Change[T]], None]
) -> None:
    """Call `listed` with everything, then `changed` with each change, until cancelled."""
    version = ""
    while True:
        try:
            if not version:
                listing = await kube.list(kind, fields=fields)
                listed(listing)
                version = listing.version
            async with kube.watch(kind, since=version, fields=fields) as changes:
                async for change in changes:
                    version = change.version or version
                    if change.type is not ChangeType.BOOKMARK:
                        changed(change)
            await trio.sleep(_RETRY_S)
        except VersionGone:
            version = ""
        except (KubeUnavailable, KubeRefused) as error:
            _log.warning("following %s: %s", kind.plural, error)
            await trio.sleep(_RETRY_S)
