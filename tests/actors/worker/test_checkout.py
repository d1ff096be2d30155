"""Checkouts: shared, read-only, whole or not there, and only what is missing is fetched."""

import hashlib
import os
from pathlib import Path

import pytest
import trio
from levers9_test_worker import MemoryObjects, put_code

from levers9.actors.worker.checkout import Checkouts
from levers9.actors.worker.objects import Owner
from levers9.errors import LeversError, Refused

OWNER = Owner(workspace_id="ws", container_id="c")


async def test_a_checkout_holds_its_files_read_only(tmp_path: Path, objects: MemoryObjects) -> None:
    key = put_code(objects, {"a.py": b"1", "deep/er/b.sh": b"2"}, 0o755)
    folder = await Checkouts(tmp_path, objects).get(OWNER, key)
    assert (folder / "deep/er/b.sh").read_bytes() == b"2"
    assert oct((folder / "a.py").stat().st_mode & 0o777) == "0o555"
    assert oct(folder.stat().st_mode & 0o777) == "0o555"


async def test_only_what_is_missing_is_fetched(tmp_path: Path, objects: MemoryObjects) -> None:
    checkouts = Checkouts(tmp_path, objects)
    await checkouts.get(OWNER, put_code(objects, {"a.py": b"1", "b.py": b"2"}))
    second = put_code(objects, {"a.py": b"1", "b.py": b"changed"})
    objects.asked.clear()
    await checkouts.get(OWNER, second)
    assert objects.asked == [second, f"blob/{hashlib.sha256(b'changed').hexdigest()}"]


async def test_starts_at_the_same_time_share_one_fetch(tmp_path: Path, objects: MemoryObjects) -> None:
    key = put_code(objects, {"a.py": b"1"})
    checkouts = Checkouts(tmp_path, objects)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(checkouts.get, OWNER, key)
    assert objects.asked.count(key) == 1


async def test_another_worker_s_checkout_of_the_same_code_is_used(tmp_path: Path, objects: MemoryObjects) -> None:
    key = put_code(objects, {"a.py": b"1"})
    first = await Checkouts(tmp_path, objects).get(OWNER, key)
    objects.asked.clear()
    assert await Checkouts(tmp_path, objects).get(OWNER, key) == first
    assert objects.asked == []


@pytest.mark.parametrize("path", ["/etc/passwd", "../up.py", "a/../../up.py", "", "nul\0.py"])
async def test_a_manifest_that_would_write_outside_is_refused(
    tmp_path: Path, objects: MemoryObjects, path: str
) -> None:
    key = put_code(objects, {path: b"1"})
    with pytest.raises(Refused, match="not allowed"):
        await Checkouts(tmp_path, objects).get(OWNER, key)
    assert os.listdir(tmp_path) == []


async def test_a_missing_or_wrong_file_leaves_no_checkout(tmp_path: Path, objects: MemoryObjects) -> None:
    key = put_code(objects, {"a.py": b"1"})
    objects.kept[f"blob/{hashlib.sha256(b'1').hexdigest()}"] = b"other"
    with pytest.raises(LeversError, match="content that is not"):
        await Checkouts(tmp_path, objects).get(OWNER, key)
    del objects.kept[f"blob/{hashlib.sha256(b'1').hexdigest()}"]
    with pytest.raises(LeversError, match="not in the object store"):
        await Checkouts(tmp_path, objects).get(OWNER, key)
    assert os.listdir(tmp_path / "ws") == ["files"]


async def test_a_key_that_is_no_hash_is_refused(tmp_path: Path, objects: MemoryObjects) -> None:
    with pytest.raises(Refused, match="not a hash"):
        await Checkouts(tmp_path, objects).get(OWNER, "blob/..")
