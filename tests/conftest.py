"""What every test gets: no bare imports from the root of the repository, even under `python -m pytest`."""

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent

sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _ROOT]
