"""Objects as they are stored, and not as they should be."""

from __future__ import annotations

import json

import msgspec
import pytest

from levers9.kube.decoding import lenient, reader_of
from levers9.kube.objects import Job, Node, Pod

META = {"name": "a", "uid": "u", "resourceVersion": "3"}


def read_pod(**parts: object) -> Pod | None:
    return reader_of(Pod).item(json.dumps({"metadata": META, **parts}).encode())


def test_a_reader_is_made_once_for_each_type() -> None:
    assert reader_of(Pod) is reader_of(Pod)


def test_fields_that_are_null_are_fields_that_are_not_there() -> None:
    pod = read_pod(spec={"containers": None, "nodeName": None, "priority": None}, status=None)
    assert pod is not None
    assert (pod.spec.containers, pod.spec.node_name, pod.status.phase) == ((), "", "")


def test_null_in_the_depth_is_left_out() -> None:
    node = lenient({"metadata": {**META, "labels": {"a": None, "b": "c"}}, "status": {"conditions": [None]}}, Node)
    assert node is not None
    assert node.metadata.labels == {"b": "c"}
    assert node.status.conditions == ()


@pytest.mark.parametrize("quantity", ["1181116006400m", "1E3", "-5", "", 7, 0.5, -1, 10**30, "99999999999999999999"])
def test_quantities_are_read_as_they_were_written(quantity: str | float) -> None:
    pod = read_pod(spec={"containers": [{"name": "c", "resources": {"requests": {"cpu": quantity}}}]})
    assert pod is not None
    resources = pod.spec.containers[0].resources
    assert resources is not None
    assert resources.requests == {"cpu": quantity}


def test_a_number_that_was_written_as_a_text_is_a_number() -> None:
    job = reader_of(Job).item(json.dumps({"metadata": META, "status": {"active": "2"}}).encode())
    assert job is not None
    assert job.status.active == 2


@pytest.mark.parametrize("parts", [{"spec": 7}, {"metadata": "a"}, {"spec": {"containers": [3]}}])
def test_what_cannot_be_understood_is_none_and_no_crash(parts: dict[str, object]) -> None:
    assert read_pod(**parts) is None


def test_one_strange_object_costs_a_page_nothing_but_itself() -> None:
    items: list[object] = [{"metadata": META}, {"metadata": 7}, {"metadata": {**META, "name": None}}]
    data = json.dumps({"metadata": {"resourceVersion": "9", "continue": "t"}, "items": items}).encode()
    page = reader_of(Pod).page(data)
    assert [pod.metadata.name for pod in page.items or ()] == ["a", ""]
    assert (page.metadata.resource_version, page.metadata.continue_) == ("9", "t")


def test_a_page_without_items_is_empty() -> None:
    assert not reader_of(Pod).page(b'{"metadata":{"resourceVersion":"9"},"items":null}').items


def test_what_is_no_page_is_an_error() -> None:
    with pytest.raises(msgspec.MsgspecError):
        reader_of(Pod).page(b'{"items": "no"}')
