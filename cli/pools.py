"""`levers9 pool`: where workers come from, what is wanted of each pool, and what holds it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, cast

import cyclopts

from ..errors import INVALID, Refused
from ..model.resources import Capacity
from ..model.sentences import plural
from ..wire.rest.pools import PoolList, PoolNames, PoolShown, PoolView
from .output import Json, ago, print_json, print_table
from .plane import ask

app = cyclopts.App(name="pool", help="Pools of workers: list, show, create, delete.")
Name = Annotated[str, cyclopts.Parameter(name="NAME")]


@app.command(name="list")
def list_(*, json: Json = False) -> None:
    """List pools in the order in which they are asked for workers."""
    found = ask(PoolList, "GET", "pools").pools
    if json:
        print_json(found)
        return
    headings = ("POOL", "STATE", "SIZE", "NODES", "WORKERS", "PENDING", "MAXIMUM", "WANTED", "HELD")
    print_table(headings, map(_row, found), "There are no pools.")


def _row(one: PoolView) -> tuple[str, ...]:
    state = "leaving" if one.leaving else "created" if one.created else "configured"
    size = "–" if one.size is None else size_of(one.size)
    counts = (str(len(one.nodes) or "–"), str(one.workers), str(one.pending), str(one.max_workers), str(one.wanted))
    return one.name, state, size, *counts, " ".join(one.holds)


@app.command
def show(name: Name, /, *, json: Json = False) -> None:
    """Show one pool: its size and nodes, its workers, what is wanted of it, and what holds that."""
    found = ask(PoolShown, "GET", f"pools/{name}")
    if json:
        print_json(found)
        return
    print("\n".join(_sentences(found.pool)))
    if found.pool.nodes:
        print()
        rows = ((one.name, one.state, size_of(one.capacity), _labels(one.labels), one.worker_id or "–")
                for one in found.pool.nodes)  # fmt: skip
        print_table(("NODE", "STATE", "SIZE", "LABELS", "WORKER"), rows, "")
    print()
    workers = ((one.worker_id, one.state, one.node or "–", one.gang_id or "–", ago(one.ordered_at_s), one.why)
               for one in found.workers)  # fmt: skip
    print_table(("WORKER", "STATE", "NODE", "GANG", "AGE", "WHY"), workers, "It has no workers.")


def _sentences(pool: PoolView) -> list[str]:
    where = "of no size" if pool.size is None else f"of {size_of(pool.size)}"
    where = f"on {_count(len(pool.nodes), 'node')}" if pool.nodes else where
    said = [f"{pool.name}: {pool.min_workers} to {_count(pool.max_workers, 'worker')} {where}."]
    if pool.leaving:
        said = [f"{pool.name} is being taken away: it is gone with its last worker."]
    said.append(
        f"It has {pool.workers}, of which {pool.pending} {'is on its' if pool.pending == 1 else 'are on their'} way."
    )
    if pool.wanted or pool.wanted_gangs or pool.beyond:
        gangs = f" and {_count(pool.wanted_gangs, 'gang')}" if pool.wanted_gangs else ""
        more = ", and more than it may have" if pool.beyond else ""
        said.append(f"Wanted: {_count(pool.wanted, 'more worker')}{gangs}{more}.")
    said += [f"Held: {hold}" for hold in pool.holds]
    return said


@app.command
def create(
    name: Annotated[str, cyclopts.Parameter(name="NAME")] = "",
    /,
    *,
    file: Path | None = None,
    cpu: float = 1.0,
    memory: str = "1Gi",
    gpu: str = "",
    gpu_count: int = 0,
    max_workers: int = 1,
    min_workers: int = 0,
    isolation: str = "none",
    json: Json = False,
) -> None:
    """Create a pool, from flags or from a file with the keys of one `[[pools]]` table.

    Parameters
    ----------
    file
        TOML: the keys of one pool, or a whole configuration with one; the flags count for nothing then.
    cpu
        CPUs of one worker.
    memory
        Its memory, such as 8Gi.
    gpu
        The type of its cards.
    gpu_count
        How many it has.
    max_workers
        Workers at most.
    min_workers
        Workers that never wind down.
    isolation
        none, or trusted: it serves all workspaces, which then trust each other.
    """
    keys: dict[str, object] = {
        "cpu": cpu, "memory": memory, "gpu": gpu, "gpu_count": gpu_count,
        "min_workers": min_workers, "max_workers": max_workers, "isolation": isolation,
    }  # fmt: skip
    keys = _read(file) if file is not None else keys
    keys["name"] = name or keys.get("name", "")
    if not keys["name"]:
        raise Refused("The pool has no name.", fix="Write: levers9 pool create NAME.", code=INVALID)
    found = ask(PoolNames, "POST", "pools", body=keys)
    if json:
        print_json(found)
    else:
        print(f"Pool {keys['name']} is created.")


def _read(path: Path) -> dict[str, object]:
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise Refused(f"{path} cannot be read: {error}.", fix="Name a TOML file.", code=INVALID) from error
    pools = table.get("pools", [table])
    if not isinstance(pools, list) or len(pools) != 1:
        raise Refused(f"{path} has {len(pools)} pools.", fix="Write one pool a file.", code=INVALID)
    return cast("dict[str, object]", pools[0])


@app.command
def delete(name: Name, /, *, json: Json = False) -> None:
    """Delete a pool that was created here: no new worker starts, those that run finish what they do."""
    found = ask(PoolNames, "DELETE", f"pools/{name}")
    if json:
        print_json(found)
    else:
        print(f"Pool {name} is being taken away: it is gone with its last worker.")


def _count(count: int, noun: str) -> str:
    return f"{count} {plural(noun, count)}"


def size_of(size: Capacity) -> str:
    """A worker's size in a few words."""
    memory = f"{size.memory_mib / 1024:g} GiB" if size.memory_mib >= 1024 else f"{size.memory_mib} MiB"
    cards = f", {size.gpu_count} {size.gpu_type or plural('card', size.gpu_count)}" if size.gpu_count else ""
    return f"{size.cpu_milli / 1000:g} CPU, {memory}{cards}"


def _labels(labels: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "–"
