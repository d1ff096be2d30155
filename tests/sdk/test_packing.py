"""Values keep their exact types, and what cannot travel is named."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from types import ModuleType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levers9.errors import Refused
from levers9.model.figures import INLINE_MAX_BYTES
from levers9.sdk.packing import MSGPACK, PICKLE, is_plain, pack_call, payload, pickled, unpack_result, unpickled
from levers9.wire.message import Payload


class Text(str):
    pass


class Shelf:
    """An object store in a dict."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put(self, key: str, data: bytes) -> None:
        self.kept[key] = data

    def get(self, key: str) -> bytes:
        return self.kept[key]


plain_scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text() | st.binary()
plain_values = st.recursive(
    plain_scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)
any_values = st.recursive(
    plain_scalars | st.integers() | st.complex_numbers() | st.decimals(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


def same(left: object, right: object) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)


@given(plain_values)
def test_plain_values_travel_as_msgpack_and_come_back_the_same(value: object) -> None:
    format, data = pack_call((value,), {})
    assert format == MSGPACK
    assert same(msgspec.msgpack.decode(data), [[value], {}])


@given(any_values)
def test_every_value_comes_back_as_what_it_was(value: object) -> None:
    format, data = pack_call((value,), {"named": value})
    back = msgspec.msgpack.decode(data) if format == MSGPACK else unpickled(data)
    assert same(list(back), [[value], {"named": value}] if format == MSGPACK else [(value,), {"named": value}])


@pytest.mark.parametrize(
    "value",
    [(1,), {1}, Text("x"), OrderedDict(a=1), {1: 2}, {Text("k"): 1}, 2**64, bytearray(b"x"), [[(1,)]], "\ud800"],
)
def test_what_is_not_plain_is_pickled(value: object) -> None:
    assert pack_call((value,), {})[0] == PICKLE


def test_a_list_that_contains_itself_is_pickled() -> None:
    value: list[object] = []
    value.append(value)
    assert not is_plain(value)
    assert pack_call((value,), {})[0] == PICKLE


def test_a_large_value_goes_to_the_object_store_once() -> None:
    shelf = Shelf()
    data = b"x" * (INLINE_MAX_BYTES + 1)
    packed = payload(PICKLE, data, shelf)
    assert (packed.data, packed.size_bytes) == (b"", len(data))
    assert shelf.kept == {packed.object_key: data}


def test_a_value_at_the_limit_stays_in_the_message() -> None:
    assert payload(PICKLE, b"x" * INLINE_MAX_BYTES, Shelf()).object_key == ""


def test_arguments_over_the_limit_are_refused_and_name_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levers9.sdk.packing.PAYLOAD_MAX_BYTES", 1 << 20)
    with pytest.raises(Refused, match=r"2.0 MiB\. The limit is 1 MiB\. Put the data where"):
        payload(PICKLE, b"x" * (2 << 20), Shelf())


def test_the_argument_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(Refused, match="Argument 'lock', a lock, cannot be pickled"):
        pack_call((1,), {"lock": threading.Lock()})


def test_a_result_that_cannot_be_unpickled_says_what_to_do() -> None:
    with pytest.raises(Refused, match="cannot be unpickled here"):
        unpack_result(Payload("pickle", b"cno_such_module\nthing\n."), Shelf())


def test_a_result_comes_from_the_object_store() -> None:
    shelf = Shelf()
    shelf.put("blob/1", msgspec.msgpack.encode([1, 2]))
    assert unpack_result(Payload("msgpack", b"", "blob/1"), shelf) == [1, 2]


def test_what_a_script_defines_arrives_as_what_its_module_defines(monkeypatch: pytest.MonkeyPatch) -> None:
    main, known = ModuleType("__main__"), ModuleType("known_script")
    source = "class Point:\n    def __init__(self, x): self.x = x\n"
    for module in (main, known):
        exec(source, module.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setitem(sys.modules, "known_script", known)
    back = unpickled(pickled(main.Point(7), "known_script"))
    assert type(back) is known.Point
    assert back.x == 7  # type: ignore[attr-defined]
