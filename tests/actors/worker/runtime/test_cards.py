"""Which cards the code of a container sees."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
import trio
from levers9_test_worker import MemoryObjects, NotedLogs, a_spec, an_order, worked

from levers9.actors.worker.runtime.cards import card_variables, cards_here
from levers9.actors.worker.runtime.process import ProcessRuntime, ProcessSettings

SEES = """
import json, os
def function():
    names = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LEVERS9_CARDS")
    return json.dumps([os.environ.get(name) for name in names])
"""


def test_a_container_sees_its_own_cards() -> None:
    seen = {"CUDA_VISIBLE_DEVICES": "1,3", "NVIDIA_VISIBLE_DEVICES": "1,3", "LEVERS9_CARDS": "1,3"}
    assert card_variables((1, 3), {}) == seen


def test_one_without_cards_sees_none_where_there_are_some() -> None:
    seen = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void", "LEVERS9_CARDS": ""}
    assert card_variables((), {}) == seen


def test_a_worker_that_sees_a_part_gives_it_on_by_name() -> None:
    found = card_variables((0, 1), {"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b"})
    assert (found["CUDA_VISIBLE_DEVICES"], found["LEVERS9_CARDS"]) == ("GPU-a,GPU-b", "0,1")


POD = {"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c,GPU-d"}


IN_A_POD = {"LEVERS9_POD_IP": "10.2.3.4"}
LAB = POD | {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}  # as an emulated node numbers them


@pytest.mark.parametrize(
    ("cards", "environment", "seen"),
    [
        ((1, 3), POD, ("GPU-b,GPU-d", "GPU-b,GPU-d", "1,3")),
        ((0,), POD, ("GPU-a", "GPU-a", "0")),
        ((), POD, ("", "void", "")),
        ((1, 3), LAB, ("GPU-b,GPU-d", "GPU-b,GPU-d", "1,3")),
        ((1,), POD | {"CUDA_VISIBLE_DEVICES": "3,2"}, ("GPU-c", "GPU-c", "1")),
        ((1,), POD | {"CUDA_VISIBLE_DEVICES": "6,7"}, ("GPU-b", "GPU-b", "1")),
        ((0, 1), {"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, ("GPU-a", "GPU-a", "0,1")),
        ((0,), {"NVIDIA_VISIBLE_DEVICES": "MIG-x"}, ("MIG-x", "MIG-x", "0")),
        ((1,), {"NVIDIA_VISIBLE_DEVICES": "2,5"}, ("5", "5", "1")),
        ((1,), {"NVIDIA_VISIBLE_DEVICES": "2,5", "CUDA_VISIBLE_DEVICES": "0,1"}, ("1", "5", "1")),
        ((1,), {"NVIDIA_VISIBLE_DEVICES": "all"}, ("1", "1", "1")),
        ((1,), {"NVIDIA_VISIBLE_DEVICES": "void"}, ("1", "1", "1")),
        ((1,), {"NVIDIA_VISIBLE_DEVICES": ""}, ("1", "1", "1")),
        ((1,), {"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}, ("1", "1", "1")),
    ],
)
def test_a_card_that_has_a_name_goes_by_it_and_never_by_a_number_that_may_be_another_s(
    cards: tuple[int, ...], environment: dict[str, str], seen: tuple[str, str, str]
) -> None:
    found = card_variables(cards, environment)
    assert (found["CUDA_VISIBLE_DEVICES"], found["NVIDIA_VISIBLE_DEVICES"], found["LEVERS9_CARDS"]) == seen


def test_numbers_of_a_node_are_counted_in_the_order_of_its_bus() -> None:
    assert card_variables((0,), {"NVIDIA_VISIBLE_DEVICES": "2,5"})["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "CUDA_DEVICE_ORDER" not in card_variables((0,), POD)


@pytest.mark.parametrize(
    ("environment", "devices", "count"),
    [
        ({}, 0, 4),
        ({}, 2, 4),
        ({}, 8, 4),
        (POD, 8, 4),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, 8, 1),
        ({"NVIDIA_VISIBLE_DEVICES": "2,5"}, 8, 2),
        (POD | {"CUDA_VISIBLE_DEVICES": "0,1"}, 8, 2),
        (IN_A_POD | {"NVIDIA_VISIBLE_DEVICES": "all"}, 4, 4),
        (IN_A_POD | {"NVIDIA_VISIBLE_DEVICES": "void"}, 3, 3),
        (IN_A_POD | {"NVIDIA_VISIBLE_DEVICES": "void"}, 8, 0),
        (IN_A_POD | {"NVIDIA_VISIBLE_DEVICES": "void"}, 0, 4),
    ],
)
def test_of_four_cards_that_were_ordered_those_count_that_are_known_to_be_one_s_own(
    environment: dict[str, str], devices: int, count: int
) -> None:
    assert cards_here(4, devices, environment) == count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "cards", "seen"),
    [
        (4, (2, 0), ["2,0", "2,0", "2,0"]),
        (4, (), ["", "void", ""]),
        (0, (), ["", "void", ""]),
        (None, (), ["0,1,2,3", None, None]),
    ],
    ids=["two cards", "none", "none of a machine that others use", "a machine that is left alone"],
)
async def test_the_code_itself_sees_them_whatever_its_caller_says(
    tmp_path: Path,
    code: Path,
    objects: MemoryObjects,
    logs: NotedLogs,
    own: int | None,
    cards: tuple[int, ...],
    seen: list[str],
) -> None:
    (code / "sample.py").write_text(SEES)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(code), "HOME": str(tmp_path)}
    settings = ProcessSettings(environment=environment, cards=own)
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
