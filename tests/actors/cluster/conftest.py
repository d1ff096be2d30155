"""What tests of clusters share: `stage.py`, known to them as `levers9_test_cluster`, and `lying.py`."""

import importlib.util
import sys
from pathlib import Path

for _file, _known_as in (("stage.py", "levers9_test_cluster"), ("lying.py", "levers9_test_lying")):
    _spec = importlib.util.spec_from_file_location(_known_as, Path(__file__).with_name(_file))
    assert _spec is not None
    assert _spec.loader is not None
    if _known_as not in sys.modules:
        sys.modules[_known_as] = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules[_known_as])
