"""`levers9 run FILE[:FUNC] ARGS`: one call, with what it prints."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated

import cyclopts

from ..errors import INVALID, LeversError, Refused
from ..sdk.config import nearest
from ..sdk.job import Job
from ..sdk.project import project_of

AnyJob = Job[..., object, object]


def run(
    target: Annotated[str, cyclopts.Parameter(name="FILE[:FUNC]", help="A Python file, and a function of it.")],
    /,
    *arguments: Annotated[str, cyclopts.Parameter(allow_leading_hyphen=True, help="The function's arguments.")],
) -> int:
    """Run a function of a file on a worker, and show what it prints.

    Arguments are those of the function: `levers9 run study.py:simulate 3 --seed 7`. One without `@job` runs here.
    """
    file, _, name = target.partition(":")
    module = _loaded(Path(file))
    found = _chosen(module, file, name)
    plain = found.__levers9_function__ if isinstance(found, Job) else found
    bound = _bound(plain, target, list(arguments))
    if isinstance(found, Job):
        return _remotely(found, bound)
    _print_result(found(*bound.args, **bound.kwargs))
    return 0


def _loaded(file: Path) -> ModuleType:
    if not file.is_file():
        raise Refused(f"There is no file {str(file)!r}.", fix="Give the path of a Python file.", code=INVALID)
    whole = file.resolve()
    root = project_of(whole.parent).root
    name = ".".join(whole.relative_to(root).with_suffix("").parts)
    spec = importlib.util.spec_from_file_location(name, whole)
    if spec is None or spec.loader is None:
        raise Refused(f"{file} is not a Python file.", fix="Its name ends in .py.", code=INVALID)
    sys.path.insert(0, str(whole.parent))  # as `python FILE` does
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except LeversError:
        raise
    except Exception as error:  # an edge to the person's code: loading the file runs it
        _show_traceback(error, whole)
        raise Refused(
            f"{file} cannot be loaded: {type(error).__name__}.", fix="Correct it, and run it again."
        ) from error
    return module


def _chosen(module: ModuleType, file: str, name: str) -> AnyJob | Callable[..., object]:
    jobs = {key: value for key, value in vars(module).items() if isinstance(value, Job)}
    if name:
        found = jobs.get(name) or vars(module).get(name)
        if not callable(found):
            meant = nearest(name, list(jobs)) or ", ".join(jobs)
            raise Refused(f"{file} has no function {name!r}.", fix=f"It has: {meant}." if meant else "", code=INVALID)
        return found
    if len(jobs) == 1:
        return next(iter(jobs.values()))
    if not jobs:
        raise Refused(f"{file} has no function with @job.", fix="Put `@job` above one.", code=INVALID)
    listed = "; ".join(
        f"{file}:{key}" + (f" ({value.description})" if value.description else "") for key, value in jobs.items()
    )
    raise Refused(f"{file} has several functions.", fix=f"Name one: {listed}.", code=INVALID)


def _bound(function: Callable[..., object], target: str, arguments: list[str]) -> inspect.BoundArguments:
    app = cyclopts.App(name=f"levers9 run {target}", exit_on_error=False, print_error=False, version_flags=())
    app.default(function)
    command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
    if getattr(command, "__name__", "") in ("help_print", "version_print"):
        command(*bound.args, **bound.kwargs)
        raise SystemExit(0)
    return bound


def _remotely(found: AnyJob, bound: inspect.BoundArguments) -> int:
    from ..sdk.interrupt import cancel_and_tell

    task = found.submit(*bound.args, **bound.kwargs)
    print(f"levers9: {task.id}", file=sys.stderr)
    try:
        for line in task.logs():
            print(line.text, file=sys.stderr if line.stream == "err" else sys.stdout, flush=True)
        _print_result(task.result(wait=True))
    except KeyboardInterrupt:
        cancel_and_tell(task.connection, (task.id,))
        raise
    except LeversError:
        raise
    except Exception as error:  # the function's own: its remote traceback is what helps
        _show_remote(error)
        return 1
    return 0


def _print_result(value: object) -> None:
    if value is not None:
        print(value if isinstance(value, str) else repr(value))


def _show_remote(error: Exception) -> None:
    from ..sdk.failures import RemoteTraceback

    cause = error.__cause__
    text = cause.text if isinstance(cause, RemoteTraceback) else f"{type(error).__name__}: {error}"
    print(text.rstrip(), file=sys.stderr)
    for note in getattr(error, "__notes__", ()):
        print(note, file=sys.stderr)


def _show_traceback(error: Exception, file: Path) -> None:
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(file):
        trace = trace.tb_next  # our own frames tell a person nothing
    sys.stderr.write("".join(traceback.format_exception(type(error), error, trace)))
