"""Any message at all, as Hypothesis draws it: what a peer may send that keeps to the types of the wire."""

from __future__ import annotations

import enum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

ODDLY = 15  # once in so many times a field is not as it should be
T = TypeVar("T", bound=msgspec.Struct)
INTEGERS = st.sampled_from(
    [-(2**63), -(2**31) - 1, -3, -1, 0, 1, 2, 4, 257, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1]
)
FLOATS = st.sampled_from([float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 1.0, 1e300]) | st.floats()
ODD = (
    "",
    "\0",
    "n\0",
    "\ud800",
    "\x1b[2J",
    "a\nb",
    "n1",
    "n2",
    "w1",
    "one",
    "x" * 600,
    "e\u0301",
    "\u202eabc",
    "/",
    " ",
)
TEXTS = st.sampled_from(ODD) | st.text(max_size=8)


def drawn(kind: type[T], **known: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Any of a kind; fields in `known` are often as it says, else they too are anything."""
    hints = get_type_hints(kind)
    fields = {name: _field(hints[name], known.get(name)) for name in kind.__struct_fields__ if name in hints}
    return st.builds(kind, **fields)


def _field(hint: Any, known: st.SearchStrategy[Any] | None) -> st.SearchStrategy[Any]:
    if known is None:
        return of(hint)
    return st.integers(0, ODDLY).flatmap(lambda number: of(hint) if number == ODDLY else known)


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type of the wire."""
    if hint is int:
        return INTEGERS
    if hint is float:
        return FLOATS
    if hint is str:
        return TEXTS
    if hint is bytes:
        return st.binary(max_size=4)
    if get_origin(hint) is tuple:
        return _tuple(get_args(hint))
    if get_origin(hint) is dict:
        return st.just({})
    if get_args(hint):
        return st.one_of(*map(of, get_args(hint)))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return st.sampled_from(list(hint))
    return drawn(hint) if isinstance(hint, type) and issubclass(hint, msgspec.Struct) else st.from_type(hint)


def _tuple(arguments: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return st.lists(of(arguments[0]), max_size=3).map(tuple)
    return st.tuples(*map(of, arguments))
