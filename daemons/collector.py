"""The garbage collector of a process that decides: it must not stop the loop to look at what lives for long anyway."""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 20_000  # new containers of objects before the young ones are looked at; a plan makes some thousands
OLD: Final = 50  # such looks before all is looked at, and only when a quarter of it is new


def settle() -> None:
    """Look at nothing again that is there now, and more seldom at what comes.

    With fifty thousand requests in memory a look at everything takes 0.15 s, as measured; nodes, requests and rows are
    freed by their counts, and only tracebacks form circles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, OLD, OLD)
