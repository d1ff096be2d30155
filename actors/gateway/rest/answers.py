"""Answers and errors in one form each."""

from __future__ import annotations

import http
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from ....errors import (
    FORBIDDEN,
    INVALID,
    NEVER_FITS,
    NOT_FOUND,
    NOT_LEADER,
    RATE_LIMITED,
    TOO_LARGE,
    UNAUTHENTICATED,
    UNKNOWN_GPU,
    WRONG_PYTHON,
    DeadlinePassed,
    LeversError,
    Refused,
    StoreUnavailable,
)
from ....wire.rest.answer import Answer as Answer
from ..questions import BUSY

CONFLICT: Final = "conflict"
TOO_SLOW: Final = "too_slow"
_STATUSES: Final[dict[str, int]] = {
    UNAUTHENTICATED: 401,
    FORBIDDEN: 403,
    NOT_FOUND: 404,
    INVALID: 400,
    TOO_LARGE: 413,
    RATE_LIMITED: 429,
    CONFLICT: 409,
    TOO_SLOW: 408,
    BUSY: 503,
    NOT_LEADER: 503,
    UNKNOWN_GPU: 422,
    NEVER_FITS: 422,
    WRONG_PYTHON: 422,
    StoreUnavailable.code: 503,
    DeadlinePassed.code: 504,
    "undeliverable": 503,
    LeversError.code: 500,
}
_RETRY_AFTER_S: Final = 5
_AGAIN: Final = "Try again in a few seconds."
_log: Final = structlog.get_logger("gateway.rest")


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """Every error: what happened, why, what to do, and all three as one text."""

    ok: bool = False
    code: str
    what: str
    why: str = ""
    fix: str = ""
    err_msg: str = ""


class StreamedAnswer(StreamingResponse):
    """An answer that comes in pieces; whoever makes them is told when the caller has gone."""

    async def stream_response(self, send: Send) -> None:
        """Send the pieces."""
        pieces = self.body_iterator
        assert isinstance(pieces, AsyncGenerator)
        async with aclosing(pieces):
            await super().stream_response(send)


def json_answer(answer: msgspec.Struct, status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def error_answer(body: ErrorBody, status: int) -> Response:
    """An error in JSON, with the headers that its status asks for."""
    text = " ".join(part for part in (body.what, body.why, body.fix) if part)
    answer = json_answer(msgspec.structs.replace(body, err_msg=text), status)
    if status == http.HTTPStatus.UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if status in (http.HTTPStatus.SERVICE_UNAVAILABLE, http.HTTPStatus.TOO_MANY_REQUESTS):
        answer.headers["Retry-After"] = str(_RETRY_AFTER_S)
    return answer


def body_of(error: LeversError) -> ErrorBody:
    """What is told of an error."""
    if isinstance(error, Refused):
        return ErrorBody(code=error.code, what=error.what, why=error.why, fix=error.fix)
    if isinstance(error, StoreUnavailable):
        return ErrorBody(
            code=error.code, what="The store cannot take or give anything now.", why=_sentence(str(error)), fix=_AGAIN
        )
    if isinstance(error, DeadlinePassed):
        return ErrorBody(code=error.code, what="The control plane did not answer in time.", why=str(error))
    return ErrorBody(code=error.code, what=str(error))


def _sentence(words: str) -> str:
    """The words of an error as a sentence between others."""
    return words[:1].upper() + words[1:].rstrip(".") + "." if words else ""


async def on_our_error(request: Request, error: Exception) -> Response:
    """An error that we raised on purpose."""
    assert isinstance(error, LeversError)
    return answer_of(error)


def answer_of(error: LeversError) -> Response:
    """What an error of ours looks like from outside."""
    body = body_of(error)
    return error_answer(body, _STATUSES.get(body.code, 422 if isinstance(error, Refused) else 500))


async def on_http_error(request: Request, error: Exception) -> Response:
    """No such path, or no such method."""
    assert isinstance(error, HTTPException)
    code = NOT_FOUND if error.status_code == http.HTTPStatus.NOT_FOUND else INVALID
    what = f"{request.method} {request.url.path}: {error.detail}."
    answer = error_answer(ErrorBody(code=code, what=what), error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def on_defect(request: Request, error: Exception) -> Response:
    """A defect of ours: it is logged with its trace, and its text does not leave."""
    _log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
    return error_answer(ErrorBody(code=LeversError.code, what="The gateway failed.", fix="Its log says why."), 500)
