"""A control plane named in the program, rather than in the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .config import Settings, resolve

if TYPE_CHECKING:
    from .connection import Connection
    from .task import Task


class Client:
    """What is not given comes from the configuration. Raises `ConfigError` when that leaves something out.

    Used with `with`, decorated functions called inside go to this control plane.
    """

    def __init__(
        self,
        token: str | None = None,
        controlplane_host: str | None = None,
        controlplane_port: int | None = None,
        tls: bool | None = None,
    ) -> None:
        self._given = (token, controlplane_host, controlplane_port, tls)
        self._made: Connection | None = None
        self.settings: Settings = self._resolve()

    @property
    def connection(self) -> Connection:
        """The connection, made at its first use."""
        from .current import connect

        if self._made is None or self._made.ended_by is not None:
            self._made = connect(self._resolve)
        return self._made

    def get_task_by_id(self, id: str) -> Task[object]:
        """A task that was submitted earlier, here or elsewhere. Raises `Refused` when nobody knows it."""
        from .task import Task

        self.connection.rest.call("GET", f"/api/v1/tasks/{id}")
        return Task(id, self.connection)

    def upload_file(self, path: str | Path) -> str:
        """Store a file in the object store and return its key; the same content is stored once.

        Raises `Refused` beyond 256 MiB.
        """
        from ..model.blobs import blob_key
        from .packing import refuse_too_large

        refuse_too_large(f"The file {path} is", Path(path).stat().st_size)
        data = Path(path).read_bytes()
        key = blob_key(data)
        self.connection.rest.put(key, data)
        return key

    def close(self) -> None:
        """End the connection."""
        if self._made is not None:
            self._made.close()

    def __enter__(self) -> Client:
        from .current import use

        self._restore = use(lambda: self.connection)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _resolve(self) -> Settings:
        return resolve(*self._given)
