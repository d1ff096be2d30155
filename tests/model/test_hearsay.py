"""What others say, made fit to keep and to show."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from levers9.model.hearsay import COUNT_MAX, INT4_MAX, MOMENT_MAX_S, WORDS_MAX, count, plain, seconds, sentence
from levers9.store.text import storable


def test_signs_that_drive_a_terminal_are_shown_as_signs() -> None:
    assert plain("\x1b[2JH100\x07") == "�[2JH100�"
    assert plain("one\ntwo\tthree") == "one two three"
    assert plain("‮abc\ud800") == "�abc�"
    assert plain("Größe 大") == "Größe 大"


@given(st.text())
def test_a_sentence_is_short_printable_and_storable(text: str) -> None:
    said = sentence(text, 20)
    assert len(said) <= 20
    assert said.isprintable()
    assert storable(said) == said


def test_a_long_sentence_is_cut_with_a_sign() -> None:
    assert sentence("x" * 900_000) == "x" * (WORDS_MAX - 1) + "…"
    assert sentence("x" * WORDS_MAX) == "x" * WORDS_MAX


def test_counts_stay_where_columns_end() -> None:
    assert [count(number) for number in (-3, 0, 7, 2**31, 2**63)] == [0, 0, 7, INT4_MAX, INT4_MAX]
    assert count(2**63, COUNT_MAX) == COUNT_MAX


def test_times_are_numbers() -> None:
    assert [seconds(value) for value in (math.nan, math.inf, -math.inf, -1.0, 2.5)] == [0.0, 0.0, 0.0, 0.0, 2.5]
    assert seconds(1e300) == MOMENT_MAX_S
