"""How a container ended, in words."""

import signal

import msgspec
import pytest

from levers9.actors.worker.runtime.environment import visible
from levers9.actors.worker.runtime.judging import Evidence, judge
from levers9.model.states import End
from levers9.wire.message import Failure

FINE = Evidence(status=0, out_of_memory=False, memory_bytes=0, memory_limit_bytes=64 << 20, loaded=True)


@pytest.mark.parametrize(
    ("changes", "end", "words"),
    [
        ({}, End.OK, ""),
        ({"status": 3 << 8}, End.ERROR, "exited with status 3"),
        ({"status": int(signal.SIGSEGV)}, End.KILLED, "signal 11 (SIGSEGV)"),
        ({"status": None}, End.KILLED, "together with its keeper"),
        (
            {"out_of_memory": True, "memory_bytes": 70 << 20},
            End.OUT_OF_MEMORY,
            "70 MiB of memory; its limit is 64",
        ),
        ({"loaded": False, "status": 1 << 8}, End.APP_FAILED_TO_LOAD, "status 1 before its code was loaded"),
        ({"load_failure": Failure("load", "What.", "Why.")}, End.APP_FAILED_TO_LOAD, "What.\nWhy."),
    ],
)
def test_evidence_becomes_an_end_and_a_reason(changes: dict[str, object], end: End, words: str) -> None:
    judged, why = judge(msgspec.structs.replace(FINE, **changes))
    assert judged is end
    assert words in why


def test_containers_inherit_no_secret() -> None:
    ours = {"PATH": "/bin", "LC_ALL": "C", "LEVERS9_WORKER_TOKEN": "s", "AWS_SECRET_ACCESS_KEY": "s", "HOME": "/h"}
    assert visible(ours) == {"PATH": "/bin", "LC_ALL": "C", "HOME": "/h"}
