"""When a full disk is told."""

from __future__ import annotations

from pathlib import Path

from levers9.daemons.disk import FULL_BELOW_BYTES, ROOM_ABOVE_BYTES, Disk, free_bytes


def test_a_full_disk_is_told_once_and_its_room_once() -> None:
    disk = Disk(Path("/state"))
    assert disk.judge(FULL_BELOW_BYTES) == ""
    assert disk.judge(3 << 20).startswith("The disk of /state is full: 3 MiB are left.")
    assert disk.judge(0) == ""
    assert disk.judge(ROOM_ABOVE_BYTES - 1) == ""
    assert disk.judge(ROOM_ABOVE_BYTES) == "The disk of /state has room again: 48 MiB. Work goes on."
    assert disk.judge(ROOM_ABOVE_BYTES) == ""


def test_a_folder_that_is_gone_is_no_full_disk(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "gone") > ROOM_ABOVE_BYTES
    assert 0 < free_bytes(tmp_path) < 1 << 62
