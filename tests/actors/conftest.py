"""What tests of the policies share: `deciding.py`, known to them as `levers9_test_deciding`."""

import importlib.util
import sys
from pathlib import Path

_spec = importlib.util.spec_from_file_location("levers9_test_deciding", Path(__file__).with_name("deciding.py"))
assert _spec is not None
assert _spec.loader is not None
if "levers9_test_deciding" not in sys.modules:
    deciding = sys.modules["levers9_test_deciding"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(deciding)
