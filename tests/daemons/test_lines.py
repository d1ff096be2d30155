"""What a root passes on of its processes' lines, and how it tells them for whom they write."""

from __future__ import annotations

import json
import logging

import pytest

from levers9.daemons.lines import LogStyle, RootLogs, as_json, chosen_style, for_person, without_colours


@pytest.mark.parametrize(
    ("said", "is_terminal", "style"),
    [
        (None, True, LogStyle.PRETTY),
        (None, False, LogStyle.JSON),
        ("pretty", False, LogStyle.PRETTY),
        ("json", True, LogStyle.JSON),
        ("loud", True, LogStyle.PRETTY),
    ],
)
def test_what_the_root_says_counts_and_else_the_terminal(said: str | None, is_terminal: bool, style: LogStyle) -> None:
    environment = {} if said is None else {"LEVERS9_LOGS": said}
    assert chosen_style(environment, is_terminal=is_terminal) is style


def test_an_object_gets_the_name_of_its_process_and_keeps_the_rest() -> None:
    line = '{"event": "we lead", "epoch": 3, "process": "another", "nested": {"a": [1, null]}}'
    assert json.loads(as_json("brain", line)) == {
        "process": "brain",
        "event": "we lead",
        "epoch": 3,
        "nested": {"a": [1, None]},
    }


@pytest.mark.parametrize("line", ["LOG:  ready", '{"cut off', "[1, 2]", "", 'he said "no"\t', "7"])
def test_what_is_no_object_becomes_the_event_of_one(line: str) -> None:
    assert json.loads(as_json("postgres", line)) == {"process": "postgres", "event": line}


def test_a_person_sees_the_name_in_front_and_a_file_has_no_colours() -> None:
    shown = for_person("brain", "\x1b[1;32mwe lead\x1b[0m")
    assert "\x1b[2mbrain:" in shown
    assert without_colours(shown) == "brain: we lead"


def logged(style: LogStyle, log: logging.Logger) -> list[tuple[str, str]]:
    """What a root with this logger passes on of a warning with a traceback."""
    heard: list[tuple[str, str]] = []
    log.addHandler(RootLogs(lambda name, line: heard.append((name, line)), style))
    log.propagate = False
    try:
        raise ValueError("boom")
    except ValueError:
        log.warning("root/brain crashed", exc_info=True)
    return heard


def test_a_record_of_the_root_with_its_traceback_is_one_object() -> None:
    ((name, line),) = logged(LogStyle.JSON, logging.Logger("levers9.supervisor"))
    said = json.loads(line)
    assert (name, said["level"], said["logger"]) == ("root", "warning", "levers9.supervisor")
    assert said["event"].startswith("root/brain crashed\nTraceback")
    assert said["event"].endswith("ValueError: boom")


def test_a_record_of_the_root_is_lines_for_a_person() -> None:
    heard = logged(LogStyle.PRETTY, logging.Logger("levers9.supervisor"))
    assert heard[0] == ("root", "root/brain crashed")
    assert heard[-1] == ("root", "ValueError: boom")
