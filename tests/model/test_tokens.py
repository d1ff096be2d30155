"""Tokens: the form, the kind in it, and what is stored and shown of them."""

import re

import pytest

from levers9.model.states import TokenKind
from levers9.model.tokens import PREFIXES, hash_of, hint_of, kind_of, make_token, same_hash


@pytest.mark.parametrize("kind", list(TokenKind))
def test_a_token_tells_its_kind(kind: TokenKind) -> None:
    assert kind_of(make_token(kind, bytes(range(32)))) is kind


def test_each_kind_has_a_prefix_of_its_own() -> None:
    assert sorted(PREFIXES) == sorted(TokenKind)
    assert len(set(PREFIXES.values())) == len(TokenKind)


def test_a_token_holds_all_256_bits() -> None:
    value = make_token(TokenKind.WORKSPACE, b"\xff" * 32)
    assert re.fullmatch(r"l9_space_[A-Za-z0-9_-]{43}", value)
    assert value != make_token(TokenKind.WORKSPACE, b"\xff" * 31 + b"\xfe")


@pytest.mark.parametrize("secret", [b"", b"x" * 31, b"x" * 33])
def test_a_secret_of_another_length_is_refused(secret: bytes) -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        make_token(TokenKind.WORKER, secret)


@pytest.mark.parametrize(
    "value", ["", "l9_", "l9_space_x", "l9_nokin_" + "a" * 43, "l9_space_" + "ä" * 43, f"l9_space_{0:043}\n"]
)
def test_what_is_no_token_has_no_kind(value: str) -> None:
    assert kind_of(value) is None


def test_the_hash_is_sha256_and_the_hint_hides_the_middle() -> None:
    value = make_token(TokenKind.AGENT, bytes(32))
    assert len(hash_of(value)) == 32
    assert hint_of(value) == "l9_age…AAAA"
    assert same_hash(hash_of(value), hash_of(value))
    assert not same_hash(hash_of(value), hash_of(value + "x"))
