"""levers9: decorate a Python function, and it runs on a machine with the right card.

This module is the public face of the SDK. Names are looked up on first use, so that the daemons,
which import `levers9.wire` and the rest, never load the SDK.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .sdk import Client, Gang, Job, LogLine, Task, Topology, gang, job

__version__: Final = "0.1.0"
__all__ = ["job", "Job", "Client", "Task", "LogLine", "Topology", "Gang", "gang", "__version__"]


def __getattr__(name: str) -> object:
    """Return a public name of the SDK; raises AttributeError for any other name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".sdk", __name__), name)


def __dir__() -> list[str]:
    """List the public names, without loading them."""
    return sorted({*globals(), *__all__})
