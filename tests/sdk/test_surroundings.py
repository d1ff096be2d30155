"""The SDK inside scripts, asyncio and Trio programs and a notebook's cells, against a real `levers9 dev`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from ..faults.laptop import Laptop, a_running_laptop

pytestmark = pytest.mark.slow

JOBS = """
import asyncio, sys, trio
from levers9 import job

class OutOfLuck(Exception):
    def __init__(self, number):
        super().__init__(number)
        self.number = number

@job(retries=0)
def double(number):
    if number == 13:
        raise OutOfLuck(number)
    return 2 * number

@job(retries=0)
async def later(number):
    await asyncio.sleep(0.01)
    return 3 * number
"""


@pytest.fixture(scope="module")
def laptop() -> Iterator[Laptop]:
    with a_running_laptop() as machine:
        yield machine


def printed(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def script(main: str) -> str:
    """A program with these jobs."""
    return f"{JOBS}\n{main}"


ASYNC_MAIN = """
async def main():
    print(await double.remote.aio(4))
    print([value async for value in double.map.aio(range(5))])
    print(await later.remote.aio(4))
    task = await double.submit.aio(6)
    print(await task.aresult())
    try:
        await double.remote.aio(13)
    except OutOfLuck as error:
        print("itself:", error.number, type(error.__cause__).__name__)
    print(double.remote(5))

if __name__ == "__main__":
"""
ASYNC_PRINTS = ["8", "[0, 2, 4, 6, 8]", "12", "12", "itself: 13 RemoteTraceback", "10"]


def test_inside_asyncio(laptop: Laptop) -> None:
    assert printed(laptop.python(script(ASYNC_MAIN + "    asyncio.run(main())"))) == ASYNC_PRINTS


def test_inside_trio(laptop: Laptop) -> None:
    assert printed(laptop.python(script(ASYNC_MAIN + "    trio.run(main)"))) == ASYNC_PRINTS


def test_cancelling_an_async_wait_cancels_the_call(laptop: Laptop) -> None:
    main = """
import time
@job(retries=0)
def forever():
    time.sleep(600)

async def main():
    with trio.move_on_after(1.0):
        await forever.remote.aio()
    print(await double.remote.aio(1))

if __name__ == "__main__":
    trio.run(main)
"""
    assert printed(laptop.python(script(main))) == ["2"]
    listed = laptop.levers9("task", "list", "--function", "forever", "--state", "CANCELLING,CANCELLED").stdout
    assert len(listed.splitlines()) == 2  # the heading, and the call


def test_an_async_function_is_a_job_like_any_other(laptop: Laptop) -> None:
    main = (
        "if __name__ == '__main__':\n    print(later.remote(2), list(later.map([1, 2])), asyncio.run(later.local(3)))"
    )
    assert printed(laptop.python(script(main))) == ["6 [3, 6] 9"]


def test_a_remote_exception_arrives_as_itself_with_the_remote_traceback(laptop: Laptop) -> None:
    done = laptop.python(script("if __name__ == '__main__':\n    double.remote(13)"))
    assert done.returncode == 1
    assert "raise OutOfLuck(number)" in done.stderr
    assert "levers9.sdk.failures.RemoteTraceback" in done.stderr
    assert "Raised in task task-" in done.stderr
    assert "levers9 task logs task-" in done.stderr


def test_cells_of_a_notebook_may_be_run_again_with_other_code(laptop: Laptop) -> None:
    cells = '''
import types
cells = ["""from levers9 import job
factor = 2
@job
def scaled(number):
    return factor * number
""", "print(scaled.remote(4))", "factor = 5", "print(list(scaled.map([1, 2])))", """@job
def scaled(number):
    return -number
print(scaled.remote(4))
"""]
import __main__
for number, cell in enumerate(cells):
    exec(compile(cell, f"<cell {number}>", "exec"), __main__.__dict__)
'''
    assert printed(laptop.typed(cells)) == ["8", "[5, 10]", "-4"]


def test_a_notebook_whose_event_loop_runs_may_call_plainly(laptop: Laptop) -> None:
    program = """
import asyncio
from levers9 import job

@job
def double(number):
    return 2 * number

async def cell():
    print(double.remote(1), list(double.map([2, 3])), await double.remote.aio(4))

asyncio.run(cell())
"""
    assert printed(laptop.typed(program)) == ["2 [4, 6] 8"]


def test_what_a_job_prints_is_found_in_its_logs(laptop: Laptop) -> None:
    program = """
import sys
from levers9 import job

@job
def talk():
    print("hello")
    print("oh", file=sys.stderr)

task = talk.submit()
task.result(wait=True)
print([(line.stream, line.text) for line in task.logs()])
print(task.status, task.why()[0])
"""
    said = printed(laptop.typed(program))
    assert sorted(eval(said[0])) == [("err", "oh"), ("out", "hello")]
    assert said[1].startswith("COMPLETE It has a result: attempt 1 ended after ")
