"""What the first process of a container owes it: it hands signals on, and buries those whose parents are gone.

The kernel gives orphans to process 1, where they stay as zombies until it waits for them; and there a signal without a
handler does nothing. So the program itself runs in a child.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

_HANDED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def in_container(run: Callable[[], int], *, process_id: int | None = None) -> int:
    """What `run` returns, run in a child where this is process 1. Call it before any thread is started.

    A child that was killed by a signal counts as 128 and the signal's number, as in a shell.
    """
    if (os.getpid() if process_id is None else process_id) != 1:
        return run()
    before = {number: signal.getsignal(number) for number in _HANDED_ON}
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDED_ON)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDED_ON)
        return run()

    def hand_on(number: int, frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in _HANDED_ON:
        signal.signal(number, hand_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDED_ON)
    try:
        return _bury_until(child)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _bury_until(child: int) -> int:
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
