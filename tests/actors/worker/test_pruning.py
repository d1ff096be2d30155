"""Checkouts go when nobody has used them for long, or when they are too much; those in use stay."""

import os
import time
from pathlib import Path

import trio
from levers9_test_worker import MemoryObjects, put_code

from levers9.actors.worker.checkout import Checkouts
from levers9.actors.worker.objects import Owner
from levers9.actors.worker.pruning import JUST_NOW_S, UNUSED_S, Kept, partial_of_the_dead, prune, to_drop

OWNER = Owner(workspace_id="ws", container_id="c")
NOW_S = 1e9


def kept(name: str, unused_for_s: float, size_bytes: int = 1) -> Kept:
    return Kept(path=Path(name), used_at_s=NOW_S - unused_for_s, size_bytes=size_bytes)


def dropped(*checkouts: Kept, kept_bytes: int = 100) -> list[str]:
    return [str(one.path) for one in to_drop(checkouts, NOW_S, kept_bytes=kept_bytes)]


def age(path: Path, by_s: float) -> None:
    os.utime(path, (time.time() - by_s,) * 2)


def test_what_nobody_used_for_a_week_goes() -> None:
    assert dropped(kept("old", UNUSED_S + 1), kept("young", UNUSED_S - 1)) == ["old"]


def test_what_is_too_much_goes_least_recently_used_first() -> None:
    checkouts = (kept("b", 8000, 60), kept("c", 9000, 30), kept("a", 7000, 20), kept("d", 9500, 1))
    assert dropped(*checkouts) == ["d", "c"]


def test_what_was_just_used_stays_however_much_it_is() -> None:
    assert dropped(kept("a", 1, 80), kept("b", JUST_NOW_S - 1, 80), kept("c", JUST_NOW_S + 1, 1)) == ["c"]


def test_a_half_done_checkout_of_a_process_that_ended_is_stale() -> None:
    names = ("a", "a.7.partial", "a.8.partial", "ax.8.partial", "a.going.8.partial", "a.partial")
    found = [name for name in names if partial_of_the_dead(name, lambda pid: pid == 7)]
    assert found == ["a.8.partial", "ax.8.partial", "a.going.8.partial", "a.partial"]


async def test_half_done_checkouts_and_files_of_dead_workers_are_removed_and_those_of_living_ones_stay(
    tmp_path: Path, objects: MemoryObjects
) -> None:
    folder = await Checkouts(tmp_path, objects).get(OWNER, put_code(objects, {"a.py": b"1"}))
    process = await trio.lowlevel.open_process(["true"])
    await process.wait()
    dead, living = (folder.with_suffix(f".{pid}.partial") for pid in (process.pid, os.getpid()))
    for partial in (dead, living):
        (partial / "deep").mkdir(parents=True)
        (partial / "deep" / "x.py").write_text("1")
        (partial / "deep").chmod(0o555)
    file = folder.parent.parent / "files" / f"{'a' * 64}.{process.pid}.partial"
    file.write_text("1")
    prune(tmp_path, time.time())
    assert (dead.exists(), living.exists(), file.exists(), folder.exists()) == (False, True, False, True)
    (living / "deep").chmod(0o755)


async def test_an_old_checkout_goes_unless_somebody_uses_it_and_comes_back_when_it_is_wanted(
    tmp_path: Path, objects: MemoryObjects
) -> None:
    checkouts = Checkouts(tmp_path, objects)
    key = put_code(objects, {"a.py": b"1", "deep/b.py": b"2"})
    async with checkouts.use(OWNER, key) as folder:
        age(folder, UNUSED_S + 60)
        assert prune(tmp_path, time.time()) == 0
    assert prune(tmp_path, time.time()) == 1
    assert list(folder.parent.iterdir()) == []
    async with checkouts.use(OWNER, key) as again:
        assert (again / "deep/b.py").read_bytes() == b"2"
        assert prune(tmp_path, time.time()) == 0


async def test_use_is_noted(tmp_path: Path, objects: MemoryObjects) -> None:
    checkouts = Checkouts(tmp_path, objects)
    key = put_code(objects, {"a.py": b"1"})
    age(await checkouts.get(OWNER, key), UNUSED_S + 60)
    async with checkouts.use(OWNER, key):
        pass
    assert prune(tmp_path, time.time()) == 0


async def test_over_the_limit_files_that_checkouts_share_count_once(tmp_path: Path, objects: MemoryObjects) -> None:
    checkouts = Checkouts(tmp_path, objects)
    shared = b"x" * 1000
    for number in range(3):
        folder = await checkouts.get(OWNER, put_code(objects, {"a.py": shared, "b.py": b"%d" % number}))
        age(folder, JUST_NOW_S + 60 + number)
    assert prune(tmp_path, time.time(), kept_bytes=1003) == 0
    assert prune(tmp_path, time.time(), kept_bytes=1002) == 1


async def test_files_that_no_checkout_has_go_after_a_while(tmp_path: Path, objects: MemoryObjects) -> None:
    checkouts = Checkouts(tmp_path, objects)
    folder = await checkouts.get(OWNER, put_code(objects, {"a.py": b"1"}))
    age(folder, UNUSED_S + 60)
    prune(tmp_path, time.time())
    files = folder.parent.parent / "files"
    assert len(list(files.iterdir())) == 1
    prune(tmp_path, time.time() + JUST_NOW_S + 1)
    assert list(files.iterdir()) == []


async def test_a_checkout_that_is_being_removed_is_made_anew(tmp_path: Path, objects: MemoryObjects) -> None:
    checkouts = Checkouts(tmp_path, objects)
    key = put_code(objects, {"a.py": b"1"})
    folder = await checkouts.get(OWNER, key)
    folder.rename(folder.with_suffix(".going.1.partial"))
    with trio.fail_after(5):
        async with checkouts.use(OWNER, key) as again:
            assert (again / "a.py").read_bytes() == b"1"
