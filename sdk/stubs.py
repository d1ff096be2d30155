"""A decorated function as the control plane knows it: what it needs, where its code is, how it is found there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..errors import INVALID, Refused
from ..model.gangs import Together
from ..model.resources import CARD_MILLI, QUANTITY_MAX, Shape, cpu_milli, memory_mib
from .gangs import Topology, checked_nodes, checked_topology

GpuTypes: TypeAlias = str | Sequence[str] | Set[str]  # one, a list with the best first, or a set of which any will do
RUNTIMES: Final = ("process", "runc", "gvisor")
FOLDERS_VARIABLE = "LEVERS9_IMPORT_FOLDERS"  # folders of the code that are on the import path, relative, with colons


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What was said to `@job`, checked."""

    app: str
    name: str
    shape: Shape
    timeout_s: float
    retries: int
    wait_s: float
    env: tuple[tuple[str, str], ...]
    nodes: int
    together: Together
    queue: str
    priority: str


def checked(
    *,
    app: str,
    name: str,
    cpu: float | str,
    memory: int | str,
    gpu: GpuTypes | None,
    gpu_count: int,
    gpu_share: float | None,
    pool: str,
    labels: Mapping[str, str] | None,
    runtime: str,
    timeout: float,
    retries: int,
    wait_s: float,
    env: Mapping[str, str] | None,
    nodes: int,
    topology: str | Topology | None,
    queue: str,
    priority: str,
) -> JobSettings:
    """The settings of a function. Raises `Refused` naming the parameter that is wrong."""
    named = _card_types(gpu)
    cards = _card_count(gpu_count) or (1 if gpu else 0)  # a named card without a count means one
    shape = Shape(
        cpu_milli=cpu_milli(cpu),
        memory_mib=memory_mib(memory),
        gpu_count=cards,
        gpu_types=tuple(kind for kind in named if kind.lower() != "any"),
        pool=pool,
        gpu_milli=_card_milli(gpu_share, cards),
        gpu_any_order=isinstance(gpu, Set),
        labels=_texts("labels", labels or {}),
        runtime=_runtime(runtime),
    )
    _at_least("timeout", timeout, 0.001, "Give seconds above zero.")
    _at_least("retries", retries, 0, "Give how often to run again after a failure, 0 for never.")
    _at_least("wait_s", wait_s, 0, "Give seconds to wait for a machine, 0 for no limit.")
    nodes = checked_nodes(nodes)
    return JobSettings(
        app=app,
        name=name,
        shape=shape,
        timeout_s=float(timeout),
        retries=retries,
        wait_s=float(wait_s),
        env=_texts("env", env or {}),
        nodes=nodes,
        together=checked_topology(topology, nodes),
        queue=_name("queue", queue),
        priority=_name("priority", priority),
    )


def _card_types(gpu: object) -> tuple[str, ...]:
    if gpu is None or gpu == "":
        return ()
    types = tuple(gpu) if isinstance(gpu, (list, tuple, Set)) else (gpu,)
    if not all(isinstance(kind, str) and kind for kind in types):
        fix = 'Give "A100", a list, the best first, or a set of which any will do.'
        raise Refused(f"gpu={gpu!r} is not a card type.", fix=fix, code=INVALID)
    named = map(str, types)
    return tuple(sorted(named) if isinstance(gpu, Set) else named)


def _card_count(count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= QUANTITY_MAX:
        raise Refused(f"gpu_count={count!r} is not a number of cards.", fix="Give 0, 1, 2 …", code=INVALID)
    return count


def _card_milli(share: object, cards: int) -> int:
    if share is None:
        return CARD_MILLI
    milli = round(share * CARD_MILLI) if isinstance(share, float) and 0 < share < 1 else 0
    if not 0 < milli < CARD_MILLI:
        fix = f"Give one of 0.001 to {1 - 1 / CARD_MILLI:g}, or leave it out for whole cards."
        raise Refused(f"gpu_share={share!r} is not a share of a card.", fix=fix, code=INVALID)
    if cards != 1:
        fix = "Give gpu or gpu_count=1 beside it, or leave gpu_share out."
        raise Refused(f"gpu_share={share!r} is of one card, and this asks for {cards}.", fix=fix, code=INVALID)
    return milli


def _runtime(runtime: object) -> str:
    if not isinstance(runtime, str) or runtime not in ("", *RUNTIMES):
        known = ", ".join(RUNTIMES)
        raise Refused(
            f"runtime={runtime!r} is not known.", fix=f"Runtimes are {known}; leave it out for any.", code=INVALID
        )
    return runtime


def _name(parameter: str, name: object) -> str:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise Refused(f"{parameter}={name!r} is not a name.", fix="Give its name, or leave it out.", code=INVALID)
    return name


def refuse_unavailable(given: Mapping[str, object]) -> None:
    """Raises `Refused` for parameters that this version cannot honour, so that nobody believes they are at work."""
    asked = [name for name, value in given.items() if value]
    if asked:
        raise Refused(
            f"job({', '.join(f'{name}=…' for name in asked)}) is not available in this version.",
            "It would be ignored.",
            f"Leave {'it' if len(asked) == 1 else 'them'} out.",
            INVALID,
        )


def refuse_function(function: Callable[..., object]) -> None:
    """Raises `Refused` for what cannot be run as a job."""
    import inspect

    if inspect.isclass(function) or not isinstance(getattr(function, "__qualname__", None), str):
        raise Refused(f"@job was given {function!r}.", fix="Put it above a function.", code=INVALID)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Refused(
            f"{function.__qualname__} is a generator.",
            "What it yields would have to be sent while it runs.",
            "Return a list, or make each piece a call of its own with .map().",
            INVALID,
        )


def python_minor() -> str:
    """The minor version of this Python, such as "3.11"."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _at_least(name: str, value: object, least: float, fix: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
        raise Refused(f"{name}={value!r} is not possible.", fix=fix, code=INVALID)


def _texts(parameter: str, given: object) -> tuple[tuple[str, str], ...]:
    fix = f'Names and values are texts: write {parameter}={{"name": "value"}}.'
    if not isinstance(given, Mapping):
        raise Refused(f"{parameter} is {given!r}.", fix=fix, code=INVALID)
    found: list[tuple[str, str]] = []
    for name, value in given.items():
        texts = isinstance(name, str) and isinstance(value, str)
        if not texts or not name or "=" in name or "\0" in f"{name}{value}":
            raise Refused(f"{parameter} has {name!r}: {value!r}.", fix=fix, code=INVALID)
        found.append((name, value))
    return tuple(sorted(found))
