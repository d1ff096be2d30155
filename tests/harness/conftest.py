"""What tests of the whole product share: the world, known to them as `levers9_world`, and the seed to try."""

import importlib.util
import sys
from pathlib import Path

_folder = Path(__file__).with_name("world")
_spec = importlib.util.spec_from_file_location(
    "levers9_world", _folder / "__init__.py", submodule_search_locations=[str(_folder)]
)
assert _spec is not None
assert _spec.loader is not None
if "levers9_world" not in sys.modules:
    sys.modules["levers9_world"] = module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(module)
