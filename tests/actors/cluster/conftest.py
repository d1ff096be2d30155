"""What tests of clusters share: `stage.py`, known to them as `levers9_test_cluster`."""

import importlib.util
import sys
from pathlib import Path

_spec = importlib.util.spec_from_file_location("levers9_test_cluster", Path(__file__).with_name("stage.py"))
assert _spec is not None
assert _spec.loader is not None
if "levers9_test_cluster" not in sys.modules:
    stage = sys.modules["levers9_test_cluster"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(stage)
