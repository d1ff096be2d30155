"""Label selectors in Kubernetes' own words: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, `a>1`, `a<1`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from ...errors import INVALID, Refused

_KEY: Final = r"(?P<key>[A-Za-z0-9][A-Za-z0-9_./-]*)"
_VALUE: Final = r"[A-Za-z0-9_.-]*"
_FORMS: Final = (
    re.compile(rf"{_KEY}\s+(?P<verb>in|notin)\s*\((?P<values>[^()]*)\)"),
    re.compile(rf"{_KEY}\s*(?P<verb>==?|!=)\s*(?P<values>{_VALUE})"),
    re.compile(rf"{_KEY}\s*(?P<verb>[<>])\s*(?P<values>-?[0-9]+)"),
    re.compile(rf"(?P<verb>!?)\s*{_KEY}(?P<values>)"),
)
_PARTS: Final = re.compile(r",(?![^()]*\))")  # commas outside of parentheses


class _Requirement(msgspec.Struct, frozen=True):
    key: str
    verb: str
    values: tuple[str, ...]

    def met(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.verb:
            case "!":
                return value is None
            case "!=" | "notin":
                return value not in self.values
            case "=" | "==" | "in":
                return value in self.values
            case ">" | "<":
                return self._compares(value)
            case _:
                return value is not None

    def _compares(self, value: str | None) -> bool:
        try:
            number, bound = int(value or ""), int(self.values[0])
        except ValueError:
            return False
        return number > bound if self.verb == ">" else number < bound


class Selector(msgspec.Struct, frozen=True):
    """What a node's labels must be; without requirements any will do."""

    requirements: tuple[_Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether all requirements are met."""
        return all(requirement.met(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    """A selector. Raises `Refused` for what is none."""
    if not text.strip():
        return Selector()
    return Selector(tuple(_requirement(part.strip(), text) for part in _PARTS.split(text)))


def _requirement(part: str, text: str) -> _Requirement:
    match = next(filter(None, (form.fullmatch(part) for form in _FORMS)), None)
    values = tuple(value.strip() for value in match["values"].split(",")) if match else ()
    if match is None or not all(re.fullmatch(rf"-?{_VALUE}", value) for value in values):
        raise Refused(
            f"{text!r} is no label selector: {part!r} cannot be read.",
            fix="Write key=value, key!=value, key in (a,b), key notin (a,b), key or !key, joined by commas.",
            code=INVALID,
        )
    return _Requirement(match["key"], match["verb"], values)
