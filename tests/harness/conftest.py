"""What tests of the whole product share: worlds, known to them as `levers9_world` and `levers9_clusters`, and seeds.

`pytest tests/harness/test_world.py --world-seed 7` lives one world; `--world-seeds 500` is the long sweep. For worlds
of clusters it is `--cluster-seed`, `--cluster-seeds` and `--cluster-first`; LEVERS9_CLUSTER_SEEDS is "FIRST:COUNT", or
"COUNT" alone for seeds that are fresh each day (see scripts/sweep).
"""

import importlib.util
import os
import sys
import time
from pathlib import Path

import pytest

SWEEP = 14  # seeds of the default sweep: half a second each
CLUSTER_SWEEP = 16
DAY_S = 86_400
SEEDS_A_DAY = 1_000


def _know(name: str, folder: Path) -> None:
    """Make a folder beside this file known as a package of this name."""
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    if name not in sys.modules:
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


_know("levers9_world", Path(__file__).with_name("world"))
_know("levers9_clusters", Path(__file__).with_name("clusters"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("world")
    group.addoption("--world-seed", type=int, default=None, help="live the world of this seed only")
    group.addoption("--world-seeds", type=int, default=SWEEP, help="live the worlds of so many seeds")
    group.addoption("--world-faults", default=None, help="of the seed's faults, keep those with these numbers: 0,3")
    group.addoption("--cluster-seed", type=int, default=None, help="live the world of clusters of this seed only")
    group.addoption("--cluster-seeds", type=int, default=None, help="live the worlds of clusters of so many seeds")
    group.addoption("--cluster-first", type=int, default=None, help="the first of these seeds")
    group.addoption("--cluster-faults", default=None, help="of the seed's faults, keep those with these numbers: 0,3")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world_seed" in metafunc.fixturenames:
        one = metafunc.config.getoption("world_seed", default=None)
        seeds = range(metafunc.config.getoption("world_seeds", default=SWEEP)) if one is None else [one]
        metafunc.parametrize("world_seed", seeds)
    if "cluster_seed" in metafunc.fixturenames:
        metafunc.parametrize("cluster_seed", _cluster_seeds(metafunc.config))


def _cluster_seeds(config: pytest.Config) -> range:
    """One seed, or as many as an option or the environment says, from a first one."""
    one = config.getoption("cluster_seed", default=None)
    if one is not None:
        return range(one, one + 1)
    first, count = _told_seeds(os.environ.get("LEVERS9_CLUSTER_SEEDS", f"0:{CLUSTER_SWEEP}"))
    asked_first, asked_count = (config.getoption(f"cluster_{name}", default=None) for name in ("first", "seeds"))
    first = first if asked_first is None else asked_first
    return range(first, first + (asked_count or count))


def _told_seeds(text: str) -> tuple[int, int]:
    first, colon, count = text.rpartition(":")
    return int(first) if colon else int(time.time() // DAY_S) * SEEDS_A_DAY, int(count)


def pytest_report_header() -> str | None:
    """Which fresh seeds there are, so that they can be lived again."""
    told = os.environ.get("LEVERS9_CLUSTER_SEEDS")
    return told and "worlds of clusters: {1} seeds from {0} on".format(*_told_seeds(told))


def _numbers(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(int(number) for number in text.split(",") if number)


@pytest.fixture
def kept_faults(request: pytest.FixtureRequest) -> tuple[int, ...] | None:
    """The numbers of the faults to keep, or None for all."""
    return _numbers(request.config.getoption("world_faults", default=None))


@pytest.fixture
def kept_cluster_faults(request: pytest.FixtureRequest) -> tuple[int, ...] | None:
    """As `kept_faults`, of a world of clusters."""
    return _numbers(request.config.getoption("cluster_faults", default=None))
