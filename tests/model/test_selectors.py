"""Label selectors: what they select, and what is none."""

from __future__ import annotations

import pytest

from levers9.errors import Refused
from levers9.model.selectors import parse, selector_of, selects

LABELS = {"pool": "a", "cards": "4", "example.com/gpu": "H100", "empty": "", "spread": "1_0", "spaced": " 4"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("  ", True),
        ("pool == a , cards = 4", True),
        ("pool in (b,a),cards notin (4)", False),
        ("!nobody,pool", True),
        ("empty in ()", True),
        ("in in (a)", False),
        ("spread>3", False),
        ("spaced>3", False),
        ("pool=a", True),
        ("pool == a", True),
        ("pool=b", False),
        ("pool!=b", True),
        ("nobody!=b", True),
        ("pool in (a,b)", True),
        ("pool in (b, c),example.com/gpu", False),
        ("pool notin (b,c),example.com/gpu=H100", True),
        ("nobody notin (b)", True),
        ("pool", True),
        ("!pool", False),
        ("!nobody", True),
        ("empty=", True),
        ("nobody=", False),
        ("cards>3", True),
        ("cards > 4", False),
        ("cards<5", True),
        ("pool<5", False),
        ("nobody>-1", False),
    ],
)
def test_a_selector_selects_as_kubernetes_does(selector: str, expected: bool) -> None:
    assert selects(selector, LABELS) is expected


@pytest.mark.parametrize(
    "selector",
    [
        "pool=a b",
        "=a",
        "pool in a",
        "pool in (a",
        "a/b/c",
        "pool=-a",
        "pool in (a b)",
        "a=b=c",
        "a b",
        "a,,b",
        "a=b,",
        ",",
        "(",
        "a>b",
        "a in (-x)",
        "a=" + 70 * "x",
    ],
)
def test_what_is_no_selector_is_refused_with_how_it_is_written(selector: str) -> None:
    with pytest.raises(Refused, match="key=value"):
        parse(selector)


def test_pairs_become_a_selector_also_where_a_condition_was_split_at_its_first_sign() -> None:
    pairs = {"a": "b", "k in (x,y)": "", "bare": "", "pool": "in (p,q)"}
    assert selector_of(pairs) == "a=b,k in (x,y),bare,pool in (p,q)"
    assert [term.values for term in parse(selector_of(pairs))] == [("b",), ("x", "y"), (), ("p", "q")]
