"""Makes `building.py` and `literal.py` known to this folder's tests."""

import importlib.util
import sys
from pathlib import Path

for _name, _file in (("levers9_test_agent", "building.py"), ("levers9_test_agent_literal", "literal.py")):
    _spec = importlib.util.spec_from_file_location(_name, Path(__file__).with_name(_file))
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules[_spec.name] = _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
