"""What a lab can be asked to be."""

from __future__ import annotations

import msgspec
import pytest

from levers9.errors import Refused
from levers9.lab.asked import check
from levers9.lab.folder import LabSettings

LAB = LabSettings(lab_id="1")


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"trays": 250, "gpus": 16, "gpu": "L4"},
        {"gpus": 0},
        {"memory": "1Gi", "cpu": 1, "trays_per_domain": 1, "grace_s": 4},
        {"name": "lab-2", "users": ()},
    ],
)
def test_what_a_lab_can_be(change: dict[str, object]) -> None:
    assert check(msgspec.structs.replace(LAB, **change)) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"gpu": "GB999"}, "There is no card GB999 in labs. There are GB200,"),
        ({"trays": 0}, "--trays 0 is too few. Write 1 to 250."),
        ({"trays": 251}, "--trays 251 is too many."),
        ({"gpus": 17}, "--gpus 17 is too many. Write 0 to 16."),
        ({"gpus": -1}, "--gpus -1 is too few."),
        ({"cpu": 0}, "--cpu 0 is too few."),
        ({"memory": "lots"}, "--memory 'lots' is no memory of a node. Write 1Gi or more"),
        ({"memory": "512"}, "--memory '512' is no memory of a node."),
        ({"trays_per_domain": 0}, "--trays-per-domain 0 is too few."),
        ({"grace_s": 1}, "--grace 1 is too few. Write 4 to 3600."),
        ({"name": ""}, "--name '' is no name."),
        ({"users": ("guest", "a/b")}, "--user 'a/b' is no name."),
        ({"users": ("admin",)}, "Every lab has a user admin."),
    ],
)
def test_what_it_cannot_be_is_told_with_what_it_can(change: dict[str, object], told: str) -> None:
    with pytest.raises(Refused) as refused:
        check(msgspec.structs.replace(LAB, **change))
    assert told in str(refused.value)
