"""What the API server says when it does not do as asked, made into errors. Pure."""

from __future__ import annotations

import http
from typing import Final

import msgspec

from ..errors import AlreadyThere, KubeRefused, KubeUnavailable, LeversError, VersionGone

BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})
MESSAGE_MAX: Final = 2_000  # characters of a message that are kept
RETRY_MAX_S: Final = 30.0
_FORBIDDEN_FIX: Final = " The account that asks needs a role that allows it (kubectl auth can-i tells)."
_UNKNOWN_FIX: Final = " The credentials are not, or no longer, accepted: log in anew, or renew them in the kubeconfig."


class Cause(msgspec.Struct, frozen=True):
    """One of the reasons of a status."""

    reason: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """More about a status."""

    retry_after_seconds: int = 0
    causes: list[Cause] | None = None


class Status(msgspec.Struct, frozen=True):
    """Kubernetes' own answer to what failed."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


_status: Final = msgspec.json.Decoder(Status, strict=False)


def read_status(body: bytes, code: int = 0) -> Status:
    """The status in an answer; what is not one, as a proxy's own page, is told by its beginning."""
    try:
        status = _status.decode(body)
    except msgspec.MsgspecError:
        status = Status()
    if status.kind == "Status":
        return status if status.code else msgspec.structs.replace(status, code=code)
    told = " ".join(body[:200].decode(errors="replace").split())
    return Status(code=code, reason=_phrase(code), message=f"it did not answer as Kubernetes does: {told or 'nothing'}")


def error_of(status: Status, asked: str) -> LeversError:
    """The error of a status; `asked` says what was asked of whom, such as `list pods at https://…`."""
    message = status.message[:MESSAGE_MAX] or f"{asked} failed"
    if version_is_gone(status):
        return VersionGone(status.code, status.reason, message)
    if status.code in BUSY or status.code >= 500 or status.code == 0:
        return KubeUnavailable(f"{asked}: the API server answered {status.code} {status.reason}: {message}")
    if status.code == 401:
        return KubeRefused(401, status.reason, f"{asked}: {message}.{_UNKNOWN_FIX}")
    if status.code == 403 and status.reason == "Forbidden":
        return KubeRefused(403, status.reason, message + "." * (not message.endswith(".")) + _FORBIDDEN_FIX)
    if status.code == 409 and status.reason == "AlreadyExists":
        return AlreadyThere(409, status.reason, message)
    return KubeRefused(status.code, status.reason, message)


def version_is_gone(status: Status) -> bool:
    """Whether a version is not served: too old, or from a future that a restored backup has undone."""
    causes = (status.details.causes if status.details else None) or ()
    return status.code == 410 or any(cause.reason == "ResourceVersionTooLarge" for cause in causes)


def retry_after_s(status: Status, header: str) -> float | None:
    """After how long the server wants to be asked again; None where it does not."""
    told = status.details.retry_after_seconds if status.details else 0
    if header.isdecimal():
        told = max(told, int(header))
    if status.code == 429:
        told = max(told, 1)
    return min(float(told), RETRY_MAX_S) if told and status.code in BUSY else None


def _phrase(code: int) -> str:
    try:
        return http.HTTPStatus(code).phrase
    except ValueError:
        return "Unknown"
