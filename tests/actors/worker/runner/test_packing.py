"""The runner's own msgpack agrees with msgspec on plain values, and refuses what would change on the way."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from levers9_test_worker import bundle_module

packing = bundle_module("packing")
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_what_it_packs_msgspec_reads(value: object) -> None:
    assert msgspec.msgpack.decode(packing.pack(value)) == value


@given(PLAIN)
def test_it_reads_what_msgspec_packs(value: object) -> None:
    assert packing.unpack(msgspec.msgpack.encode(value)) == value


@pytest.mark.parametrize("size", [0, 15, 16, 31, 32, 255, 256, 65535, 65536, 70000])
def test_every_width_of_length_goes_both_ways(size: int) -> None:
    for value in ("x" * size, b"x" * size, [1] * size, {str(n): n for n in range(size)}):
        assert packing.unpack(packing.pack(value)) == msgspec.msgpack.decode(packing.pack(value)) == value


class Loud(str):
    pass


@pytest.mark.parametrize("value", [(1,), {1: 2}, {1}, 2**63, True + 0.5j, Loud("x"), "\ud800", [[(1,)]], object()])
def test_what_would_come_back_as_something_else_is_not_plain(value: object) -> None:
    with pytest.raises(packing.NotPlain):
        packing.pack(value)


def test_a_value_that_holds_itself_is_not_plain() -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(packing.NotPlain):
        packing.pack(circle)


@pytest.mark.parametrize("data", [b"", b"\x92\x01", b"\xc1", b"\x01\x01", b"\xd9\x05ab", b"\xc4"])
def test_bytes_that_are_no_value_are_an_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        packing.unpack(data)
