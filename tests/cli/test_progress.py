"""What long work does now: a line that moves on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import io

from levers9.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_each_state_is_one_line_once() -> None:
    out = io.StringIO()
    progress = Progress(out, lambda: 0.0)
    for state in ("a", "a", "b"):
        progress.show(state)
    progress.tell("told")
    progress.done()
    assert out.getvalue() == "a\nb\ntold\n"


def test_on_a_terminal_what_is_too_long_for_a_line_is_told_in_full_once() -> None:
    out = Terminal()
    progress = Progress(out, lambda: 0.0)
    progress.show("x" * 100)
    progress.show("x" * 100)
    assert out.getvalue().count("x" * 100 + "\n") == 1
    assert out.getvalue().endswith("\r\x1b[K" + "x" * 73 + " (0 s)")


def test_on_a_terminal_sentences_break_between_words_and_what_is_copied_stays_in_one_line() -> None:
    out = Terminal()
    Progress(out, lambda: 0.0).tell("word " * 30 + "\n  kubectl" + " -x" * 40)
    told = out.getvalue().splitlines()
    assert [max(map(len, told[:-1])) <= 80, told[-1]] == [True, "  kubectl" + " -x" * 40]


def test_on_a_terminal_the_line_moves_and_is_gone_at_the_end() -> None:
    now, out = [0.0], Terminal()
    progress = Progress(out, lambda: now[0])
    progress.show("a")
    now[0] = 2.0
    progress.show("a")
    progress.done()
    assert out.getvalue() == "\r\x1b[Ka (0 s)\r\x1b[Ka (2 s)\r\x1b[K"
