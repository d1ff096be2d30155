"""The root's tree on its way to those who ask the brain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from levers9.daemons.root_tree import keep_root_tree, read_root_tree, tree_file
from levers9.wire.control import ChildStanding


def standing(restarts: int) -> tuple[ChildStanding, ...]:
    root = ChildStanding(path="root", kind="supervisor", state="running", restarts=0, process_id=7)
    brain = ChildStanding(path="root/brain", kind="process", state="running", restarts=restarts, process_id=8)
    return (root, brain)


async def test_what_changes_is_read_a_second_later_and_in_the_end_nothing_is_left(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    restarts = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_root_tree, tmp_path, lambda: standing(restarts))
        await trio.sleep(0.5)
        assert read_root_tree(tmp_path) == standing(0)
        restarts = 1
        await trio.sleep(1)
        assert read_root_tree(tmp_path) == standing(1)
        nursery.cancel_scope.cancel()
    assert os.listdir(tmp_path) == []


async def test_on_a_full_disk_the_older_tree_stays_until_there_is_room(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarts = 0

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_root_tree, tmp_path, lambda: standing(restarts))
        await trio.sleep(0.5)
        monkeypatch.setattr(os, "replace", full)
        restarts = 1
        await trio.sleep(1)
        assert read_root_tree(tmp_path) == standing(0)
        monkeypatch.undo()
        await trio.sleep(1)
        assert read_root_tree(tmp_path) == standing(1)
        nursery.cancel_scope.cancel()


def test_where_no_root_wrote_one_there_is_none(tmp_path: Path) -> None:
    assert read_root_tree(tmp_path) == ()
    tree_file(tmp_path).write_text('[{"path": "root"')
    assert read_root_tree(tmp_path) == ()
