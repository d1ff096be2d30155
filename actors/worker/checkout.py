"""Checkouts of code: one read-only folder for each manifest, shared by all containers that run it.

Files are kept by hash and linked into checkouts, so that a changed project fetches what changed. A checkout appears
under its name by one rename, when all of it is there. Whoever uses one holds a shared lock on its folder, which keeps
it from being removed (`pruning.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
import trio

from ...errors import INVALID, LeversError, Refused
from .objects import Objects, Owner

FETCH_BYTES: Final = 4 << 20  # asked for in one request
FETCH_KEYS: Final = 256
_AGAIN_S: Final = 0.02
_HEXADECIMAL: Final = frozenset("0123456789abcdef")


class CodeFile(msgspec.Struct, frozen=True, array_like=True):
    """One file of a manifest."""

    path: str
    sha256: str
    mode: int
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """The files of a project."""

    files: tuple[CodeFile, ...]


_manifest: Final = msgspec.msgpack.Decoder(Manifest)


class Checkouts:
    """The checkouts below `folder`."""

    def __init__(self, folder: Path, objects: Objects) -> None:
        self._folder = folder
        self._objects = objects
        self._locks: dict[str, trio.Lock] = {}

    @contextlib.asynccontextmanager
    async def use(self, owner: Owner, code_key: str) -> AsyncIterator[Path]:
        """The folder with the code of a manifest, which nobody removes meanwhile. Raises as `get`."""
        while True:
            folder = await self.get(owner, code_key)
            lock = _shared_lock(folder)
            if lock is not None:
                break
            await trio.sleep(_AGAIN_S)  # it is being removed
        try:
            yield folder
        finally:
            os.close(lock)

    async def get(self, owner: Owner, code_key: str) -> Path:
        """The folder with the code of a manifest. Raises `Refused` for a wrong one, `LeversError` out of reach."""
        name = code_key.rpartition("/")[2]
        if len(name) != 64 or not _HEXADECIMAL.issuperset(name):
            raise Refused(f"The code key {code_key!r} is not a hash.", code=INVALID)
        folder = self._folder / owner.workspace_id / "code" / name
        async with self._locks.setdefault(str(folder), trio.Lock()):
            if not await trio.to_thread.run_sync(folder.exists):
                await self._make(owner, code_key, folder)
        return folder

    async def _make(self, owner: Owner, code_key: str, folder: Path) -> None:
        files = parse_manifest(await self._objects.get(owner, code_key), code_key)
        try:
            await self._fill(owner, files, folder)
        except FileNotFoundError:  # a file was removed, as one that nobody used, after we had seen it
            await self._fill(owner, files, folder)

    async def _fill(self, owner: Owner, files: tuple[CodeFile, ...], folder: Path) -> None:
        kept = folder.parent.parent / "files"
        missing = await trio.to_thread.run_sync(_missing, kept, files)
        for batch in _batches(missing):
            found = await self._objects.get_many(owner, tuple(f"blob/{file.sha256}" for file in batch))
            await trio.to_thread.run_sync(_keep, kept, batch, found)
        await trio.to_thread.run_sync(_link, kept, files, folder)


def parse_manifest(data: bytes, code_key: str) -> tuple[CodeFile, ...]:
    """The files in a manifest. Raises `Refused` for one that would write outside its folder or has wrong hashes."""
    try:
        files = _manifest.decode(data).files
    except msgspec.MsgspecError as error:
        raise Refused(f"The code manifest {code_key} cannot be read.", str(error), code=INVALID) from error
    for file in files:
        path = PurePosixPath(file.path)
        outside = path.is_absolute() or ".." in path.parts or not path.parts or "\0" in file.path
        if outside or len(file.sha256) != 64 or not _HEXADECIMAL.issuperset(file.sha256):
            raise Refused(f"The code manifest {code_key} names {file.path!r}, which is not allowed.", code=INVALID)
    return files


def _shared_lock(folder: Path) -> int | None:
    """A descriptor that holds the folder, and notes that it is used now; None where it is being removed."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            os.utime(descriptor)
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _batches(files: list[CodeFile]) -> list[list[CodeFile]]:
    batches: list[list[CodeFile]] = []
    room = 0
    for file in files:
        if not batches or file.size_bytes > room or len(batches[-1]) >= FETCH_KEYS:
            batches.append([])
            room = FETCH_BYTES
        batches[-1].append(file)
        room -= file.size_bytes
    return batches


def _missing(kept: Path, files: tuple[CodeFile, ...]) -> list[CodeFile]:
    unique = {_kept_name(file): file for file in files}
    return [file for name, file in unique.items() if not (kept / name).exists()]


def _kept_name(file: CodeFile) -> str:
    return f"{file.sha256}{'x' if file.mode & 0o100 else ''}"  # a link shares its mode


def _keep(kept: Path, files: list[CodeFile], found: dict[str, bytes]) -> None:
    kept.mkdir(parents=True, exist_ok=True)
    for file in files:
        data = found.get(f"blob/{file.sha256}")
        if data is None:
            raise LeversError(f"{file.path} is not in the object store under its hash {file.sha256}")
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise LeversError(f"{file.path} came with content that is not {file.sha256}")
        place = kept / _kept_name(file)
        partial = place.with_suffix(f".{os.getpid()}.partial")
        partial.write_bytes(data)
        partial.chmod(0o555 if file.mode & 0o100 else 0o444)
        partial.replace(place)


def _link(kept: Path, files: tuple[CodeFile, ...], folder: Path) -> None:
    partial = folder.with_suffix(f".{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for file in files:
        target = partial / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        _link_or_copy(kept / _kept_name(file), target)
    for below, _, _ in os.walk(partial):
        os.chmod(below, 0o555)
    try:
        partial.replace(folder)
    except OSError:  # another worker of this machine was first
        shutil.rmtree(partial, ignore_errors=True)
        if not folder.exists():
            raise


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # this file system has no links, or no more of them
        shutil.copy2(source, target)
