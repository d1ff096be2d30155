"""What tests of the policies share: `deciding.py`, known to them as `levers9_test_deciding`, and `drawing.py`."""

import importlib.util
import sys
from pathlib import Path

for _name in ("deciding", "drawing"):
    _spec = importlib.util.spec_from_file_location(f"levers9_test_{_name}", Path(__file__).with_name(f"{_name}.py"))
    assert _spec is not None
    assert _spec.loader is not None
    if _spec.name not in sys.modules:
        sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules[_spec.name])
