"""What the worker asks of the fork server: one container, and the file descriptors that belong to it."""

from __future__ import annotations

from typing import NamedTuple

from . import packing


class Request(NamedTuple):
    """One container. An empty `code_path` means no checkout; a `function` means a function by value."""

    container_id: str
    handler: str
    function: bytes
    code_path: str
    env: dict[str, str]
    cpu_milli: int
    memory_bytes: int
    open_files: int
    processes: int
    marker: bytes
    watch_s: float
    payload_max_bytes: int
    use_cgroup: bool


class Descriptors(NamedTuple):
    """In the order in which they are passed."""

    runner: int
    claims: int
    stdout: int
    stderr: int
    keeper: int


def decode(body: bytes) -> Request:
    """The request in `body`. Raises ValueError or TypeError for anything else."""
    fields = packing.unpack(body)
    if not isinstance(fields, list):
        raise TypeError("a request is a list")
    return Request(*fields)
