"""What a signal ends, and what it does not cut short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import trio
import trio.testing

from levers9.daemons.signals import until_signal


async def test_what_is_inside_is_cancelled_and_what_comes_after_goes_on() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with trio.fail_after(5):
            async with until_signal() as scope:
                os.kill(os.getpid(), number)
                await trio.sleep_forever()
        assert scope.cancelled_caught


async def test_further_signals_do_not_cut_short_what_is_put_away() -> None:
    put_away = False
    with trio.fail_after(5):
        async with until_signal():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    for number in (signal.SIGTERM, signal.SIGINT):
                        os.kill(os.getpid(), number)
                        await trio.testing.wait_all_tasks_blocked()
                    put_away = True
    assert put_away


async def test_what_ends_by_itself_waits_for_no_signal() -> None:
    with trio.fail_after(5):
        async with until_signal() as scope:
            await trio.lowlevel.checkpoint()
    assert not scope.cancelled_caught


LOADED = """
import signal
from levers9.cli import main
from levers9.daemons import dev
dev.main = lambda arguments: print(signal.getsignal(signal.SIGINT).name)
main(["dev"])
"""


@pytest.mark.slow
def test_where_a_daemon_does_not_listen_ctrl_c_ends_it_as_term_does_and_nothing_is_written() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "SIG_DFL\n", done.stderr
