"""Tables in the width of a terminal."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable

import pytest

from levers9.cli.inspect import Tree, lines_of
from levers9.cli.output import cut, fitted, print_table, short_names, wrapped
from levers9.cli.progress import Progress
from levers9.wire.control import ChildStanding


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Puts a terminal in the place of standard output; in the test itself, for pytest has its own there before."""

    def opened() -> Terminal:
        made = Terminal()
        monkeypatch.setenv("COLUMNS", "40")
        monkeypatch.setattr(sys, "stdout", made)
        return made

    return opened


def test_what_people_copy_is_never_cut_and_no_row_breaks(open_terminal: Callable[[], Terminal]) -> None:
    terminal = open_terminal()
    identity = "task-" + 24 * "a"
    print_table(("TASK", "STATE", "CARDS", "FAILURE"), [(identity, "ERROR", "–", "KeyError: 'x' " * 9)], "none")
    heading, row, *below = re.sub(r"\x1b\[\d*m", "", terminal.getvalue()).splitlines()
    assert heading.split() == ["TASK", "STATE"]
    assert row.split() == [identity, "ERROR"]
    assert below[0].startswith("  FAILURE: KeyError: 'x'")


def test_columns_come_closer_and_the_last_go_below_their_row_where_a_terminal_is_narrow(
    open_terminal: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    headings = ("WORKER", "POOL", "STATE", "MEMORY", "CARDS", "AGE", "WHY")
    rows = [("worker-" + 12 * "a", "lab-1-e606", "available", "510.9 GiB", "4 GB200", "17 min", "its Job ended")]
    widths = {}
    for columns in (60, 56, 44):
        terminal = open_terminal()
        monkeypatch.setenv("COLUMNS", str(columns))
        print_table(headings, rows, "none")
        widths[columns] = re.sub(r"\x1b\[\d*m", "", terminal.getvalue()).splitlines()
    assert [max(map(len, lines)) <= columns for columns, lines in widths.items()] == [True] * 3
    assert widths[60][2:] == ["  WHY: its Job ended"]
    assert widths[56][0].split() == ["WORKER", "POOL", "STATE", "MEMORY", "CARDS", "AGE"]
    assert widths[44][0].split() == ["WORKER", "POOL", "STATE", "MEMORY"]
    assert widths[44][2:] == ["  CARDS: 4 GB200  AGE: 17 min", "  WHY: its Job ended"]


def test_the_widest_columns_give_first() -> None:
    assert fitted([29, 20, 8, 40], [True, False, False, False], 80) == [29, 18, 8, 19]
    assert fitted([29, 20, 8, 40], [True, True, True, False], 80) == [29, 20, 8, 17]
    assert fitted([10, 5], [True, False], 80) == [10, 5]
    assert fitted([60, 30, 30], [True, False, False], 20) == [60, 5, 5]


def test_short_columns_are_cut_only_when_the_others_have_given_all() -> None:
    assert fitted([8, 7, 9, 30], [True, False, False, False], 40) == [8, 7, 9, 10]
    assert fitted([8, 7, 9, 30], [True, False, False, False], 34) == [8, 7, 8, 5]


def test_a_reason_without_room_stands_whole_below_its_row(
    open_terminal: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal()
    monkeypatch.setenv("COLUMNS", "50")
    rows = [("one", "online", "its image cannot be pulled: no such tag"), ("two", "online", "")]
    print_table(("CLUSTER", "STATE", "WHY"), rows, "none")
    assert re.sub(r"\x1b\[\d*m", "", terminal.getvalue()).splitlines() == [
        "CLUSTER  STATE",
        "one      online",
        "  WHY: its image cannot be pulled: no such tag",
        "two      online",
    ]


def test_a_reason_with_room_is_a_column(open_terminal: Callable[[], Terminal]) -> None:
    terminal = open_terminal()
    print_table(("CLUSTER", "WHY"), [("one", "no pods")], "none")
    assert re.sub(r"\x1b\[\d*m", "", terminal.getvalue()).splitlines() == ["CLUSTER  WHY", "one      no pods"]


def test_a_cut_text_has_a_sign_and_one_line() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert cut("abc\nrest", 8) == "abc…"
    assert cut("abc", 3) == "abc"


def test_what_others_wrote_drives_nobodys_terminal(open_terminal: Callable[[], Terminal]) -> None:
    assert cut("\x1b[2JH100\x07", 20) == "�[2JH100�"
    assert cut("\x9b2Jx\nrest", 20) == "�2Jx…"
    assert wrapped("no cluster '\x1b[2J'", 80) == "no cluster '�[2J'"
    terminal = open_terminal()
    print_table(("NAME", "GPU"), [("lab", "\x1b]0;x\x07H100")], "none")
    assert "\x1b]" not in terminal.getvalue()
    progress = Progress(stream := Terminal())
    progress.tell("first\n\x1b[2Jsecond")
    progress.show("\x1b]0;x\x07waits")
    assert "first\n�[2Jsecond\n" in stream.getvalue()
    assert "\x1b]" not in stream.getvalue()


def test_an_empty_table_is_a_sentence(open_terminal: Callable[[], Terminal]) -> None:
    terminal = open_terminal()
    print_table(("A",), [], "There are no calls.")
    assert terminal.getvalue() == "There are no calls.\n"


def test_an_app_that_all_share_is_left_out_on_a_terminal(open_terminal: Callable[[], Terminal]) -> None:
    open_terminal()
    assert short_names(["app/double", "app/halve"]) == ["double", "halve"]
    assert short_names(["app/double", "other/halve"]) == ["app/double", "other/halve"]


def test_sentences_break_between_words() -> None:
    assert wrapped("a word " * 12, 40).splitlines()[0] == "a word a word a word a word a word a"


def test_a_child_is_shown_below_the_nearest_one_that_is_shown() -> None:
    paths = ("brain", "brain/leader", "brain/leader/reign/tasks", "brain/leader/reign/pool/local")
    tree = Tree(children=tuple(_standing(path) for path in paths))
    assert [row[0] for row in lines_of(tree)] == ["brain", "  leader", "    reign/tasks", "    reign/pool/local"]


def test_a_process_is_shown_with_its_id_and_without_a_mailbox() -> None:
    postgres = ChildStanding(path="root/postgres", kind="process", state="running", restarts=2, process_id=77)
    assert lines_of(Tree(children=(postgres,)))[0][:5] == ("root/postgres", "running", "77", "2", "–")
    assert lines_of(Tree(children=(_standing("brain"),)))[0][2] == "–"


def _standing(path: str) -> ChildStanding:
    return ChildStanding(path=path, kind="task", state="running", restarts=0)
