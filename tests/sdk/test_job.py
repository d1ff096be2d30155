"""The decorator: its names, its defaults, and what it refuses."""

from __future__ import annotations

import pickle
from types import ModuleType

import cloudpickle
import pytest

from levers9 import job
from levers9.errors import Refused
from levers9.model.resources import Shape
from levers9.sdk.job import Job


def plain(x: int) -> int:
    """Say what it does."""
    return x


def test_it_is_used_with_and_without_parentheses() -> None:
    for decorated in (job(plain), job()(plain)):
        assert isinstance(decorated, Job)
        assert decorated.__levers9_function__ is plain
        assert (decorated.__name__, decorated.description) == ("plain", "Say what it does.")


def test_the_defaults_are_those_of_the_published_sdk() -> None:
    settings = job(plain).settings
    assert settings.shape == Shape(cpu_milli=125, memory_mib=128)
    assert (settings.timeout_s, settings.retries, settings.wait_s) == (3600.0, 3, 0.0)


@pytest.mark.parametrize(
    ("gpu", "count", "types", "cards"),
    [
        (None, 0, (), 0),
        ("A100", 0, ("A100",), 1),
        (["H100", "A100"], 2, ("H100", "A100"), 2),
        (None, 4, (), 4),
        ("any", 0, (), 1),
    ],
)
def test_cards_are_a_type_or_a_preference(gpu: object, count: int, types: tuple[str, ...], cards: int) -> None:
    shape = job(gpu=gpu, gpu_count=count)(plain).settings.shape  # type: ignore[arg-type]
    assert (shape.gpu_types, shape.gpu_count) == (types, cards)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpu": "many"},
        {"cpu": 0},
        {"memory": "lots"},
        {"gpu": 5},
        {"gpu": [""]},
        {"gpu_count": -1},
        {"gpu_count": 1.5},
        {"timeout": 0},
        {"retries": -1},
        {"retries": "3"},
        {"wait_s": -1},
        {"env": {"A": 1}},
        {"env": {"A=B": "1"}},
    ],
)
def test_a_wrong_value_is_refused_and_named(wrong: dict[str, object]) -> None:
    with pytest.raises(Refused) as caught:
        job(**wrong)  # type: ignore[call-overload]
    assert next(iter(wrong)) in str(caught.value)


@pytest.mark.parametrize("later", ["volumes", "secrets", "image", "callback_url", "task_policy", "on_deploy", "disks"])
def test_what_cannot_be_honoured_yet_is_refused_at_once(later: str) -> None:
    with pytest.raises(Refused, match=rf"job\({later}=…\) is not available in this version"):
        job(**{later: ["something"]})  # type: ignore[call-overload]


def test_only_functions_can_be_jobs() -> None:
    def generator() -> object:
        yield 1

    class Thing:
        pass

    for wrong in (generator, Thing, "text"):
        with pytest.raises(Refused):
            job(wrong)  # type: ignore[call-overload]


def test_a_decorated_function_can_be_pickled(work: ModuleType) -> None:
    assert pickle.loads(pickle.dumps(work.double)) is work.double


def test_a_decorated_function_of_a_notebook_is_pickled_by_value() -> None:
    main: dict[str, object] = {"__name__": "__main__"}
    exec("from levers9 import job\n@job(cpu=2)\ndef twice(x):\n    return 2 * x\n", main)
    back = pickle.loads(cloudpickle.dumps(main["twice"]))
    assert back.local(2) == 4
    assert back.settings.shape.cpu_milli == 2000
