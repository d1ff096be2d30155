"""What `levers9 lab` and the lab's daemon say to each other: a line of JSON each, over a socket in the lab's folder."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from ..errors import Refused
from .folder import LabFolder, no_lab
from .verbs import SLOW_S, Verb

LINE_MAX_BYTES: Final = 4 << 20
_ANSWERED_WITHIN_S: Final = 60.0


class AskStatus(msgspec.Struct, frozen=True, tag="status"):
    """How is it?"""


class AskFault(msgspec.Struct, frozen=True, tag="fault", kw_only=True):
    """Do this to a node."""

    verb: Verb
    node: str
    slow_s: float = SLOW_S


Ask = AskStatus | AskFault


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It has been done."""

    words: str


class RefusedToDo(msgspec.Struct, frozen=True, tag="refused"):
    """It has not."""

    why: str


class TrayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A tray, as `levers9 lab status` shows it."""

    node: str
    ready: bool
    cordoned: bool
    gpu: str
    cards: int
    cards_free: int
    pods: int
    domain: str
    faults: tuple[str, ...]


class LabStatus(msgspec.Struct, frozen=True, tag="lab", kw_only=True):
    """A lab that runs."""

    name: str
    url: str
    kubeconfig: str
    processes: dict[str, int]  # of the control plane
    trays: tuple[TrayStatus, ...]


Answer = Done | RefusedToDo | LabStatus
asks: Final = msgspec.json.Decoder(Ask)
answers: Final = msgspec.json.Decoder(Answer)


class Step(msgspec.Struct, frozen=True):
    """Progress of a start, as the daemon writes it for whoever started it; the last one is `done`, or has `failed`."""

    words: str
    done: bool = False
    failed: bool = False


steps: Final = msgspec.json.Decoder(Step)


@contextmanager
def socket_path(folder: LabFolder) -> Iterator[str]:
    """A short path of the lab's socket: the whole path may be longer than a socket's may be."""
    descriptor = os.open(folder.path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield str(Path(f"/proc/self/fd/{descriptor}") / folder.socket_name)
    finally:
        os.close(descriptor)


def ask(folder: LabFolder, question: Ask) -> Answer:
    """Ask the daemon of a lab. Raises `Refused` when none runs, or it says no."""
    try:
        with socket_path(folder) as path, socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(_ANSWERED_WITHIN_S)
            stream.connect(path)
            stream.sendall(msgspec.json.encode(question) + b"\n")
            with stream.makefile("rb") as lines:
                answer = answers.decode(lines.readline())
    except (OSError, msgspec.DecodeError) as error:
        raise no_lab() from error
    if isinstance(answer, RefusedToDo):
        raise Refused(answer.why)
    return answer
