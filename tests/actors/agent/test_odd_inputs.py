"""The odd inputs that clusters have shown (reference, section 5.2), each a small file with what must come of it.

Those from 36 on are the corners of the rule itself (section 5.1, steps 3, 4 and 6).
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from levers9.actors.agent.inventory import Inventory
from levers9.kube.objects import Node, Pod
from levers9.model.clusters import ClusterSpec


class Expected(msgspec.Struct, forbid_unknown_fields=True):
    """What is told of the node; `why` is a part of the sentence, "" where there is none."""

    state: str
    cards: int
    free_cards: int
    free_cpu_milli: int
    free_memory_mib: int
    why: str


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """A node, the pods of others, and what must come of them."""

    says: str
    node: Node
    pods: list[Pod]
    expect: Expected
    selector: str = ""
    ignore_below: int | None = None


FILES = sorted((Path(__file__).parent / "fixtures").glob("*.json"))


def test_all_of_them_are_here() -> None:
    assert [int(path.name[:2]) for path in FILES] == list(range(1, 46))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_odd_input_is_told_as_it_is(path: Path) -> None:
    case = msgspec.json.decode(path.read_bytes(), type=Case)
    inventory = Inventory(ignore_below=case.ignore_below)
    inventory.configure(ClusterSpec(name="lab", gpu_type="T4", selector=case.selector))
    inventory.put(case.node)
    for pod in case.pods:
        inventory.pod(pod, gone=False)
    (report,) = inventory.reports()
    told: dict[str, Any] = {
        "state": report.state.value,
        "cards": report.allocatable.gpu_count,
        "free_cards": report.free.gpu_count,
        "free_cpu_milli": report.free.cpu_milli,
        "free_memory_mib": report.free.memory_mib,
        "why": case.expect.why if case.expect.why in report.why and case.expect.why else report.why,
    }
    assert msgspec.convert(told, Expected) == case.expect, case.says
    assert ".." not in report.why
