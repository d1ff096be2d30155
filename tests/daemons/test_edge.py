"""What a person sees of an error that ends a daemon."""

from __future__ import annotations

import pytest

from levers9.daemons.edge import told
from levers9.errors import BrokenByPeer, Refused


def fails(error: BaseException) -> int:
    raise error


def test_an_error_in_groups_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    twice = BaseExceptionGroup("", [BaseExceptionGroup("", [Refused("No.", fix="Do that.")]), Refused("No. Do that.")])
    assert told("levers9 dev", lambda: fails(twice)) == 1
    assert capsys.readouterr().err == "levers9 dev: No. Do that.\n"


def test_an_error_alone_is_a_sentence_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert told("levers9 dev", lambda: fails(BrokenByPeer("It left."))) == 1
    assert capsys.readouterr().err == "levers9 dev: It left.\n"


def test_who_writes_lines_of_their_own_gets_the_sentence() -> None:
    said: list[str] = []
    assert told("levers9 controlplane", lambda: fails(BrokenByPeer("It left.")), said.append) == 1
    assert said == ["levers9 controlplane: It left."]


def test_ctrl_c_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert told("levers9 dev", lambda: fails(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == ""


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        told("levers9 dev", lambda: fails(ZeroDivisionError()))


def test_what_ran_tells_the_exit_code() -> None:
    assert told("levers9 dev", lambda: 7) == 7
