"""What tests of placement share: `cluster.py`, known to them as `levers9_test_placement`."""

import importlib.util
import sys
from pathlib import Path

_spec = importlib.util.spec_from_file_location("levers9_test_placement", Path(__file__).with_name("cluster.py"))
assert _spec is not None
assert _spec.loader is not None
if "levers9_test_placement" not in sys.modules:
    cluster = sys.modules["levers9_test_placement"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(cluster)
