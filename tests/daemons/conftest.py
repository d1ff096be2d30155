"""What tests of clusters share: `cluster_plane.py`, known to them as `levers9_test_clusters`."""

import importlib.util
import sys
from pathlib import Path

_spec = importlib.util.spec_from_file_location("levers9_test_clusters", Path(__file__).with_name("cluster_plane.py"))
assert _spec is not None
assert _spec.loader is not None
if "levers9_test_clusters" not in sys.modules:
    plane = sys.modules["levers9_test_clusters"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(plane)
