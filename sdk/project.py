"""Which files are a program's code: the project's folder, less what .levers9ignore and plain sense leave out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import pathspec

from ..errors import TOO_LARGE, ConfigError, Refused

MARKERS: Final = ("pyproject.toml", ".git", ".levers9ignore")
IGNORE_FILE: Final = ".levers9ignore"
FILE_MAX_BYTES: Final = 64 << 20
TOTAL_MAX_BYTES: Final = 512 << 20
FILES_MAX: Final = 20_000
ALWAYS_IGNORED: Final = (
    *(".git/", ".hg/", ".svn/", ".idea/", ".vscode/", ".DS_Store", ".env"),
    *(".venv/", "venv/", ".tox/", ".nox/", "node_modules/", "*.egg-info/"),
    *("__pycache__/", "*.pyc", "*.pyo", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/"),
    ".ipynb_checkpoints/",
)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file to send: its path below the root with forward slashes, and what its inode says."""

    path: str
    size_bytes: int
    modified_ns: int
    mode: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a project, in order of their paths, and those left out because they are too large."""

    files: tuple[SourceFile, ...]
    too_large: tuple[SourceFile, ...]


@dataclass(frozen=True)
class Project:
    """A folder of code. Where `only_modules`, just the Python files directly in it: it is a home or a shared folder."""

    root: Path
    only_modules: bool = False

    @cached_property
    def _spec(self) -> pathspec.GitIgnoreSpec:
        path = self.root / IGNORE_FILE
        try:
            own = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            own = []
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}. Correct it, or remove it.") from error
        try:
            return pathspec.GitIgnoreSpec.from_lines([*ALWAYS_IGNORED, *own])
        except ValueError as error:
            raise ConfigError(
                f"{path} has a pattern that is none: {error}. The syntax is that of .gitignore."
            ) from error

    def ignores(self, path: str) -> bool:
        """Whether a path below the root, a folder's with a slash at its end, is left out."""
        return self._spec.match_file(path)

    def files(self) -> Listing:
        """What to send. Raises `Refused` naming the largest when it is more than 512 MiB or 20,000 files."""
        sent: list[SourceFile] = []
        too_large: list[SourceFile] = []
        total = 0
        for file in self._walk(""):
            (too_large if file.size_bytes > FILE_MAX_BYTES else sent).append(file)
            total += file.size_bytes if file.size_bytes <= FILE_MAX_BYTES else 0
            if len(sent) > FILES_MAX or total > TOTAL_MAX_BYTES:
                raise self._too_much(sent, total)
        sent.sort(key=lambda file: file.path)
        return Listing(tuple(sent), tuple(too_large))

    def _walk(self, below: str) -> Iterator[SourceFile]:
        folder = self.root / below
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            if below:
                return  # a folder that may not be read is not code of this person
            raise Refused(
                f"{folder} cannot be read: {error.strerror}.", fix="Run the program where it may be."
            ) from error
        for entry in entries:
            path = f"{below}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if not self.only_modules and not self.ignores(path + "/"):
                    yield from self._walk(path + "/")
            elif self._is_wanted(entry, path):
                yield from _described(entry, path)

    def _is_wanted(self, entry: os.DirEntry[str], path: str) -> bool:
        if self.only_modules and not entry.name.endswith(".py"):
            return False
        return entry.is_file() and not self.ignores(path)

    def _too_much(self, files: list[SourceFile], total: int) -> Refused:
        largest = sorted(files, key=lambda file: -file.size_bytes)[:3]
        named = ", ".join(f"{file.path} ({file.size_bytes / 2**20:.1f} MiB)" for file in largest)
        return Refused(
            f"The project {self.root} is too large to send: over {len(files):,} files and {total / 2**20:,.0f} MiB.",
            f"The largest so far: {named}.",
            f"List data and build folders in {self.root / IGNORE_FILE}; its syntax is that of .gitignore.",
            TOO_LARGE,
        )


def project_of(folder: Path, *, shared_is_whole: bool = True) -> Project:
    """The project that a folder is in: the nearest folder with a marker, else the folder itself.

    A home, a temporary folder or the root of the disk is never a project; neither is, for `shared_is_whole` False, a
    folder without a marker. Of those only the Python files directly in them are sent.
    """
    start = folder.resolve()
    for candidate in (start, *start.parents):
        if not _shared(candidate) and any((candidate / marker).exists() for marker in MARKERS):
            return Project(candidate)
    return Project(start, only_modules=_shared(start) or not shared_is_whole)


def _shared(folder: Path) -> bool:
    home = Path(os.path.expanduser("~")).resolve()
    return folder in (home, *home.parents, Path(tempfile.gettempdir()).resolve(), Path(folder.anchor), Path("/tmp"))


def _described(entry: os.DirEntry[str], path: str) -> Iterator[SourceFile]:
    try:
        status = entry.stat()
    except OSError:
        return  # gone, or a link that leads nowhere
    yield SourceFile(path, status.st_size, status.st_mtime_ns, status.st_mode & 0o777)
