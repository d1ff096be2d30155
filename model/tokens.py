"""Tokens: 256 random bits behind a prefix that names the kind; only their SHA-256 is ever stored."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final

import msgspec

from .states import TokenKind

SECRET_BYTES: Final = 32  # architecture, section 13: 256 random bits
PREFIXES: Final[dict[TokenKind, str]] = {
    TokenKind.CLUSTER_ADMIN: "l9_admin_",
    TokenKind.WORKSPACE_PRIMARY: "l9_prime_",
    TokenKind.WORKSPACE: "l9_space_",
    TokenKind.WORKSPACE_RESTRICTED: "l9_limit_",
    TokenKind.WORKER: "l9_workr_",
    TokenKind.WORKER_PRIVATE: "l9_wpriv_",
    TokenKind.MACHINE: "l9_mchne_",
    TokenKind.AGENT: "l9_agent_",
    TokenKind.REPLICA: "l9_replc_",
}
_KINDS: Final = {prefix: kind for kind, prefix in PREFIXES.items()}
_TOKEN: Final = re.compile(r"(l9_[a-z]{5}_)([A-Za-z0-9_-]{43})", re.ASCII)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks: its workspace ("" for the platform's own), the kind of its token, and a worker's id as subject."""

    token_id: str
    workspace_id: str
    kind: TokenKind
    subject: str = ""


def make_token(kind: TokenKind, secret: bytes) -> str:
    """The token's value for 32 random bytes. Raises ValueError for another length."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a token is made of {SECRET_BYTES} random bytes, not {len(secret)}")
    return PREFIXES[kind] + base64.urlsafe_b64encode(secret).rstrip(b"=").decode()


def kind_of(value: str) -> TokenKind | None:
    """The kind a value claims, or None when it has not the form of a token."""
    match = _TOKEN.fullmatch(value)
    return _KINDS.get(match[1]) if match else None


def hash_of(value: str) -> bytes:
    """What the store keeps. A value of 256 random bits needs no salt and no slow function."""
    return hashlib.sha256(value.encode()).digest()


def hint_of(value: str) -> str:
    """What lists show: the first 6 and the last 4 characters."""
    return f"{value[:6]}…{value[-4:]}"


def same_hash(one: bytes, other: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(one, other)
