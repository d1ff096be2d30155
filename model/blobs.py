"""Objects named by what they hold."""

from __future__ import annotations

import hashlib


def blob_key(data: bytes) -> str:
    """The content-addressed key of an object: `blob/` and its SHA-256 in hexadecimal."""
    return f"blob/{hashlib.sha256(data).hexdigest()}"
