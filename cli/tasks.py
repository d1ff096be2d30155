"""`levers9 task`: what became of calls."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Final

import cyclopts
import msgspec

from ..errors import INVALID, Refused
from ..model.hearsay import plain
from ..model.holds import Why
from .output import Json, ago, duration, print_json, print_table, short_names
from .plane import ask, plane

LOOK_AGAIN_S: Final = 1.0
_WAITING: Final = frozenset({"PENDING", "RETRY"})

app = cyclopts.App(name="task", help="Calls: list, show, why, logs, stop.")

Follow = Annotated[bool, cyclopts.Parameter(name=["--follow", "-f"], negative="")]
TaskId = Annotated[str, cyclopts.Parameter(name="TASK", help="The id of a call, such as task-7h2k…")]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier attempt."""

    attempt: int
    container_id: str
    worker_id: str
    end: str
    ended_at_s: float
    why: str


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A call as the control plane tells it. Times are Unix seconds, 0 for what has not happened."""

    task_id: str
    name: str
    state: str
    attempt: int
    container_id: str
    worker_id: str
    accepted_at_s: float
    started_at_s: float
    ended_at_s: float
    failure: str = ""
    fix: str = ""
    traceback: str = ""
    last_log_line: int = 0
    attempts: tuple[Attempt, ...] = ()


class Tasks(msgspec.Struct, frozen=True):
    """The answer to `task list`."""

    tasks: tuple[Task, ...]


class Stopped(msgspec.Struct, frozen=True):
    """The answer to `task stop`."""

    task_id: str
    state: str


@app.command(name="list")
def list_(*, state: str = "", function: str = "", limit: int = 50, json: Json = False) -> None:
    """List calls, newest first.

    Parameters
    ----------
    state
        Only these, such as RUNNING or PENDING,RETRY.
    function
        Only those of this function: its name, app/name, or id.
    limit
        At most so many, up to 1000.
    """
    found = ask(Tasks, "GET", "tasks", query={"state": state, "stub": function, "limit": limit})
    if json:
        print_json(found.tasks)
        return
    names = short_names([one.name for one in found.tasks])
    rows = ((one.task_id, name, one.state, ago(one.accepted_at_s), _took(one), str(one.attempt), one.failure)
            for one, name in zip(found.tasks, names))  # fmt: skip
    print_table(("TASK", "FUNCTION", "STATE", "AGE", "TOOK", "TRY", "FAILURE"), rows, "There are no calls.")


@app.command
def show(task: TaskId, /, *, json: Json = False) -> None:
    """Show one call: where it ran, its attempts, its traceback."""
    found = ask(Task, "GET", f"tasks/{task}")
    if json:
        print_json(found)
        return
    print(f"{found.task_id}  {found.name}  {found.state}")
    print(f"accepted {ago(found.accepted_at_s)} ago, attempt {found.attempt}, took {_took(found)}")
    if found.container_id:
        print(f"container {found.container_id} on worker {found.worker_id}")
    for one in found.attempts:
        print(f"attempt {one.attempt} on {one.worker_id or 'no worker'}: {one.end}. {one.why}".rstrip())
    for text in (found.failure, found.fix, found.traceback):
        if text:
            print(text)


@app.command
def why(task: TaskId, /, *, follow: Follow = False, json: Json = False) -> None:
    """Say why a call waits, or how it ended.

    Parameters
    ----------
    follow
        Say it again whenever it changes, until the call runs or has ended.
    """
    told: Why | None = None
    while True:
        found = ask(Why, "GET", f"tasks/{task}/why")
        if found != told:
            _tell(found, json=json)
        if not follow or found.state not in _WAITING:
            return
        told = found
        time.sleep(LOOK_AGAIN_S)


def _tell(found: Why, *, json: bool) -> None:
    if json:
        print_json(found)
    else:
        print(f"{found.task_id} is {found.state}.", *(f"- {plain(reason)}" for reason in found.reasons), sep="\n")
    sys.stdout.flush()


@app.command
def stop(*tasks: TaskId) -> None:
    """Cancel calls. Code that runs gets 30 s to end."""
    if not tasks:
        raise Refused("No call was named.", fix="Give the ids of calls; `levers9 task list` shows them.", code=INVALID)
    for task in tasks:
        found = ask(Stopped, "POST", f"tasks/{task}/stop")
        print(f"{found.task_id} is {found.state}.")


@app.command
def logs(
    task: TaskId,
    /,
    *,
    follow: Follow = False,
    after: int = 0,
) -> int:
    """Print what a call wrote.

    Parameters
    ----------
    follow
        Wait for more until the call has ended.
    after
        Begin after this line.
    """
    from ..sdk.task import read_lines

    for line in read_lines(plane(), task, follow=follow, after=after):
        print(line.text, file=sys.stderr if line.stream == "err" else sys.stdout, flush=follow)
    return 0


def _took(task: Task) -> str:
    if not task.started_at_s:
        return "–"
    return duration(max(0.0, (task.ended_at_s or time.time()) - task.started_at_s))
