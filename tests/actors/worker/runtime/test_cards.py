"""Which cards the code of a container sees."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
import trio
from levers9_test_worker import MemoryObjects, NotedLogs, a_spec, an_order, worked

from levers9.actors.worker.runtime.cards import card_variables, visible_cards
from levers9.actors.worker.runtime.process import ProcessRuntime, ProcessSettings

SEES = """
import json, os
def function():
    names = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LEVERS9_CARDS")
    return json.dumps([os.environ.get(name) for name in names])
"""


def test_a_container_sees_its_own_cards() -> None:
    seen = {"CUDA_VISIBLE_DEVICES": "1,3", "NVIDIA_VISIBLE_DEVICES": "1,3", "LEVERS9_CARDS": "1,3"}
    assert card_variables((1, 3), 4, {}) == seen


def test_one_without_cards_sees_none_where_there_are_some() -> None:
    seen = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void", "LEVERS9_CARDS": ""}
    assert card_variables((), 4, {}) == seen


def test_a_worker_without_cards_says_nothing() -> None:
    assert card_variables((), 0, {"CUDA_VISIBLE_DEVICES": "0"}) == {}


def test_a_worker_that_sees_a_part_gives_it_on_by_name() -> None:
    found = card_variables((0, 1), 2, {"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b"})
    assert (found["CUDA_VISIBLE_DEVICES"], found["LEVERS9_CARDS"]) == ("GPU-a,GPU-b", "0,1")


POD = {"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c,GPU-d"}


@pytest.mark.parametrize(
    ("cards", "environment", "seen"),
    [
        ((1, 3), POD, ("1,3", "GPU-b,GPU-d", "1,3")),
        ((0,), POD, ("0", "GPU-a", "0")),
        ((), POD, ("", "void", "")),
        ((0, 1, 2, 3), POD, ("0,1,2,3", "GPU-a,GPU-b,GPU-c,GPU-d", "0,1,2,3")),
        ((1,), {"NVIDIA_VISIBLE_DEVICES": "2,5"}, ("1", "5", "1")),
        ((1,), {"NVIDIA_VISIBLE_DEVICES": "all"}, ("1", "1", "1")),
        ((1,), {"NVIDIA_VISIBLE_DEVICES": "void"}, ("1", "1", "1")),
        ((1,), {"NVIDIA_VISIBLE_DEVICES": ""}, ("1", "1", "1")),
        ((1,), POD | {"CUDA_VISIBLE_DEVICES": "3,2"}, ("2", "GPU-b", "1")),
    ],
)
def test_in_a_pod_cuda_is_told_numbers_and_the_container_runtime_names(
    cards: tuple[int, ...], environment: dict[str, str], seen: tuple[str, str, str]
) -> None:
    found = card_variables(cards, 4, environment)
    assert (found["CUDA_VISIBLE_DEVICES"], found["NVIDIA_VISIBLE_DEVICES"], found["LEVERS9_CARDS"]) == seen


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({}, None),
        (POD, 4),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, 1),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, None),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, None),
        (POD | {"CUDA_VISIBLE_DEVICES": "0,1"}, 2),
    ],
)
def test_cards_are_counted_where_a_list_names_them(environment: dict[str, str], count: int | None) -> None:
    assert visible_cards(environment) == count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cards", "seen"), [((2, 0), ["2,0", "2,0", "2,0"]), ((), ["", "void", ""])], ids=["two cards", "none"]
)
async def test_the_code_itself_sees_them_whatever_its_caller_says(
    tmp_path: Path, code: Path, objects: MemoryObjects, logs: NotedLogs, cards: tuple[int, ...], seen: list[str]
) -> None:
    (code / "sample.py").write_text(SEES)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(code), "HOME": str(tmp_path)}
    settings = ProcessSettings(environment=environment, cards=4)
    runtime = ProcessRuntime(settings=settings, state_folder=tmp_path / "state", objects=objects, log_sink=logs)
    spec = a_spec("sample:function", env=(("CUDA_VISIBLE_DEVICES", "0,1,2,3"),))
    async with trio.open_nursery() as nursery:
        await nursery.start(runtime.serve)
        async with worked(runtime, objects) as (plane, _):
            await plane.start(spec=spec, cards=cards)
            await plane.run(an_order(1))
            result = await plane.result("task-1")
        nursery.cancel_scope.cancel()
    assert result.result is not None
    assert json.loads(msgspec.msgpack.decode(result.result.data)) == seen
