"""`levers9 workspace`: who works apart from whom."""

from __future__ import annotations

import cyclopts
import msgspec

from .output import Json, ago, print_json, print_table
from .plane import ask

app = cyclopts.App(name="workspace", help="Workspaces: list, create.")


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace as the control plane tells it."""

    workspace_id: str
    name: str
    created_at_s: float


class Workspaces(msgspec.Struct, frozen=True):
    """The answer to `workspace list`."""

    workspaces: tuple[Workspace, ...]


class Created(msgspec.Struct, frozen=True):
    """The answer to `workspace create`, with the workspace's first token."""

    workspace_id: str
    name: str
    token: str


@app.command(name="list")
def list_(*, json: Json = False) -> None:
    """List the workspaces you may see."""
    found = ask(Workspaces, "GET", "workspaces")
    if json:
        print_json(found.workspaces)
        return
    rows = ((one.workspace_id, one.name, ago(one.created_at_s)) for one in found.workspaces)
    print_table(("WORKSPACE", "NAME", "AGE"), rows, "There are no workspaces.")


@app.command
def create(name: str, /, *, json: Json = False) -> None:
    """Make a workspace. Its first token is printed once; nobody can read it again."""
    found = ask(Created, "POST", "workspaces", body={"name": name})
    if json:
        print_json(found)
    else:
        print(f"{found.name} is {found.workspace_id}. Its token:\n{found.token}")
