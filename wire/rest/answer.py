"""What every answer in JSON has."""

from __future__ import annotations

import msgspec


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every answer in JSON."""

    ok: bool = True
