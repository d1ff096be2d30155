"""Objects in a folder: what the disk says is told in words."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from levers9.errors import Refused, StoreUnavailable
from levers9.store.objects import open_objects


async def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="cannot be used"):
        open_objects(tmp_path / "file" / "objects")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one mebibyte."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a tiny disk needs rights that we lack here")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.slow
async def test_a_full_disk_is_told_and_leaves_nothing(tiny_disk: Path) -> None:
    objects = open_objects(tiny_disk / "objects")
    await objects.put("small", b"fits")
    for put in (objects.put, objects.put_if_absent):
        with pytest.raises(StoreUnavailable, match="the disk of the object store is full"):
            await put("large", b"x" * (2 << 20))
    assert [info.key for info in await objects.list("")] == ["small"]
    await objects.put("small-too", b"fits")


async def test_a_folder_that_vanished_fails_in_words(tmp_path: Path) -> None:
    objects = open_objects(tmp_path / "objects")
    await objects.put("a", b"x")
    (tmp_path / "objects" / "a").unlink()
    (tmp_path / "objects" / "a").mkdir()
    with pytest.raises((StoreUnavailable, Refused)):
        await objects.get("a")


@pytest.mark.slow
async def test_a_bucket_that_is_not_there_fails_in_words(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_url)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    objects = open_objects("s3://no-such-bucket")
    with pytest.raises(StoreUnavailable, match="object store failed"):
        await objects.put("a", b"x")
