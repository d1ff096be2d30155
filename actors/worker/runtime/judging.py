"""How a container ended, judged by what its keeper reported. Pure."""

from __future__ import annotations

import os
import signal

import msgspec

from ....model.states import End
from ....wire.message import Failure


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an ended process tree. `status` is as `waitpid` gives it, None when the keeper died itself."""

    status: int | None
    out_of_memory: bool
    memory_bytes: int
    memory_limit_bytes: int
    loaded: bool
    load_failure: Failure | None = None


def judge(evidence: Evidence) -> tuple[End, str]:
    """The end, and why in words."""
    if evidence.out_of_memory:
        held, limit = evidence.memory_bytes / 2**20, evidence.memory_limit_bytes / 2**20
        return (
            End.OUT_OF_MEMORY,
            f"It held {held:.0f} MiB of memory; its limit is {limit:.0f} MiB. Ask for more memory.",
        )
    if evidence.load_failure is not None:
        failure = evidence.load_failure
        return End.APP_FAILED_TO_LOAD, "\n".join(
            part for part in (failure.what, failure.why, failure.traceback) if part
        )
    how = _how(evidence.status)
    if not evidence.loaded:
        return End.APP_FAILED_TO_LOAD, f"The process {how} before its code was loaded."
    if evidence.status is None or os.WIFSIGNALED(evidence.status):
        return End.KILLED, f"The process {how}."
    return (End.OK, "") if evidence.status == 0 else (End.ERROR, f"The process {how}.")


def _how(status: int | None) -> str:
    if status is None:
        return "disappeared together with its keeper"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"was ended by signal {number} ({signal.Signals(number).name})"
    return f"exited with status {os.waitstatus_to_exitcode(status)}"
