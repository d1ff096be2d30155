"""`levers9 queue` and `levers9 topology`: who stands in which line, with which priority; how nodes hang together."""

from __future__ import annotations

from typing import Annotated

import cyclopts
import msgspec

from ..errors import NOT_FOUND, Refused
from ..model import queues as model
from .output import Json, print_json, print_table
from .queueing import Queue, configured, drop, memory, number, put, standing

app = cyclopts.App(name="queue", help="Queues: list, put, delete; priorities.")
priorities_app = cyclopts.App(name="priority", help="Priorities that calls may name: list, put, delete.")
topologies_app = cyclopts.App(name="topology", help="How nodes hang together: list, put, delete.")
app.command(priorities_app)

Name = Annotated[str, cyclopts.Parameter(name="NAME")]


@app.command(name="list")
def list_(*, json: Json = False) -> None:
    """List queues: requests that wait and that have room, and what they use."""
    found = standing().queues
    if json:
        print_json(found)
        return
    headings = ("QUEUE", "WORKSPACE", "QUOTA", "PENDING", "ADMITTED", "CPU", "MEMORY", "CARDS", "SHARE")
    print_table(headings, map(_row, found), "There are no queues.")


def _row(one: Queue) -> tuple[str, ...]:
    used = (number(one.used.cpu), memory(one.used.memory_mib), number(one.used.gpu))
    return one.name, one.workspace, one.quota or "–", str(one.pending), str(one.admitted), *used, f"{one.share:.1%}"


@app.command(name="put")
def put_(
    name: Name,
    /,
    *,
    workspace: str = "default",
    quota: str | None = None,
    weight: int | None = None,
    json: Json = False,
) -> None:
    """Make a queue of a workspace, or change what is given of it. The one named "default" is for calls that name none.

    Parameters
    ----------
    workspace
        Whose queue it is.
    quota
        What is counted against; `default` for a new queue.
    weight
        How much it gets beside the workspace's other queues; 1 for a new one.
    """
    names = workspace, name
    new = model.Queue(name=name, workspace=workspace)
    old = next((one for one in configured().queues if (one.workspace, one.name) == names), new)
    thing = msgspec.structs.replace(
        old,
        quota=old.quota if quota is None else quota,
        weight=old.weight if weight is None else weight,
    )
    put("queues", f"{workspace}/{name}", thing, json=json, what="Queue")


@app.command
def delete(name: Name, /, *, workspace: str = "default", json: Json = False) -> None:
    """Delete a queue; what waits in it waits in none."""
    drop("queues", f"{workspace}/{name}", json=json, what="Queue")


@priorities_app.command(name="list")
def list_priorities(*, json: Json = False) -> None:
    """List priorities."""
    found = configured().priorities
    if json:
        print_json(found)
        return
    rows = ((one.name, str(one.value)) for one in sorted(found, key=lambda one: (-one.value, one.name)))
    print_table(("PRIORITY", "VALUE"), rows, "There is only `default`, which is 0.")


@priorities_app.command(name="put")
def put_priority(name: Name, value: int, /, *, json: Json = False) -> None:
    """Make a priority, or change it: higher goes first, `default` is 0."""
    put("priorities", name, model.PriorityClass(name=name, value=value), json=json, what="Priority")


@priorities_app.command(name="delete")
def delete_priority(name: Name, /, *, json: Json = False) -> None:
    """Delete a priority."""
    drop("priorities", name, json=json, what="Priority")


@topologies_app.command(name="list")
def list_topologies(*, json: Json = False) -> None:
    """List topologies: the levels from coarse to fine, and the flavors whose nodes hang together so."""
    found = configured()
    if json:
        print_json(found.topologies)
        return
    rows = [
        (one.name, " > ".join(one.levels), ", ".join(each.name for each in found.flavors if each.topology == one.name))
        for one in found.topologies
    ]
    print_table(("TOPOLOGY", "LEVELS", "FLAVORS"), rows, "There are no topologies.")


@topologies_app.command(name="put")
def put_topology(name: Name, /, *levels: str, json: Json = False) -> None:
    """Make a topology, or change it. LEVELS are node labels from coarse to fine; below the last one is the node."""
    if not levels:
        raise Refused("No level was named.", fix="Give node labels, from coarse to fine.", code=NOT_FOUND)
    put("topologies", name, model.Topology(name=name, levels=levels), json=json, what="Topology")


@topologies_app.command(name="delete")
def delete_topology(name: Name, /, *, json: Json = False) -> None:
    """Delete a topology."""
    drop("topologies", name, json=json, what="Topology")
