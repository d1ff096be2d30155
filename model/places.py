"""Where programs of one machine leave notes for each other. Pure: the environment is passed in."""

from __future__ import annotations

from collections.abc import Mapping


def dev_connection_path(environment: Mapping[str, str], user_id: int) -> str:
    """Where a user's `levers9 dev` says how to reach it: JSON with stream_url, http_url, token and pid, mode 0600."""
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    return f"{runtime}/levers9/dev.json" if runtime else f"/tmp/levers9-{user_id}/dev.json"
