"""The root's tree, for those who ask the brain: the root serves nobody, so it leaves its tree in a file beside it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import trio

from ..wire.control import ChildStanding

EVERY_S: Final = 1.0


def tree_file(run_dir: Path) -> Path:
    """Where a root's tree is."""
    return run_dir / "root.json"


async def keep_root_tree(run_dir: Path, inspect: Callable[[], tuple[ChildStanding, ...]]) -> None:
    """Write the tree each second if it has changed, until cancelled; then the file goes."""
    written: tuple[ChildStanding, ...] = ()
    try:
        while True:
            tree = inspect()
            if tree != written and _write(tree_file(run_dir), tree):
                written = tree
            await trio.sleep(EVERY_S)
    finally:
        with contextlib.suppress(OSError):
            tree_file(run_dir).unlink()


def read_root_tree(run_dir: Path) -> tuple[ChildStanding, ...]:
    """The tree as it was a second ago at most; empty where no root wrote one."""
    try:
        return msgspec.json.decode(tree_file(run_dir).read_bytes(), type=tuple[ChildStanding, ...])
    except (OSError, msgspec.DecodeError):
        return ()


def _write(path: Path, tree: tuple[ChildStanding, ...]) -> bool:
    """As a whole or not at all; whether it is written. A full disk costs the root nothing: it tries again."""
    fresh = path.with_name(f".{path.name}")
    try:
        fresh.write_bytes(msgspec.json.encode(tree))
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        return False
    return True
