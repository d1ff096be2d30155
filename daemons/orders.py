"""What the root tells its brain and its gateways. It is apart from both, so that the root loads neither."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .settings import Settings


class BrainOrders(msgspec.Struct, frozen=True, kw_only=True):
    """What the root tells its brain, as JSON in LEVERS9_BRAIN: never on a command line, for it holds secrets."""

    settings: Settings
    root_pid: int
    worker_urls: tuple[str, ...]
    worker_http_url: str
    replica_id: str
    replica_token: str
    admin_token: str = ""
    owns_workers: bool = False


def journal_dir(settings: Settings) -> Path:
    """Where the brain keeps the scheduler's journal, and the gateways of its host read it."""
    return Path(settings.state_dir, "journal")


def gateway_ipc(run_dir: Path, number: int) -> str:
    """Where the brain listens for a gateway process of its host."""
    return f"ipc://{run_dir}/gateway-{number}.ipc"
