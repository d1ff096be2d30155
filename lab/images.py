"""Which images nodes of a lab can pull, and how long they wait before they try again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from ..model.doubling import doubled_s

KNOWN: Final = ("levers9*", "lab/*", "busybox", "python")
FIRST_WAIT_S: Final = 10.0  # kubelet's own
LONGEST_WAIT_S: Final = 300.0


def can_pull(image: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern names the image: the whole of it, or its last part, without tag and digest."""
    bare = name_of(image)
    return any(fnmatchcase(bare, pattern) or fnmatchcase(bare.rpartition("/")[2], pattern) for pattern in patterns)


def always_pulls(image: str, policy: str) -> bool:
    """Whether a node that has the image pulls it nonetheless."""
    if policy:
        return policy == "Always"
    return "@" not in image and (name_of(image) == image or image.endswith(":latest"))


def name_of(image: str) -> str:
    """An image's name without tag and digest."""
    bare = image.partition("@")[0]
    head, colon, tag = bare.rpartition(":")
    return head if colon and "/" not in tag else bare


def wait_s(failures: int) -> float:
    """How long to wait after so many failures in a row, of a pull as of a container that crashes."""
    return doubled_s(FIRST_WAIT_S, failures - 1, LONGEST_WAIT_S)


_ENTRYPOINTS: Final = (("levers9*", ("levers9",)), ("python", ("python3",)), ("*", ("sh",)))


def entrypoint(image: str) -> tuple[str, ...]:
    """What a container runs that names no command."""
    last = name_of(image).rpartition("/")[2]
    return next(command for pattern, command in _ENTRYPOINTS if fnmatchcase(last, pattern))
