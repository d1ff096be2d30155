"""`levers9 token`: who may do what."""

from __future__ import annotations

from typing import Annotated

import cyclopts
import msgspec

from ..errors import INVALID, Refused
from ..model.states import TokenKind
from ..sdk.config import nearest
from .output import Json, ago, print_json, print_table
from .plane import ask

app = cyclopts.App(name="token", help="Tokens: list, create, revoke.")


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as the control plane tells it; the token itself is told once, when it is made."""

    token_id: str
    workspace_id: str
    kind: str
    name: str
    hint: str
    active: bool
    created_at_s: float
    token: str = ""


class Tokens(msgspec.Struct, frozen=True):
    """The answer to `token list`."""

    tokens: tuple[Token, ...]


class Revoked(msgspec.Struct, frozen=True):
    """The answer to `token revoke`."""

    token_id: str


@app.command(name="list")
def list_(*, all: bool = False, json: Json = False) -> None:
    """List tokens: what they are for, never the tokens themselves.

    Parameters
    ----------
    all
        Those of workers, containers and replicas as well, and those that were revoked.
    """
    found = [one for one in ask(Tokens, "GET", "tokens").tokens if all or (one.active and not _of_a_machine(one))]
    if json:
        print_json(found)
        return
    print_table(
        ("TOKEN", "KIND", "NAME", "BEGINS", "STATE", "AGE", "WORKSPACE"), map(_row, found), "There are no tokens."
    )


@app.command
def create(*, kind: str = "workspace", name: str = "", workspace: str = "", json: Json = False) -> None:
    """Make a token. It is printed once, alone on standard output; nobody can read it again.

    Parameters
    ----------
    kind
        workspace, workspace_restricted, workspace_primary, worker …
    name
        What it is for, to be found in the list.
    workspace
        The workspace it is for; your own by default.
    """
    if kind not in {str(one) for one in TokenKind}:
        meant = nearest(kind, [str(one) for one in TokenKind])
        fix = f"Did you mean {meant!r}?" if meant else f"Kinds are: {', '.join(TokenKind)}."
        raise Refused(f"There is no kind of token {kind!r}.", fix=fix, code=INVALID)
    found = ask(Token, "POST", "tokens", body={"kind": kind, "name": name, "workspace": workspace})
    if json:
        print_json(found)
    else:
        print(found.token)


@app.command
def revoke(token: Annotated[str, cyclopts.Parameter(name="TOKEN_ID")], /) -> None:
    """Revoke a token by its id; whoever uses it is cut off."""
    found = ask(Revoked, "DELETE", f"tokens/{token}")
    print(f"{found.token_id} is revoked.")


def _row(one: Token) -> tuple[str, ...]:
    state = "" if one.active else "revoked"
    return one.token_id, one.kind, one.name or "–", one.hint, state, ago(one.created_at_s), one.workspace_id or "–"


def _of_a_machine(token: Token) -> bool:
    """Made by the control plane, for a part of its own."""
    return token.kind in ("worker", "replica") or token.name.startswith("container container-")
