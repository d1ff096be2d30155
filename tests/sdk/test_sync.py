"""Which files are sent, and that only what changed is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from levers9.errors import ConfigError, Refused
from levers9.sdk import project as project_module
from levers9.sdk.project import Project, project_of
from levers9.sdk.sync import HashCache, cache_folder, send_code


class Shelf:
    """An object store in a dict that counts what it is sent."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.sent: list[str] = []

    def missing(self, keys: list[str]) -> list[str]:
        return [key for key in keys if key not in self.kept]

    def put_many(self, objects: Iterator[tuple[str, bytes]]) -> None:
        for key, data in objects:
            self.kept[key] = data
            self.sent.append(key)

    def files(self, manifest: str) -> dict[str, bytes]:
        rows = msgspec.msgpack.decode(self.kept[manifest])["files"]
        return {path: self.kept[f"blob/{sha256}"] for path, sha256, _, _ in rows}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for path, text in {"pyproject.toml": "", "a.py": "a = 1", "sub/b.py": "b = 2", "data.csv": "1,2"}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def said(_: str) -> None:
    pass


def test_every_file_of_the_project_is_sent(root: Path) -> None:
    shelf = Shelf()
    files = shelf.files(send_code(Project(root), shelf))
    assert files == {"pyproject.toml": b"", "a.py": b"a = 1", "sub/b.py": b"b = 2", "data.csv": b"1,2"}


def test_nothing_is_sent_twice(root: Path) -> None:
    shelf = Shelf()
    first = send_code(Project(root), shelf)
    shelf.sent.clear()
    assert send_code(Project(root), shelf) == first
    assert shelf.sent == []


def test_only_what_changed_is_sent(root: Path) -> None:
    shelf = Shelf()
    send_code(Project(root), shelf)
    shelf.sent.clear()
    (root / "a.py").write_text("a = 3")
    key = send_code(Project(root), shelf)
    assert shelf.files(key)["a.py"] == b"a = 3"
    assert len(shelf.sent) == 2  # the file, and the manifest after it
    assert shelf.sent[-1] == key


def test_a_change_of_the_same_size_and_second_is_seen(root: Path) -> None:
    shelf = Shelf()
    before = os.stat(root / "a.py").st_mtime_ns
    send_code(Project(root), shelf)
    (root / "a.py").write_text("a = 9")
    os.utime(root / "a.py", ns=(before, before))  # a clock so coarse that it shows no change
    assert shelf.files(send_code(Project(root), shelf))["a.py"] == b"a = 9"


def test_what_is_old_is_not_read_again(root: Path) -> None:
    old = 1_000_000_000
    os.utime(root / "a.py", ns=(old, old))
    shelf = Shelf()
    first = send_code(Project(root), shelf)
    (root / "a.py").write_text("a = 2")
    os.utime(root / "a.py", ns=(old, old))  # whoever does this wants it unseen, and it shows that nobody looked
    assert send_code(Project(root), shelf) == first


def test_a_cache_folder_that_cannot_be_written_costs_time_only(root: Path, home: Path) -> None:
    cache_folder().parent.mkdir(parents=True, exist_ok=True)
    cache_folder().write_text("in the way")
    assert send_code(Project(root), Shelf()).startswith("blob/")


def test_a_cache_that_is_nonsense_is_ignored(root: Path) -> None:
    cache = HashCache(root)
    cache._path.parent.mkdir(parents=True)
    cache._path.write_bytes(b"nonsense")
    assert send_code(Project(root), Shelf()).startswith("blob/")


@pytest.mark.parametrize("path", [".git/config", ".venv/x.py", "node_modules/x.js", "sub/__pycache__/b.pyc", ".env"])
def test_what_nobody_means_is_left_out(root: Path, path: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("x")
    assert path not in {file.path for file in Project(root).files().files}


def test_the_ignore_file_has_the_syntax_of_gitignore(root: Path) -> None:
    (root / "keep.csv").write_text("1")
    (root / ".levers9ignore").write_text("*.csv\n!keep.csv\n/sub/\n")
    paths = {file.path for file in Project(root).files().files}
    assert paths == {".levers9ignore", "pyproject.toml", "a.py", "keep.csv"}


def test_an_ignore_file_that_cannot_be_read_is_named(root: Path) -> None:
    (root / ".levers9ignore").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"\.levers9ignore cannot be read"):
        Project(root).files()


def test_a_file_that_is_too_large_is_left_out_and_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_module, "FILE_MAX_BYTES", 10)
    (root / "big.bin").write_bytes(b"x" * 11)
    told: list[str] = []
    shelf = Shelf()
    assert "big.bin" not in shelf.files(send_code(Project(root), shelf, say=told.append))
    assert "big.bin" in told[0]
    assert ".levers9ignore" in told[0]


def test_a_project_that_is_too_large_names_the_largest(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_module, "FILES_MAX", 2)
    with pytest.raises(Refused, match=r"too large to send.*The largest so far: .*\.levers9ignore"):
        Project(root).files()


def test_the_nearest_marker_makes_the_project(root: Path) -> None:
    assert project_of(root / "sub") == Project(root)


def test_a_folder_without_marker_is_its_own_project(tmp_path: Path) -> None:
    folder = tmp_path / "loose"
    folder.mkdir()
    assert project_of(folder) == Project(folder)


def test_of_a_home_only_the_python_files_in_it_are_sent(home: Path) -> None:
    (home / "script.py").write_text("x")
    (home / "private.txt").write_text("x")
    (home / "letters").mkdir()
    (home / "letters" / "b.py").write_text("x")
    (home / ".git").mkdir()
    assert [file.path for file in project_of(home).files().files] == ["script.py"]
