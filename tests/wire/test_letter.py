from __future__ import annotations

import pytest

from levers9.errors import PeerProtocolError
from levers9.model.ids import Chance
from levers9.wire.client import ExplainTask, TasksAccepted
from levers9.wire.codec import Envelope, pack_batch, unpack_batch
from levers9.wire.letter import Letter, answer, open_envelope, seal
from levers9.wire.work import AttemptsHeld

ASKED = Letter(
    ExplainTask(task_id="task-1"), "client/c", "tasks", "w1", "workspace", correlation="", id="q-1", trace="t"
)


def test_a_sealed_letter_opens_as_it_was() -> None:
    (envelope,) = unpack_batch(pack_batch([seal(ASKED, Chance(1))]))
    assert open_envelope(envelope) == ASKED


def test_a_letter_without_an_id_gets_one_when_it_is_sealed() -> None:
    envelope = seal(Letter(TasksAccepted(task_ids=())), Chance(1))
    assert envelope.id.startswith("m-")


def test_an_answer_goes_back_and_names_what_it_answers() -> None:
    reply = answer(ASKED, TasksAccepted(task_ids=()))
    assert (reply.source, reply.target, reply.correlation, reply.workspace) == ("tasks", "client/c", "q-1", "w1")


def test_an_envelope_with_something_unreadable_is_refused() -> None:
    envelope = seal(ASKED, Chance(1))
    broken = Envelope(id="x", source="a", target="b", payload=type(envelope.payload)(b"\x81\xa4type\xa4Nope"))
    with pytest.raises(PeerProtocolError, match="cannot be read"):
        open_envelope(broken)


@pytest.mark.parametrize(
    ("letter", "expects"),
    [
        (ASKED, True),
        (Letter(ASKED.message, id=""), False),
        (Letter(AttemptsHeld(container_id="c", attempts=(), window=1), id="m-1"), False),
        (Letter(AttemptsHeld(container_id="c", attempts=(), window=1), id="ask-1", deadline_s=5.0), True),
    ],
)
def test_an_answer_is_expected_by_callers_and_by_whoever_asks(letter: Letter, expects: bool) -> None:
    assert letter.expects_answer is expects


def test_a_letter_says_who_wrote_what_to_whom() -> None:
    assert ASKED.sentence() == "ExplainTask from client/c to tasks"
    assert Letter(TasksAccepted(task_ids=())).sentence() == "TasksAccepted from nobody to nobody"
