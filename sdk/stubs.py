"""A decorated function as the control plane knows it: what it needs, where its code is, how it is found there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import INVALID, Refused
from ..model.resources import Shape, cpu_milli, memory_mib

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


def checked(
    *,
    app: str,
    name: str,
    cpu: float | str,
    memory: int | str,
    gpu: str | Sequence[str] | None,
    gpu_count: int,
    pool: str,
    timeout: float,
    retries: int,
    wait_s: float,
    env: Mapping[str, str] | None,
) -> JobSettings:
    """The settings of a function. Raises `Refused` naming the parameter that is wrong."""
    shape = shape_of(cpu, memory, gpu, gpu_count, pool)
    _at_least("timeout", timeout, 0.001, "Give seconds above zero.")
    _at_least("retries", retries, 0, "Give how often to run again after a failure, 0 for never.")
    _at_least("wait_s", wait_s, 0, "Give seconds to wait for a machine, 0 for no limit.")
    return JobSettings(app, name, shape, float(timeout), retries, float(wait_s), _variables(env or {}))


def shape_of(cpu: float | str, memory: int | str, gpu: str | Sequence[str] | None, gpu_count: int, pool: str) -> Shape:
    """What one container asks for; a named card without a count means one."""
    types = _card_types(gpu)
    count = _card_count(gpu_count) or (1 if types else 0)
    named = tuple(kind for kind in types if kind.lower() != "any")
    return Shape(cpu_milli=cpu_milli(cpu), memory_mib=memory_mib(memory), gpu_count=count, gpu_types=named, pool=pool)


def _card_types(gpu: object) -> tuple[str, ...]:
    types = (gpu,) if isinstance(gpu, str) else tuple(gpu) if isinstance(gpu, (list, tuple)) else (gpu,)
    if gpu is None or gpu == "":
        return ()
    if not all(isinstance(kind, str) and kind for kind in types):
        raise Refused(f"gpu={gpu!r} is not a card type.", fix='Give "A100", or a list, the best first.', code=INVALID)
    return tuple(map(str, types))


def _card_count(count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise Refused(f"gpu_count={count!r} is not a number of cards.", fix="Give 0, 1, 2 …", code=INVALID)
    return count


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


def _variables(env: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for name, value in env.items():
        if not isinstance(value, str) or not name or "=" in name or "\0" in f"{name}{value}":
            raise Refused(f"env has {name!r}: {value!r}.", fix="Names and values of variables are texts.", code=INVALID)
        found.append((name, value))
    return tuple(sorted(found))
