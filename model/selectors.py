"""Label selectors in Kubernetes' own words: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`, `a>1`, `a<1`.

Commas join conditions that all have to be met.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from ..errors import INVALID, Refused

_KEY: Final = r"(?:[A-Za-z0-9][A-Za-z0-9.-]{0,252}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_SET: Final = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL: Final = re.compile(rf"({_KEY})\s*(==|=|!=)\s*(.*)")
_ORDER: Final = re.compile(rf"({_KEY})\s*([<>])\s*(-?[0-9]+)")
_PRESENT: Final = re.compile(rf"(!?)\s*({_KEY})")
_FORMS: Final = "Write key=value, key!=value, 'key in (a,b)', 'key notin (a,b)', key or '!key'."


class Operator(enum.StrEnum):
    """How a label is compared."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "absent"
    MORE = "more"
    LESS = "less"


class Term(msgspec.Struct, frozen=True):
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it; `notin` is met also where there is no such label, as in Kubernetes."""
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.ABSENT:
                return self.key not in labels
            case Operator.MORE | Operator.LESS:
                return self._compares(labels.get(self.key, ""))

    def _compares(self, value: str) -> bool:
        """Labels are texts: one that is no number is neither more nor less."""
        if not re.fullmatch(r"-?[0-9]+", value):
            return False
        number, bound = int(value), int(self.values[0])
        return number > bound if self.operator is Operator.MORE else number < bound


def parse(selector: str) -> tuple[Term, ...]:
    """The conditions, all of which are to be met; none for "". Raises `Refused` for what is no selector."""
    return tuple(_term(part) for part in _parts(selector))


def selects(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether labels meet a selector. Raises `Refused` for what is no selector."""
    return all(term.matches(labels) for term in parse(selector))


def selector_of(pairs: Mapping[str, str]) -> str:
    """A selector from pairs, as they are sent by those who split theirs at the first `=`.

    A key without a value is a whole condition, and a value may be a set: {"pool": "in (a,b)"}.
    """
    return ",".join(_joined(key.strip(), value.strip()) for key, value in pairs.items())


def _joined(key: str, value: str) -> str:
    if not value:
        return key
    return f"{key} {value}" if re.match(r"(in|notin)\s*\(", value) else f"{key}={value}"


def _parts(selector: str) -> Iterator[str]:
    """Split at commas that are not inside a set; a comma with nothing beside it is no condition left out."""
    if selector.strip():
        yield from (part.strip() for part in re.split(r",(?![^(]*\))", selector))


def _term(part: str) -> Term:
    if found := _SET.fullmatch(part):
        values = tuple(value.strip() for value in found[3].split(","))
        term = Term(found[1], Operator(found[2]), values)
    elif found := _EQUAL.fullmatch(part):
        term = Term(found[1], Operator.NOT_IN if found[2] == "!=" else Operator.IN, (found[3].strip(),))
    elif found := _ORDER.fullmatch(part):
        return Term(found[1], Operator.MORE if found[2] == ">" else Operator.LESS, (found[3],))
    elif found := _PRESENT.fullmatch(part):
        term = Term(found[2], Operator.ABSENT if found[1] else Operator.EXISTS)
    else:
        raise Refused(f"{part[:80]!r} selects no nodes.", "It is no label selector.", _FORMS, INVALID)
    wrong = [value for value in term.values if not _VALUE.fullmatch(value)]
    if wrong:
        raise Refused(f"{wrong[0][:80]!r} in {part[:80]!r} can be no label's value.", fix=_FORMS, code=INVALID)
    return term
