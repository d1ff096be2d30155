"""Kubernetes' quantities, exactly: integers of a thousand-millionth, of any size.

The grammar is that of Kubernetes (reference, section 5.1): digits with an optional point and sign, then nothing, one of
n u m k M G T P E, one of Ki Mi Gi Ti Pi Ei, or an exponent. `1E` is an exa, `1E3` a thousand; `K` and `KiB` are wrong.
What is finer than a thousand-millionth is rounded away from zero, as Kubernetes does when it stores it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

NANO: Final = 10**9  # in one unit: a CPU, a byte, a card
MILLI: Final = 10**6  # in a thousandth of a CPU
_GRAMMAR: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?:(?P<binary>[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+)|(?P<decimal>[numkMGTPE]?))"
)
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LENGTH_MAX: Final = 256  # characters; Kubernetes writes far fewer
_EXPONENT_MAX: Final = 1000  # far beyond any machine; more would only cost us time
_REMEMBERED: Final = 8192  # texts: a large cluster has few different ones


def nanos(value: str | int | float) -> int | None:
    """A quantity in thousand-millionths of its unit; None for what is no quantity."""
    if isinstance(value, int):
        return value * NANO
    return _parsed(value if isinstance(value, str) else repr(value))


@lru_cache(maxsize=_REMEMBERED)
def _parsed(text: str) -> int | None:
    match = _GRAMMAR.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if match is None:
        return None
    part = match["only"] or match["part"] or ""
    digits = int((match["whole"] or "") + part)
    power = 9 - len(part)
    if match["binary"]:
        digits <<= _BINARY[match["binary"]]
    elif match["exponent"]:
        power += max(-_EXPONENT_MAX, min(_EXPONENT_MAX, int(match["exponent"])))
    else:
        power += _DECIMAL[match["decimal"]]
    scale: int = 10 ** abs(power)
    amount = digits * scale if power >= 0 else up(digits, scale)
    return -amount if match["sign"] == "-" else amount


def up(amount: int, unit: int) -> int:
    """So many whole units, rounded up: for what is asked for."""
    return -(-amount // unit)


def down(amount: int, unit: int) -> int:
    """So many whole units, rounded down: for what there is."""
    return amount // unit
