"""Ports: claimed before anything starts, and when one is taken, by whom."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Final

from ..errors import Refused

_LISTEN: Final = "0A"  # /proc/net/tcp


def claim_port(host: str, port: int, purpose: str) -> int:
    """The port if it is free, or any free one for 0. Raises `Refused` that names who holds it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
                raise
            raise _taken(host, port, purpose, error) from error
        claimed: int = probe.getsockname()[1]
        return claimed


def _taken(host: str, port: int, purpose: str, error: OSError) -> Refused:
    if error.errno != errno.EADDRINUSE:
        return Refused(f"Port {port} for {purpose} cannot be used on {host}: {error.strerror}.", fix="Choose another.")
    holder = holder_of(port)
    why = f"Process {holder[0]} holds it: {holder[1]}." if holder else "Another process holds it."
    return Refused(
        f"Port {port} for {purpose} is in use.", why, "Stop that, or choose another port; 0 takes a free one."
    )


def holder_of(port: int) -> tuple[int, str] | None:
    """The process that listens on a port and its command line, as far as we may see it."""
    inodes = _listening_inodes(port)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _holds(entry, inodes):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            return int(entry.name), command[:200]
    return None


def _listening_inodes(port: int) -> set[str]:
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _holds(process: Path, inodes: set[str]) -> bool:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    try:
        return any(os.readlink(descriptor) in wanted for descriptor in (process / "fd").iterdir())
    except OSError:
        return False
