"""`levers9 lab` where no lab runs; with one it is tried in tests/lab."""

from pathlib import Path

import pytest

from levers9.lab.verbs import Verb

from .conftest import Line


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVERS9_LAB_DIR", str(tmp_path / "lab"))


@pytest.mark.parametrize("verb", ["status", "down", "kubeconfig"])
def test_without_a_lab_it_says_how_to_start_one(line: Line, verb: str) -> None:
    done = line("lab", verb)
    assert (done.code, done.out) == (1, "")
    assert done.err == "levers9: No lab runs here. Start one: levers9 lab up.\n"


@pytest.mark.parametrize("verb", [each.value for each in Verb])
def test_every_fault_is_a_verb(line: Line, verb: str) -> None:
    done = line("lab", verb, "tray-0")
    assert (done.code, done.err) == (1, "levers9: No lab runs here. Start one: levers9 lab up.\n")


def test_a_card_that_labs_have_not_is_refused_with_those_that_they_have(line: Line) -> None:
    done = line("lab", "up", "--gpu", "GB999")
    assert done.code == 1
    assert "There is no card GB999" in done.err
    assert "GB200" in done.err


@pytest.mark.parametrize(("flag", "value"), [("--memory", "lots"), ("--trays", "0"), ("--grace", "0")])
def test_what_no_lab_can_be_is_refused_before_one_starts(line: Line, tmp_path: Path, flag: str, value: str) -> None:
    done = line("lab", "up", flag, value)
    assert (done.code, f"{flag} " in done.err, (tmp_path / "lab").exists()) == (1, True, False)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "601"])
def test_a_delay_that_is_none_is_refused(line: Line, seconds: str) -> None:
    done = line("lab", "slow", "tray-0", "--seconds", seconds)
    assert (done.code, "is no delay. Write more than 0, and at most 600." in done.err) == (1, True)


def test_without_programs_it_says_what_to_install(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    done = line("lab", "up")
    assert done.code == 1
    assert "apt-get install etcd-server" in done.err


def test_a_verb_that_there_is_not_is_a_wrong_command_line(line: Line) -> None:
    assert line("lab", "explode", "tray-0").code == 2
