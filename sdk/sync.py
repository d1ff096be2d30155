"""Sending a project's code: each file under its hash, only what the store lacks, and a manifest that names them all."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

import msgspec

from ..errors import Refused
from ..model.blobs import blob_key
from .progress import ProgressLine
from .project import FILE_MAX_BYTES, IGNORE_FILE, Listing, Project, SourceFile

_SETTLED_NS: Final = 2_000_000_000  # a file changed this recently may change again within the clock's grain
_ATTEMPTS: Final = 3
_Known = dict[str, tuple[int, int, str]]  # path -> modified_ns, size, sha256
_known_decoder: Final = msgspec.msgpack.Decoder(_Known)
_encoder: Final = msgspec.msgpack.Encoder()


class Store(Protocol):
    """What the object store is asked for here."""

    def missing(self, keys: list[str]) -> list[str]:
        """Those of the keys that are not there."""

    def put_many(self, objects: Iterator[tuple[str, bytes]]) -> None:
        """Store objects."""


class _Changed(Exception):
    """A file changed while it was being sent."""


def send_code(
    project: Project,
    store: Store,
    *,
    now_ns: Callable[[], int] = time.time_ns,
    say: Callable[[str], None] | None = None,
) -> str:
    """Send what the store lacks; returns the manifest's key. Raises `Refused` for a project that is too large."""
    cache = HashCache(project.root, now_ns)
    listing = project.files()
    _tell_too_large(listing, project, say or _say)
    for _ in range(_ATTEMPTS):
        try:
            return _send(listing, project, store, cache)
        except (_Changed, FileNotFoundError):
            cache.forget()
            listing = project.files()
    raise Refused(
        f"Files of {project.root} change all the time while they are being sent.",
        fix=f"Let logs and results be written elsewhere, or list them in {project.root / IGNORE_FILE}.",
    )


def _send(listing: Listing, project: Project, store: Store, cache: HashCache) -> str:
    hashes = {file.path: cache.hash_of(file) for file in listing.files}
    cache.save()
    rows = [[file.path, hashes[file.path], file.mode, file.size_bytes] for file in listing.files]
    manifest = _encoder.encode({"files": rows})
    key = blob_key(manifest)
    if not store.missing([key]):
        return key
    paths = {f"blob/{sha256}": path for path, sha256 in hashes.items()}
    lacking = store.missing(sorted(paths))
    store.put_many(_shown(((name, _read(project.root / paths[name], name)) for name in lacking), len(lacking)))
    store.put_many(iter([(key, manifest)]))  # last: where a manifest is, its files are
    return key


def _shown(objects: Iterator[tuple[str, bytes]], total: int) -> Iterator[tuple[str, bytes]]:
    line, size = ProgressLine("sending code"), 0
    for done, (key, data) in enumerate(objects):
        size += len(data)
        line.show(done, total, f"{size / 2**20:.1f} MiB")
        yield key, data
    line.clear()


def _read(path: Path, key: str) -> bytes:
    data = path.read_bytes()
    if blob_key(data) != key:
        raise _Changed
    return data


class HashCache:
    """The hashes of files that have not changed since they were read; kept in the user's cache folder, if possible."""

    def __init__(self, root: Path, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._root = root
        self._now_ns = now_ns
        self._path = cache_folder() / f"hashes-{hashlib.sha256(str(root).encode()).hexdigest()[:16]}"
        self._known = self._load()
        self._fresh: _Known = {}

    def hash_of(self, file: SourceFile) -> str:
        """The SHA-256 of a file, in hex."""
        known = self._known.get(file.path)
        if known is not None and known[:2] == (file.modified_ns, file.size_bytes):
            sha256 = known[2]
        else:
            sha256 = hashlib.sha256((self._root / file.path).read_bytes()).hexdigest()
        if self._now_ns() - file.modified_ns > _SETTLED_NS:
            self._fresh[file.path] = (file.modified_ns, file.size_bytes, sha256)
        return sha256

    def forget(self) -> None:
        """Trust nothing remembered."""
        self._known, self._fresh = {}, {}

    def save(self) -> None:
        """Keep it for the next run; a home that may not be written to costs time only."""
        if self._fresh == self._known:
            return
        partial = self._path.with_suffix(f".{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(_encoder.encode(self._fresh))
            partial.replace(self._path)
        except OSError:
            return

    def _load(self) -> _Known:
        try:
            return _known_decoder.decode(self._path.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return {}


def cache_folder() -> Path:
    """Where this user's programs may keep what can be made again."""
    given = os.environ.get("XDG_CACHE_HOME")
    return Path(given or os.path.join(os.path.expanduser("~"), ".cache"), "levers9")


def _tell_too_large(listing: Listing, project: Project, say: Callable[[str], None]) -> None:
    for file in listing.too_large:
        say(
            f"levers9: {file.path} ({file.size_bytes / 2**20:,.0f} MiB) is not sent: the limit for code is "
            f"{FILE_MAX_BYTES >> 20} MiB a file. List it in {project.root / IGNORE_FILE} to see this no more."
        )


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
