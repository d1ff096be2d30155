"""How a server that refuses to run as root is run by root: as an account of its own, without opening root's folders."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ..errors import Refused

ACCOUNT: Final = "levers9"
_FALLBACK: Final = "nobody"
_READ_SEARCH_BIT: Final = 2  # CAP_DAC_READ_SEARCH, capabilities(7)


def drop_prefix(folder: Path, *, die_with_parent: bool = False) -> tuple[str, ...]:
    """What to put before a command so that it runs as an ordinary account that owns `folder`; () when we are not root.

    `folder` is handed to the account. Where the way there, or to our own programs, is closed to it (`/root`), the
    command keeps the one capability that opens it. With `die_with_parent`, it gets SIGINT when the thread that
    started it ends, so start it from the main thread then. Raises `Refused` when root has no way to do this.
    """
    if os.geteuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise Refused(
            "Postgres cannot run as root.",
            "The program setpriv (of util-linux), which starts it as another account, is missing.",
            "Install util-linux, run as an ordinary user, or name a Postgres of your own.",
        )
    account = _account()
    os.chown(folder, account.pw_uid, account.pw_gid)
    capability = _capability()
    return (
        setpriv,
        f"--reuid={account.pw_uid}",
        f"--regid={account.pw_gid}",
        "--clear-groups",
        *(("--pdeathsig", "INT") if die_with_parent else ()),
        f"--inh-caps=-all,+{capability}",
        f"--ambient-caps=-all,+{capability}",
        f"--bounding-set=-all,+{capability}",
        "--",
    )


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        pass
    useradd = shutil.which("useradd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if useradd is not None:
        command = [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", ACCOUNT]
        subprocess.run(command, capture_output=True, check=False, timeout=30)
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        return pwd.getpwnam(_FALLBACK)


def _capability() -> str:
    """Containers often lack the narrow capability and have the wider one."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    bounding = int(status.split("CapBnd:")[1].split()[0], 16)
    return "dac_read_search" if bounding >> _READ_SEARCH_BIT & 1 else "dac_override"
