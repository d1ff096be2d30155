"""What a lab can be asked to be: what its programs would choke on later is refused at once, and why."""

from __future__ import annotations

import re
from typing import Final

from ..errors import INVALID, Refused
from ..kube.quantities import NANO, nanos
from .folder import LabSettings
from .trays import CARDS

TRAYS_MAX: Final = 250  # each has a third octet of its own
CARDS_MAX: Final = 16
GRACE_S: Final = range(4, 3601)  # nodes renew their leases four times as often, and no sooner than each second
ADMIN: Final = "admin"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MEMORY_LEAST: Final = 2**30


def check(settings: LabSettings) -> None:
    """Raises `Refused` for what no lab can be."""
    if settings.gpu not in CARDS:
        raise Refused(f"There is no card {settings.gpu} in labs.", fix=f"There are {', '.join(CARDS)}.", code=INVALID)
    _check_number("--trays", settings.trays, range(1, TRAYS_MAX + 1))
    _check_number("--gpus", settings.gpus, range(CARDS_MAX + 1))
    _check_number("--cpu", settings.cpu, range(1, 1025))
    _check_number("--trays-per-domain", settings.trays_per_domain, range(1, TRAYS_MAX + 1))
    _check_number("--grace", settings.grace_s, GRACE_S)
    if (nanos(settings.memory) or 0) < _MEMORY_LEAST * NANO:
        fix = "Write 1Gi or more, such as 512Gi."
        raise Refused(f"--memory {settings.memory!r} is no memory of a node.", fix=fix, code=INVALID)
    for flag, name in (("--name", settings.name), *(("--user", user) for user in settings.users)):
        if not _NAME.fullmatch(name):
            raise Refused(f"{flag} {name!r} is no name.", fix="Write 1 to 63 of a-z, 0-9 and -.", code=INVALID)
    if ADMIN in settings.users:
        raise Refused(f"Every lab has a user {ADMIN}.", fix="Give yours another --user.", code=INVALID)


def _check_number(flag: str, value: int, allowed: range) -> None:
    if value not in allowed:
        fix = f"Write {allowed.start} to {allowed.stop - 1}."
        raise Refused(f"{flag} {value} is too {'few' if value < allowed.start else 'many'}.", fix=fix, code=INVALID)
