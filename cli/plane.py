"""Questions to the control plane over HTTP."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from ..errors import PeerProtocolError
from ..sdk.config import resolve
from ..sdk.rest import Rest

T = TypeVar("T")


def plane() -> Rest:
    """The control plane of the configuration. Raises `ConfigError` where there is none."""
    settings = resolve()
    return Rest(settings.http_url, settings.token)


def ask(kind: type[T], method: str, path: str, body: object = None, query: dict[str, object] | None = None) -> T:
    """The answer to one request, read as `kind`; fields that it does not have are left out."""
    asked = {name: value for name, value in (query or {}).items() if value not in ("", None, 0, False)}
    whole = f"/api/v1/{path}" + (f"?{urlencode(asked)}" if asked else "")
    rest = plane()
    try:
        answer = rest.call(method, whole, None if body is None else msgspec.json.encode(body))
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise PeerProtocolError(
            f"The control plane's answer to {method} {path} cannot be read: {error}. Use one version on both sides."
        ) from error
    finally:
        rest.close()
