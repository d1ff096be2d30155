"""What a call of several containers asks for, and what its code is told."""

from __future__ import annotations

import pytest

from levers9 import Gang, Topology, gang, job
from levers9.errors import Refused
from levers9.model.gangs import GANG_MAX, Together, TopologyMode
from levers9.sdk.stubs import JobSettings


def plain(x: int) -> int:
    return x


def settings(**given: object) -> JobSettings:
    return job(**given)(plain).settings  # type: ignore[call-overload, no-any-return]


def test_without_a_word_a_call_runs_on_one_container_of_the_default_queue() -> None:
    found = settings()
    assert (found.nodes, found.together, found.queue, found.priority) == (1, Together(), "default", "default")
    assert (found.shape.gpu_milli, found.shape.labels, found.shape.runtime) == (1000, (), "")


@pytest.mark.parametrize(
    ("topology", "together"),
    [
        (None, Together()),
        ("", Together()),
        ("node", Together(TopologyMode.REQUIRED, "node")),
        ("example.com/rack", Together(TopologyMode.REQUIRED, "example.com/rack")),
        (Topology("example.com/rack"), Together(TopologyMode.REQUIRED, "example.com/rack")),
        (Topology("rack", "preferred", 4), Together(TopologyMode.PREFERRED, "rack", 4)),
        (Topology("", mode="none"), Together()),
    ],
)
def test_a_topology_is_a_level_or_more(topology: object, together: Together) -> None:
    assert settings(nodes=8, topology=topology).together == together


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 0},
        {"nodes": -1},
        {"nodes": 1.5},
        {"nodes": True},
        {"nodes": GANG_MAX + 1},
        {"topology": 5},
        {"topology": "a b"},
        {"topology": Topology("")},
        {"topology": Topology("räck")},
        {"topology": Topology("rack", "always")},  # type: ignore[arg-type]
        {"topology": Topology("rack", slice_size=0)},
        {"topology": Topology("rack", slice_size=3), "nodes": 8},
        {"queue": ""},
        {"queue": 7},
        {"priority": "a\nb"},
        {"gpu_share": 0.5},
        {"gpu_share": 0.0, "gpu": "A100"},
        {"gpu_share": 1.0, "gpu": "A100"},
        {"gpu_share": -0.5, "gpu": "A100"},
        {"gpu_share": 0.0001, "gpu": "A100"},
        {"gpu_share": float("nan"), "gpu": "A100"},
        {"gpu_share": "half", "gpu": "A100"},
        {"gpu_share": 0.5, "gpu": "A100", "gpu_count": 2},
        {"labels": {"zone": 1}},
        {"labels": {"": "a"}},
        {"labels": ["zone"]},
        {"labels": {1: "a"}},
        {"runtime": "docker"},
        {"runtime": None},
        {"cpu": 1e18},
        {"cpu": float("inf")},
        {"memory": 2**64},
        {"memory": "9" * 400 + "Ti"},
        {"gpu_count": 2**63},
    ],
)
def test_a_wrong_value_is_refused_by_its_name(wrong: dict[str, object]) -> None:
    with pytest.raises(Refused) as caught:
        settings(**wrong)
    assert next(iter(wrong)) in str(caught.value)


def test_a_list_of_cards_is_in_order_of_preference_and_of_a_set_any_will_do() -> None:
    shape = settings(gpu=["L4", "A100"]).shape
    assert (shape.gpu_types, shape.gpu_any_order) == (("L4", "A100"), False)
    shape = settings(gpu={"L4", "A100"}).shape
    assert (shape.gpu_types, shape.gpu_any_order, shape.gpu_count) == (("A100", "L4"), True, 1)


def test_a_share_is_of_one_card() -> None:
    shape = settings(gpu="A100", gpu_share=0.25).shape
    assert (shape.gpu_count, shape.gpu_milli, shape.shared) == (1, 250, True)
    assert settings(gpu_count=1, gpu_share=0.5).shape.gpu_milli == 500


def test_nodes_are_chosen_by_their_labels_and_their_runtime() -> None:
    shape = settings(labels={"zone": "b", "arch": "arm64"}, runtime="gvisor").shape
    assert (shape.labels, shape.runtime) == ((("arch", "arm64"), ("zone", "b")), "gvisor")


def test_code_knows_its_rank_and_elsewhere_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEVERS9_RANK", "LEVERS9_WORLD_SIZE", "LEVERS9_RANK0_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    assert gang() == Gang(rank=0, world_size=1, address="")
    monkeypatch.setenv("LEVERS9_RANK", "2")
    monkeypatch.setenv("LEVERS9_WORLD_SIZE", "4")
    monkeypatch.setenv("LEVERS9_RANK0_ADDRESS", "10.0.0.7:7001")
    assert gang() == Gang(rank=2, world_size=4, address="10.0.0.7:7001")
