"""Bars: a row for each name, a bar for each value, and the value beside it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

CHARTS = Path(__file__).resolve().parents[2] / "bench" / "charts"


@pytest.fixture(scope="module")
def bars() -> ModuleType:
    """Load it as the benches see it."""
    spec = importlib.util.spec_from_file_location("bench_bars", CHARTS / "bars.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_bars"] = module
    spec.loader.exec_module(module)
    return module


def drawn(bars: ModuleType, *values: tuple[float, ...]) -> ElementTree.Element:
    rows = tuple(bars.Row(name=f"row <{number}>", values=each) for number, each in enumerate(values))
    chart = bars.Chart(title="Waits", lead="in s", names=("ours", "theirs"), rows=rows)
    return ElementTree.fromstring(bars.draw((chart,)))


def test_each_value_has_a_bar_as_long_as_it_is_and_stands_beside_it(bars: ModuleType) -> None:
    picture = drawn(bars, (100.0, 50.0), (0.125, 1234.0))
    widths = [float(bar.get("width", "")) for bar in picture.iter() if bar.get("rx")]
    assert widths[1] == pytest.approx(widths[0] / 2, abs=0.1)
    assert widths[3] == max(widths)
    assert widths[2] == 1.0  # even next to nothing is seen
    texts = [text.text for text in picture.iter() if text.tag.endswith("text")]
    assert [word for word in ("Waits", "ours", "row <0>", "100", "50", "0.125", "1,234") if word not in texts] == []


def test_without_rows_there_is_a_heading(bars: ModuleType) -> None:
    assert [bar for bar in drawn(bars).iter() if bar.get("rx")] == []
