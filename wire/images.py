"""The conversation about images: what a worker of an attached cluster is handed for each image that its work uses.

Its settings hold no credential of a registry or an object store: it asks for one image of one of its containers, and
gets an address that is good for that image alone, and for a while.
"""

from __future__ import annotations

import msgspec


class ImageLink(msgspec.Struct, frozen=True, kw_only=True):
    """Where one image can be read until `expires_at_s` (Unix seconds), by whoever has `url`: a secret till then."""

    image: str
    url: str
    expires_at_s: float
