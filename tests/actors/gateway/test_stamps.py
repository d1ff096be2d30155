"""What a peer may say, and the stamp on it."""

from __future__ import annotations

import msgspec
import pytest

from levers9.actors.gateway.stamps import Stamp, by_target, stamped, tag_of
from levers9.model.resources import Capacity
from levers9.wire.client import ResultsTaken, WatchTasks
from levers9.wire.codec import MESSAGES, Envelope, pack
from levers9.wire.control import Inspect
from levers9.wire.message import Message
from levers9.wire.scheduling import StopContainer, WorkerReported
from levers9.wire.work import AttemptsFinished

CLIENT = Stamp(role="client", source="client/c", workspace="ws", kind="workspace")
WORKER = Stamp(role="worker", source="worker/w", workspace="", kind="worker")
REPORT = WorkerReported(worker_id="w", pool="p", epoch=1, capacity=Capacity(cpu_milli=1, memory_mib=1), containers=())


def letter(message: Message, target: str) -> Envelope:
    return Envelope("id", "forged", target, pack(message), "corr", "forged", "cluster_admin", 5.0, "trace")


def test_every_message_tells_its_name_without_being_decoded() -> None:
    for kind in MESSAGES:
        name = kind.__struct_config__.tag
        assert isinstance(name, str)
        assert tag_of(msgspec.msgpack.encode({"type": name, "more": 1})) == name.encode()


@pytest.mark.parametrize("fields", [14, 15, 16, 300])
def test_a_message_of_many_fields_tells_its_name_as_well(fields: int) -> None:
    many = {"type": "ClusterReported"} | {f"field_{number}": number for number in range(fields)}
    assert tag_of(msgspec.msgpack.encode(many)) == b"ClusterReported"


def test_a_long_name_is_told_as_well() -> None:
    assert tag_of(msgspec.msgpack.encode({"type": "X" * 40})) == b"X" * 40


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc0", b"\x80", msgspec.msgpack.encode({"more": 1, "type": "WatchTasks"}), msgspec.msgpack.encode([1] * 9)],
)
def test_what_our_encoder_did_not_write_has_no_name(payload: bytes) -> None:
    assert tag_of(payload) == b""


def test_a_stamp_replaces_what_the_peer_said_of_itself_and_keeps_the_rest() -> None:
    passed, refused = stamped(CLIENT, [letter(WatchTasks(task_ids=("t",)), "tasks")])
    (one,) = passed
    assert (one.source, one.workspace, one.kind) == ("client/c", "ws", "workspace")
    assert (one.id, one.correlation, one.deadline_s, one.trace) == ("id", "corr", 5.0, "trace")
    assert refused == []


@pytest.mark.parametrize(
    ("stamp", "message", "target"),
    [
        (CLIENT, AttemptsFinished(container_id="c", results=(), window=1), "tasks"),
        (CLIENT, WatchTasks(task_ids=()), "worker/w"),
        (CLIENT, WatchTasks(task_ids=()), "scheduler"),
        (CLIENT, Inspect(), "supervisor"),
        (CLIENT, StopContainer(container_id="c", why=""), "worker/w"),
        (WORKER, ResultsTaken(task_ids=()), "tasks"),
        (WORKER, REPORT, "tasks"),
    ],
)
def test_what_is_anothers_to_say_is_refused(stamp: Stamp, message: Message, target: str) -> None:
    passed, refused = stamped(stamp, [letter(message, target)])
    assert (passed, len(refused)) == ([], 1)


def test_a_worker_reports_to_the_scheduler() -> None:
    passed, refused = stamped(WORKER, [letter(REPORT, "scheduler")])
    assert (len(passed), refused) == (1, [])


def test_groups_keep_the_order_of_each_target() -> None:
    ones = [letter(WatchTasks(task_ids=(str(n),)), target) for n, target in enumerate(["a", "b", "a"])]
    assert by_target(ones) == {"a": [ones[0], ones[2]], "b": [ones[1]]}
