"""A control plane's settings, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from levers9.daemons.settings import line_of, load_settings
from levers9.errors import ConfigError

TEXT = """\
# a comment about gateways
gateways = 2

[[pools]]
name = "a"
cpu = 2

[[pools]]
name = "b"
cpu = 4
"""


def test_flags_come_before_variables_and_those_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(TEXT)
    assert load_settings(path, {}).gateways == 2
    assert load_settings(path, {"LEVERS9_GATEWAYS": "3"}).gateways == 3
    assert load_settings(path, {"LEVERS9_GATEWAYS": "3"}, gateways=4).gateways == 4


@pytest.mark.parametrize(("key", "pool", "line"), [("gateways", 0, 2), ("cpu", 0, 6), ("cpu", 1, 10), ("none", 0, 1)])
def test_the_line_of_a_key(key: str, pool: int, line: int) -> None:
    assert line_of(TEXT, key, pool) == line


def test_a_wrong_value_of_the_second_pool_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(TEXT.replace("cpu = 4", "cpu = 'four'"))
    with pytest.raises(ConfigError, match=rf"{path}, line 10: cpu: Expected `float`, got `str`\."):
        load_settings(path, {})


def test_a_wrong_variable_is_told_by_its_name() -> None:
    with pytest.raises(ConfigError, match=r"gateways: .* the variable LEVERS9_GATEWAYS"):
        load_settings(None, {"LEVERS9_GATEWAYS": "two"})


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml cannot be read: No such file or directory. Name another"):
        load_settings(tmp_path / "none.toml", {})
