"""Finds the person's function, by module and name or by value, and makes an async one callable."""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
import sys
from collections.abc import Callable, Coroutine
from types import CodeType, ModuleType
from typing import Any

Function = Callable[..., object]


def load(handler: str, pickled: bytes) -> Function:
    """The function behind a handler: `module:function`, or `pickle:KEY` with the function in `pickled`.

    Raises whatever importing the person's module raises, or TypeError where the name is not callable.
    """
    if pickled:
        found = pickle.loads(pickled)
    else:
        module, _, path = handler.partition(":")
        found = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    function = getattr(found, "__levers9_function__", found)
    if not callable(function):
        raise TypeError(f"{handler} is a {type(function).__name__}, which cannot be called")
    return _awaited(function) if inspect.iscoroutinefunction(function) else function


def _awaited(function: Callable[..., Coroutine[Any, Any, object]]) -> Function:
    trio = sys.modules.get("trio")
    if trio is not None and _is_for(trio, function):
        run_trio = trio.run

        def run(*positional: object, **named: object) -> object:
            return run_trio(functools.partial(function, *positional, **named))

        return run
    import asyncio

    return lambda *positional, **named: asyncio.run(function(*positional, **named))


def _is_for(trio: ModuleType, function: Callable[..., object]) -> bool:
    """Whether an async function is one for Trio: by the library that it names itself, else by its module's imports."""
    known = function.__globals__
    code = inspect.unwrap(function).__code__
    named = [known[name] for name in _names(code) if name in known]
    for found in (named, list(known.values())):
        kinds = {name for one in found if (name := getattr(one, "__name__", "")) in ("trio", "asyncio")}
        if len(kinds) == 1:
            return kinds == {trio.__name__}
    return False


def _names(code: CodeType) -> set[str]:
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inner)
