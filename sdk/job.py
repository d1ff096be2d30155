"""`@job`: a plain function that can also run elsewhere."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from .gangs import Topology
from .stubs import GpuTypes, JobSettings, checked, refuse_function, refuse_unavailable

if TYPE_CHECKING:
    from .calling import Caller
    from .mapping import Map
    from .remote import Remote, Submit

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L")  # what a plain call returns: R, or a coroutine of R


class Job(Generic[P, R, L]):
    """A decorated function. Called plainly it runs here; `.remote`, `.map` and `.submit` run it on a worker."""

    def __init__(self, function: Callable[P, L], settings: JobSettings, description: str = "") -> None:
        functools.update_wrapper(self, function)
        self.__levers9_function__ = function
        self.settings = settings
        self.description = description or (function.__doc__ or "").strip().partition("\n")[0]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> L:
        """Run it here, as if it were not decorated."""
        return self.__levers9_function__(*args, **kwargs)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> L:
        """Run it here, as if it were not decorated."""
        return self.__levers9_function__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.__levers9_function__.__qualname__}>"

    def __reduce__(self) -> str | tuple[object, ...]:
        name, module = self.__levers9_function__.__qualname__, self.__levers9_function__.__module__
        if module != "__main__" and getattr(sys.modules.get(module), name, None) is self:
            return name  # by reference, as a plain function is pickled
        return Job, (self.__levers9_function__, self.settings, self.description)

    @functools.cached_property
    def remote(self) -> Remote[P, R]:
        """`f.remote(…)` runs it on a worker and returns the result; in async programs `await f.remote.aio(…)`."""
        from .remote import Remote

        return Remote(self._caller, self.submit)

    @functools.cached_property
    def submit(self) -> Submit[P, R]:
        """`f.submit(…)` starts it on a worker and returns a `Task`."""
        from .remote import Submit

        return Submit(self._caller)

    @functools.cached_property
    def map(self) -> Map[R]:
        """`f.map(inputs)` runs it once an input, and iterates over the results."""
        from .mapping import Map

        return Map(self._caller)

    @functools.cached_property
    def _caller(self) -> Caller:
        from .calling import Caller

        return Caller(self.__levers9_function__, self.settings)


class Decorator(Protocol):
    """What `job(…)` returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Job[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, R, R]: ...


@overload
def job(function: Callable[P, Coroutine[Any, Any, R]], /) -> Job[P, R, Coroutine[Any, Any, R]]: ...
@overload
def job(function: Callable[P, R], /) -> Job[P, R, R]: ...
@overload
def job(
    *,
    app: str = "",
    cpu: float | str = 0.125,
    memory: int | str = 128,
    gpu: GpuTypes | None = None,
    gpu_count: int = 0,
    gpu_share: float | None = None,
    image: None = None,
    timeout: float = 3600,
    retries: int = 3,
    callback_url: None = None,
    callback_hosts: None = None,
    volumes: None = None,
    disks: None = None,
    secrets: None = None,
    env: Mapping[str, str] | None = None,
    name: str = "",
    task_policy: None = None,
    on_deploy: None = None,
    headless: bool = False,
    inputs: None = None,
    outputs: None = None,
    pool: str = "",
    description: str = "",
    show_args: bool = True,
    wait_s: float = 0.0,
    nodes: int = 1,
    topology: str | Topology | None = None,
    queue: str = "default",
    priority: str = "default",
    labels: Mapping[str, str] | None = None,
    runtime: str = "",
) -> Decorator: ...
def job(
    function: Callable[..., object] | None = None,
    /,
    *,
    app: str = "",
    cpu: float | str = 0.125,
    memory: int | str = 128,
    gpu: GpuTypes | None = None,
    gpu_count: int = 0,
    gpu_share: float | None = None,
    image: object = None,
    timeout: float = 3600,
    retries: int = 3,
    callback_url: object = None,
    callback_hosts: object = None,
    volumes: object = None,
    disks: object = None,
    secrets: object = None,
    env: Mapping[str, str] | None = None,
    name: str = "",
    task_policy: object = None,
    on_deploy: object = None,
    headless: bool = False,
    inputs: object = None,
    outputs: object = None,
    pool: str = "",
    description: str = "",
    show_args: bool = True,
    wait_s: float = 0.0,
    nodes: int = 1,
    topology: str | Topology | None = None,
    queue: str = "default",
    priority: str = "default",
    labels: Mapping[str, str] | None = None,
    runtime: str = "",
) -> object:
    """Make a function one that can run on a worker. Used as `@job` or `@job(cpu=2, gpu="A100")`.

    `cpu` is a number of CPUs, `memory` MiB or a text such as "1Gi", `gpu` a card type, a list in order of preference,
    or a set of which any will do; `gpu_share` a part of one card's time, not of its memory, in pools that share cards.
    `timeout` is in seconds for one attempt, `retries` how often to run again after a failure, `wait_s` how many seconds
    a call may wait for a missing machine (0: no limit).

    `nodes` containers run each call together, each with a rank (`levers9.gang()`); `topology` is a node label, or a
    `Topology`, within which they must be. `queue` and `priority` name a queue of the workspace and a priority class,
    `labels` what a node must have, `runtime` how containers run there ("process", "runc", "gvisor").

    Raises `Refused` for a value that is wrong or not available.
    """
    refuse_unavailable(
        {
            "image": image,
            "callback_url": callback_url,
            "callback_hosts": callback_hosts,
            "volumes": volumes,
            "disks": disks,
            "secrets": secrets,
            "task_policy": task_policy,
            "on_deploy": on_deploy,
            "headless": headless,
            "inputs": inputs,
            "outputs": outputs,
            "show_args=False": not show_args,
        }
    )
    settings = checked(
        app=app,
        name=name,
        cpu=cpu,
        memory=memory,
        gpu=gpu,
        gpu_count=gpu_count,
        gpu_share=gpu_share,
        pool=pool,
        labels=labels,
        runtime=runtime,
        timeout=timeout,
        retries=retries,
        wait_s=wait_s,
        env=env,
        nodes=nodes,
        topology=topology,
        queue=queue,
        priority=priority,
    )

    def decorate(plain: Callable[..., object]) -> Job[..., object, object]:
        refuse_function(plain)
        return Job(plain, settings, description)

    return cast(Decorator, decorate) if function is None else decorate(function)
