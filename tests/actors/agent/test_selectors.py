"""Selectors are Kubernetes' own."""

import pytest

from levers9.actors.agent.selectors import parse_selector
from levers9.errors import Refused

LABELS = {"gpu": "h100", "zone": "eu-1", "empty": "", "cards": "8", "cloud.google.com/gke-accelerator": "nvidia-l4"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("  ", True),
        ("gpu=h100", True),
        ("gpu == h100 , zone = eu-1", True),
        ("gpu=a100", False),
        ("gpu!=a100", True),
        ("missing!=x", True),
        ("gpu in (a100, h100)", True),
        ("gpu in (a100,h100),zone notin (eu-1)", False),
        ("missing notin (a)", True),
        ("gpu", True),
        ("!gpu", False),
        ("!missing,gpu", True),
        ("empty=", True),
        ("empty in ()", True),
        ("cards>4", True),
        ("cards<8", False),
        ("gpu>4", False),
        ("cloud.google.com/gke-accelerator=nvidia-l4", True),
        ("in in (a)", False),
    ],
)
def test_a_selector_names_nodes_by_their_labels(text: str, matches: bool) -> None:
    assert parse_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize("text", ["=x", "a=b=c", "a in b", "a in (b", "a b", "a,,b", "(", "a=b,", "a in (b c)"])
def test_what_is_no_selector_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(Refused, match="label selector"):
        parse_selector(text)
