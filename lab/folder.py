"""The folder of a lab: settings, keys, logs, sockets and the files of its nodes. Only its owner may look into it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from ..errors import Refused

LAB_VARIABLE: Final = "LEVERS9_LAB_DIR"
MARK_VARIABLE: Final = "LEVERS9_LAB_ID"  # every process of a lab carries its id in its environment


class LabSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A lab as it was asked for. Memory is a Kubernetes quantity, such as "512Gi"."""

    lab_id: str
    name: str = "levers9-lab"
    trays: int = 2
    gpus: int = 4
    gpu: str = "GB200"
    cpu: int = 64
    memory: str = "512Gi"
    trays_per_domain: int = 18  # an NVL72 rack has as many
    images: tuple[str, ...] = ()
    users: tuple[str, ...] = ("guest",)
    grace_s: int = 8  # how long a node may be silent before it counts as not ready
    binaries: dict[str, str] = {}


class DaemonMark(msgspec.Struct, frozen=True):
    """Which process runs a lab: its number, and when it started, in clock ticks since boot."""

    pid: int
    start_ticks: int


class LabFolder:
    """Where things of a lab lie. Making one of these touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings_file = path / "settings.json"
        self.daemon_file = path / "daemon.json"
        self.lock_file = path / "lock"
        self.log_file = path / "lab.log"
        self.keys = path / "keys"
        self.logs = path / "logs"
        self.etcd = path / "etcd"
        self.nodes = path / "nodes"
        self.socket_name = "lab.sock"

    def create(self) -> None:
        """Make the folders, for their owner alone."""
        for folder in (self.path, self.keys, self.logs, self.nodes):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)

    def settings(self) -> LabSettings | None:
        """What the lab here was asked for, or None where there is no lab."""
        try:
            return msgspec.json.decode(self.settings_file.read_bytes(), type=LabSettings)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def daemon(self) -> DaemonMark | None:
        """The process that runs the lab, or None where none was noted."""
        try:
            return msgspec.json.decode(self.daemon_file.read_bytes(), type=DaemonMark)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def kubeconfig(self, user: str = "") -> Path:
        """The kubeconfig of a user; of the administrator without a name."""
        return self.path / (f"kubeconfig-{user}" if user else "kubeconfig")


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file so that nobody ever reads half of it."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
    fresh.replace(path)


def lab_folder(environment: Mapping[str, str]) -> LabFolder:
    """The folder that `LEVERS9_LAB_DIR` names, else `levers9/lab` in the user's state folder."""
    if named := environment.get(LAB_VARIABLE):
        return LabFolder(Path(named).absolute())
    state = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".local/state")
    return LabFolder(Path(state) / "levers9" / "lab")


def no_lab() -> Refused:
    """Said by each verb that needs a lab."""
    return Refused("No lab runs here.", fix="Start one: levers9 lab up.", code="no_lab")
