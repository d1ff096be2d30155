"""Quantities are read as Kubernetes reads them, of any size, and never with a crash."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levers9.kube.quantities import MILLI, NANO, down, nanos, up

from ..actors.agent.literal import FACTORS, quantity

NUMBERS = st.from_regex(r"[+-]?(\d{1,30}(\.\d{0,12})?|\.\d{1,12})", fullmatch=True).filter(str.isascii)
SUFFIXES = st.sampled_from(["", *FACTORS])
EXPONENTS = st.from_regex(r"[eE][+-]?\d{1,2}", fullmatch=True).filter(str.isascii)


@pytest.mark.slow
@given(NUMBERS, st.one_of(SUFFIXES, EXPONENTS))
def test_a_quantity_is_what_its_text_says(number: str, suffix: str) -> None:
    assert Fraction(nanos(number + suffix) or 0, NANO) == quantity(number + suffix)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7910m", 7_910_000_000),
        ("1E", 10**27),
        ("1E3", 1000 * NANO),
        ("1e-3", NANO // 1000),
        ("5.", 5 * NANO),
        (".5", NANO // 2),
        ("2095606484Ki", 2095606484 * 1024 * NANO),
        ("1181116006400m", 1181116006400 * MILLI),
        ("0.1n", 1),
        ("-0.1n", -1),
        ("99999999999999999999", 99999999999999999999 * NANO),
        (3, 3 * NANO),
        (0.1, NANO // 10),
        (1e21, 10**30),
    ],
)
def test_odd_spellings_are_understood(text: str | float, expected: int) -> None:
    assert nanos(text) == expected


@pytest.mark.parametrize(
    "text", ["", "K", "1K", "1KiB", "1ki", "1 Gi", "1e", "1E+", ".", "-", "m", "1mm", "0x10", "1_000", "١", "Infinity"]
)
def test_what_is_no_quantity_is_told_from_one(text: str) -> None:
    assert nanos(text) is None


@given(st.text(max_size=20))
def test_no_text_crashes(text: str) -> None:
    assert nanos(text) is None or isinstance(nanos(text), int)


def test_an_exponent_beyond_reason_costs_nothing() -> None:
    assert (nanos("1e999999999") or 0) > 10**1000
    assert nanos("1e-999999999") == 1
    assert nanos("9" * 10_000) is None


def test_what_is_asked_for_is_rounded_up_and_what_there_is_down() -> None:
    amount = nanos("400m") or 0
    assert (up(amount, NANO), down(amount, NANO)) == (1, 0)
    assert up(nanos("1.0005") or 0, MILLI) == 1001
