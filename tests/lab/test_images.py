"""Which images can be pulled, and when it is tried again."""

import pytest

from levers9.lab.images import KNOWN, always_pulls, can_pull, entrypoint, name_of, wait_s


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("busybox", True),
        ("busybox:1.36", True),
        ("registry.example:5000/team/levers9-worker:2", True),
        ("registry.example/levers9@sha256:abc", True),
        ("lab/anything", True),
        ("registry.example/team/other", False),
        ("notlevers9", False),
    ],
)
def test_only_known_images_are_pulled(image: str, expected: bool) -> None:
    assert can_pull(image, KNOWN) is expected


def test_further_patterns_name_further_images() -> None:
    assert can_pull("registry.example/team/other:1", (*KNOWN, "registry.example/team/*"))


@pytest.mark.parametrize(
    ("image", "expected"),
    [("a", "a"), ("a:1", "a"), ("host:5000/a", "host:5000/a"), ("host:5000/a:1", "host:5000/a"), ("a@sha256:x", "a")],
)
def test_a_name_has_no_tag_and_no_digest(image: str, expected: str) -> None:
    assert name_of(image) == expected


@pytest.mark.parametrize(
    ("image", "policy", "expected"),
    [
        ("a", "", True),
        ("a:latest", "", True),
        ("a:1", "", False),
        ("a@sha256:x", "", False),
        ("a:1", "Always", True),
        ("a", "IfNotPresent", False),
    ],
)
def test_an_image_without_a_fixed_tag_is_pulled_each_time(image: str, policy: str, expected: bool) -> None:
    assert always_pulls(image, policy) is expected


def test_back_off_doubles_from_10_s_to_5_minutes() -> None:
    assert [wait_s(failures) for failures in (1, 2, 3, 6, 60)] == [10, 20, 40, 300, 300]


def test_an_image_has_a_command_of_its_own() -> None:
    assert entrypoint("x/levers9-agent:1") == ("levers9",)
    assert entrypoint("python:3.12") == ("python3",)
    assert entrypoint("busybox") == ("sh",)
