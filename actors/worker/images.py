"""Where a worker gets a container's image from."""

from __future__ import annotations

from typing import Protocol

from ...wire.images import ImageLink
from .objects import Owner


class ImageLinks(Protocol):
    """Asks the control plane for images, one at a time."""

    async def link_for(self, owner: Owner, image: str) -> ImageLink:
        """A link to an image that a container of `owner` was told to use; asked anew when the last one has expired.

        Raises `Refused` for an image that the container was not told to use, and `StoreUnavailable` while the control
        plane is away.
        """
        ...
