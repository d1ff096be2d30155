"""What every test gets: no bare imports, Hypothesis without a stopwatch, and real servers for those that ask."""

import importlib.util
import os
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

_ROOT = Path(__file__).resolve().parent.parent

# `python -m pytest` puts the current folder in front, and `import wire` would work there and nowhere else.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _ROOT]

# A job in the background of a shell ignores Ctrl-C, and so would the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure, and continuous integration tries the same examples each time.
settings.register_profile("house", deadline=None, derandomize="CI" in os.environ, print_blob=True)
EXAMPLES = 100_000 if os.environ.get("LEVERS9_LONG") else 1_000  # of each property of a pure core; see scripts/test
settings.register_profile("property", settings.get_profile("house"), max_examples=EXAMPLES, stateful_step_count=30)
settings.load_profile("house")


def _load(file: str, name: str) -> ModuleType:
    """Make a file of fixtures known by a name: the folders' own conftests import from it."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(file))
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_FIXTURES = (_load("servers.py", "levers9_test_servers"), _load("lab_fixture.py", "levers9_test_lab"))


def pytest_configure(config: pytest.Config) -> None:
    """Make the fixtures of these files known to all tests."""
    for module in _FIXTURES:
        config.pluginmanager.register(module, module.__name__)
