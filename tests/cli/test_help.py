"""What the help of a command leaves out."""

from __future__ import annotations

import pytest

from .conftest import Line


@pytest.mark.parametrize("command", [("cluster", "join"), ("cluster", "leave"), ("lab", "up"), ("pool", "create")])
def test_no_help_tells_of_defaults_that_go_without_saying_or_of_flags_that_undo_nothing(
    line: Line, command: tuple[str, ...]
) -> None:
    shown = line(*command, "--help").out
    noise = ('default: ""', "default: False", "default: None", "default: ()", "--empty-", "--no-yes", "--no-manifest")
    assert [word for word in noise if word in shown] == []


@pytest.mark.parametrize("verb", ["cordon", "power-off", "partition", "slow", "fail-pull", "lose-card", "split-domain"])
def test_the_help_of_a_fault_names_what_undoes_it_and_where_nodes_are_named(line: Line, verb: str) -> None:
    shown = line("lab", verb, "--help").out
    assert [word for word in ("undoes it.", "levers9 lab status") if word not in shown] == []


def test_what_is_on_by_default_can_be_turned_off(line: Line) -> None:
    shown = line("cluster", "join", "--help").out
    assert [flag for flag in ("--no-wait", "--no-host-network") if flag not in shown] == []
