"""The numbers of a bench: which percentile, which goal, what is written."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def harness() -> ModuleType:
    """Load the harness as the benches see it, though no test may import from that folder by name."""
    spec = importlib.util.spec_from_file_location("bench_harness", BENCH / "harness.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_harness"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (1, 1), (50, 50), (99, 99), (100, 100)])
def test_a_percentile_is_one_of_the_values(harness: ModuleType, percent: float, expected: float) -> None:
    assert harness.percentile(range(100, 0, -1), percent) == expected


def test_one_bad_moment_does_not_decide_a_median(harness: ModuleType) -> None:
    measured = iter([1.0, 900.0, 2.0])
    assert harness.median_of(3, lambda: next(measured)) == 2.0


@pytest.mark.parametrize(
    ("better", "goal", "reached"),
    [
        ("higher", 10.0, True),
        ("higher", 11.0, False),
        ("lower", 10.0, True),
        ("lower", 9.0, False),
        ("lower", None, None),
    ],
)
def test_a_goal_is_reached_from_its_own_side(
    harness: ModuleType, better: str, goal: float | None, reached: bool | None
) -> None:
    figure = harness.Figure(name="calls", value=10.0, unit="calls/s", better=better, goal=goal)
    assert figure.reached is reached


def test_the_report_goes_where_json_says(
    harness: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "results" / "calls.json"
    monkeypatch.setattr(sys, "argv", ["calls.py", "--short", "--json", str(target)])
    figure = harness.Figure(
        name="mapped calls", value=2100.0, unit="calls/s", better="higher", goal=2012.0, peer="ray", peer_value=2012.0
    )
    harness.run_bench("No-op calls", lambda options: [figure] if options.short else [])
    written = msgspec.json.decode(target.read_bytes())
    assert set(written) == {"machine", "figures"}
    assert written["figures"] == [msgspec.to_builtins(figure)]
    assert set(written["figures"][0]) == {"name", "value", "unit", "better", "goal", "peer", "peer_value"}
    assert "2,100 calls/s" in capsys.readouterr().out


def test_an_environment_of_a_peer_is_named_after_its_pins_and_made_once(
    harness: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVERS9_BENCH_CACHE", str(tmp_path))
    made: list[Path] = []

    def install(folder: Path, python: Path, pins: list[str]) -> None:
        made.append(folder)
        folder.mkdir()

    first = harness.peer_venv("ray", ["ray==1"], install)
    assert harness.peer_venv("ray", ["ray==1"], install) == first
    assert harness.peer_venv("ray", ["ray==2"], install) != first
    assert len(made) == 2
    assert first.is_relative_to(tmp_path)
