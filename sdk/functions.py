"""How a function is known where it runs: by module and name with its project's code, or by value from a notebook."""

from __future__ import annotations

import inspect
import os
import site
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from ..errors import INVALID, Refused
from .packing import pickled
from .project import Project, project_of


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a function comes from. `module` is empty when it goes by value; `project` is None without code to send."""

    module: str
    name: str
    project: Project | None
    import_folders: tuple[str, ...] = ()  # inside the project, besides its root


def locate(function: Callable[..., object]) -> Origin:
    """Find out how to ship a function. Raises `Refused` when nothing could find it again by its name."""
    name = function.__qualname__
    module = sys.modules.get(function.__module__ or "")
    file = _source_file(module)
    if module is None or file is None or not _is_written_in(function, module, file):
        return Origin("", name, project_of(Path.cwd(), shared_is_whole=False))
    if "<" in name:
        raise Refused(
            f"{name} in {file} is not at the top level of its module.",
            "The machine that runs it imports the module and looks the function up by its name.",
            "Move it out of the function that it is defined in; a lambda needs a `def`.",
            INVALID,
        )
    _refuse_half_imported(module, name)
    return _by_name(module, file, name)


def main_name(origin: Origin) -> str:
    """What the script that runs now is called where its functions run; empty when it goes by value."""
    return origin.module if origin.module and _is_main(origin) else ""


def by_value(function: Callable[..., object]) -> bytes:
    """The pickled function. Raises `Refused` saying what it holds on to."""
    try:
        return pickled(function)
    except Exception as error:  # an edge to the person's code: what the function holds on to pickles itself
        raise Refused(
            f"The function {function.__qualname__} cannot be pickled: {error}.",
            "It uses a global or enclosed value that lives in this process only.",
            "Make such values (open files, locks, connections, clients) inside the function, or pass plain values.",
            INVALID,
        ) from error


def adopt_main(origin: Origin) -> None:
    """Let what comes back be of this program's own classes: names that are right there are right here too.

    The running script can be found under its module name, and its project's folder is on the import path, at the end.
    """
    main = main_name(origin)
    if main:
        sys.modules.setdefault(main, sys.modules["__main__"])
    if origin.module and origin.project is not None and str(origin.project.root) not in sys.path:
        sys.path.append(str(origin.project.root))


def _by_name(module: ModuleType, file: Path, name: str) -> Origin:
    if _installed(file):
        script = _source_file(sys.modules.get("__main__"))
        return Origin(module.__name__, name, project_of(script.parent if script else Path.cwd()))
    project = project_of(file.parent)
    known_as = module.__name__
    if known_as == "__main__":
        known_as = _script_name(module, file, project)
    return Origin(known_as, name, project, _import_folders(project, file))


def _script_name(module: ModuleType, file: Path, project: Project) -> str:
    spec = module.__spec__
    if spec is not None and spec.name:  # python -m package.module
        return spec.name
    parts = file.relative_to(project.root).with_suffix("").parts
    if any("." in part for part in parts):
        raise Refused(
            f"{file.relative_to(project.root)} has a dot in its path, so it cannot be imported elsewhere.",
            fix="Rename the file or folder, or move the function into a module of its own.",
            code=INVALID,
        )
    return ".".join(parts)


def _import_folders(project: Project, file: Path) -> tuple[str, ...]:
    found: list[str] = []
    for entry in (str(file.parent) if _is_script(file) else "", *sys.path):
        folder = Path(entry).resolve() if entry else None
        if folder and folder != project.root and folder.is_relative_to(project.root) and folder.is_dir():
            relative = folder.relative_to(project.root).as_posix()
            if relative not in found and not project.ignores(relative + "/"):
                found.append(relative)
    return tuple(found)


def _is_script(file: Path) -> bool:
    return _source_file(sys.modules.get("__main__")) == file


def _is_main(origin: Origin) -> bool:
    main = sys.modules.get("__main__")
    file = _source_file(main)
    if main is None or file is None or origin.project is None:
        return False
    spec = main.__spec__
    if spec is not None and spec.name:
        return spec.name == origin.module
    root = origin.project.root
    return file.is_relative_to(root) and ".".join(file.relative_to(root).with_suffix("").parts) == origin.module


def _source_file(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) and os.path.isfile(file) else None


def _is_written_in(function: Callable[..., object], module: ModuleType, file: Path) -> bool:
    """False for what was typed into a shell or a notebook, even where its `__main__` has a file."""
    if module.__name__ != "__main__":
        return True
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is not None and Path(code.co_filename).resolve() == file


def _installed(file: Path) -> bool:
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    return any(file.is_relative_to(Path(folder).resolve()) for folder in folders)


def _refuse_half_imported(module: ModuleType, name: str) -> None:
    spec = module.__spec__
    if module.__name__ != "__main__" and getattr(spec, "_initializing", False):
        raise Refused(
            f"{module.__name__} calls {name}.remote() or .map() while it is being imported.",
            "The machine that runs the function imports this module too, and would call it again without end.",
            'Put the call below `if __name__ == "__main__":`, or into a function.',
            INVALID,
        )
