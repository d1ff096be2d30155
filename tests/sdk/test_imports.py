"""What is loaded when: a program that only decorates, such as the one a container imports, waits for nothing."""

import subprocess
import sys

import pytest

HEAVY = {"trio", "cloudpickle", "ssl", "http.client", "pathspec", "asyncio", "levers9.wire.link"}
pytestmark = pytest.mark.slow


def loaded(script: str) -> set[str]:
    whole = f"import sys\n{script}\nprint(*sys.modules, sep='\\n', file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.split())


def test_decorating_loads_nothing_heavy() -> None:
    script = "from levers9 import Client, Task, job\n@job(cpu=2)\ndef f(x): return x\nf(1)"
    assert loaded(script) & HEAVY == set()


def test_the_help_of_the_command_line_loads_no_event_loop() -> None:
    script = "from levers9.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert loaded(script) & {"trio", "cloudpickle", "rich.markdown", "levers9.wire.link", "levers9.store"} == set()
