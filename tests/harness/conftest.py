"""What tests of the whole product share: the world, known to them as `levers9_world`, and which seeds to try.

`pytest tests/harness/test_world.py --world-seed 7` lives one world; `--world-seeds 500` is the long sweep.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

SWEEP = 14  # seeds of the default sweep: half a second each

_folder = Path(__file__).with_name("world")
_spec = importlib.util.spec_from_file_location(
    "levers9_world", _folder / "__init__.py", submodule_search_locations=[str(_folder)]
)
assert _spec is not None
assert _spec.loader is not None
if "levers9_world" not in sys.modules:
    sys.modules["levers9_world"] = module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(module)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("world")
    group.addoption("--world-seed", type=int, default=None, help="live the world of this seed only")
    group.addoption("--world-seeds", type=int, default=SWEEP, help="live the worlds of so many seeds")
    group.addoption("--world-faults", default=None, help="of the seed's faults, keep those with these numbers: 0,3")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world_seed" in metafunc.fixturenames:
        one = metafunc.config.getoption("world_seed", default=None)
        seeds = range(metafunc.config.getoption("world_seeds", default=SWEEP)) if one is None else [one]
        metafunc.parametrize("world_seed", seeds)


@pytest.fixture
def kept_faults(request: pytest.FixtureRequest) -> tuple[int, ...] | None:
    """The numbers of the faults to keep, or None for all."""
    text = request.config.getoption("world_faults", default=None)
    return None if text is None else tuple(int(number) for number in text.split(",") if number)
