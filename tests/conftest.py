"""What every test gets: no bare imports from the root of the repository, and Hypothesis without a stopwatch."""

import os
import sys
from pathlib import Path

from hypothesis import settings

_ROOT = Path(__file__).resolve().parent.parent

# `python -m pytest` puts the current folder in front, and `import wire` would work there and nowhere else.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _ROOT]

# A busy machine is no failure, and continuous integration tries the same examples each time.
settings.register_profile("house", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("house")
