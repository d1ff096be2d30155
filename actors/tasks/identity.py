"""A function's identity: equal specs of a workspace are one."""

from __future__ import annotations

import hashlib

import msgspec

from ...wire.client import StubSpec


def stub_id(workspace_id: str, spec: StubSpec) -> str:
    """Made of what a spec says beyond its defaults: a new field changes the identity of no function without it."""
    digest = hashlib.blake2b(msgspec.msgpack.encode((workspace_id, _said(spec))), digest_size=12)
    return f"stub-{digest.hexdigest()}"


def _said(struct: msgspec.Struct) -> list[tuple[str, object]]:
    said: list[tuple[str, object]] = []
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if value != field.default:
            said.append((field.name, _said(value) if isinstance(value, msgspec.Struct) else value))
    return said
