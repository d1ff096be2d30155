"""One function on one connection: sends its code, registers it, packs its calls, and unpacks what comes back."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Final

from ..errors import NOT_FOUND, LeversError, Refused
from ..model.blobs import blob_key
from ..wire.client import NewTask, StubSpec, TaskResult
from .connection import Connection
from .current import current
from .failures import failure_of
from .functions import Origin, adopt_main, by_value, locate, main_name
from .ledger import Arrival
from .packing import pack_call, payload, unpack_result
from .stubs import FOLDERS_VARIABLE, JobSettings, python_minor

JOB: Final = "job"
_BY_VALUE: Final = "pickle:"


class Caller:
    """What `.remote`, `.map` and `.submit` of a function share."""

    def __init__(self, function: Callable[..., object], settings: JobSettings) -> None:
        self.function = function
        self._settings = settings
        self._signature = inspect.signature(function)
        self._origin: Origin | None = None
        self._main_name = ""
        self._prepared: tuple[Connection, int, str] | None = None

    def stub(self) -> tuple[Connection, str]:
        """The connection, and what the function is called there. Sends code and registers it the first time."""
        connection, prepared = current(), self._prepared
        if prepared is not None and prepared[0] is connection and prepared[1] == connection.age:
            return connection, prepared[2]
        age = connection.age
        connection.begin()  # it dials while we look at files
        origin = self._located()
        stub_id = connection.stub_id(self._spec(connection, origin))
        if origin.module:  # by value, its globals may be others the next time
            self._prepared = (connection, age, stub_id)
        return connection, stub_id

    def is_ready(self) -> bool:
        """Whether `stub` answers without waiting."""
        prepared = self._prepared
        return prepared is not None and prepared[0] is current() and prepared[1] == prepared[0].age

    def check(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:
        """Raises TypeError, as a plain call would, when these are no arguments of the function."""
        try:
            self._signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise TypeError(f"{self.function.__name__}() {error}") from None

    def pack(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> tuple[str, bytes]:
        """The format and the bytes of one call."""
        return pack_call(arguments, keywords, self._main_name)

    def new_task(self, connection: Connection, packed: tuple[str, bytes]) -> NewTask:
        """A call with an identity; its arguments go to the object store if they are large."""
        return NewTask(connection.chance.id("task"), payload(*packed, connection.rest))

    def value(self, connection: Connection, arrival: Arrival) -> object:
        """The result in an arrival. Raises what the call raised, or why it has no result."""
        task_id, result = arrival
        if isinstance(result, LeversError):
            self.forgotten(connection, arrival)
            raise result
        return value_of(connection, task_id, result)

    def forgotten(self, connection: Connection, arrival: Arrival) -> bool:
        """Whether the call failed because the control plane does not know the function any more; it is told anew then.

        So it is after `levers9 dev` began with an empty store beside a program that goes on, such as a notebook.
        """
        result = arrival[1]
        unknown = isinstance(result, Refused) and result.code == NOT_FOUND
        if unknown:
            connection.forget()
        return unknown

    def _located(self) -> Origin:
        if self._origin is None:
            origin = locate(self.function)
            adopt_main(origin)
            self._main_name = main_name(origin)
            self._origin = origin
        return self._origin

    def _spec(self, connection: Connection, origin: Origin) -> StubSpec:
        settings = self._settings
        code_key = connection.code_key(origin.project) if origin.project is not None else ""
        env = dict(settings.env)
        if origin.import_folders:
            env[FOLDERS_VARIABLE] = ":".join(origin.import_folders)
        return StubSpec(
            app=settings.app or (origin.project.root.name if origin.project is not None else "") or "notebook",
            name=settings.name or origin.name,
            kind=JOB,
            handler=self._handler(connection, origin),
            code_key=code_key,
            python=python_minor(),
            interpreter=sys.executable,
            shape=settings.shape,
            timeout_s=settings.timeout_s,
            retries=settings.retries,
            env=tuple(sorted(env.items())),
            wait_s=settings.wait_s,
            nodes=settings.nodes,
            together=settings.together,
            queue=settings.queue,
            priority=settings.priority,
        )

    def _handler(self, connection: Connection, origin: Origin) -> str:
        if origin.module:
            return f"{origin.module}:{origin.name}"
        data = by_value(self.function)
        key = blob_key(data)
        connection.rest.put(key, data)
        return _BY_VALUE + key


def value_of(connection: Connection, task_id: str, result: TaskResult) -> object:
    """The value of a finished task. Raises its own exception, or `TaskFailed`."""
    if result.result is None:
        raise failure_of(result)
    value = unpack_result(result.result, connection.rest)
    if result.result.object_key:
        connection.taken([task_id])
    return value
