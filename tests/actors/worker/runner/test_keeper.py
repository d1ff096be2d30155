"""The keeper hears everything that is asked of it, whenever that is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from levers9_test_worker import bundle_module

ASKED_TO_END_AT_ONCE = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
from levers9_runner import keeper, request
worker, own = socket.socketpair()
plane, runner = socket.socketpair()
worker.send(b"T")
claims, out, err = (os.open(os.devnull, os.O_RDWR) for _ in range(3))
asked = request.Request(
    container_id="c1", handler="mod:function", function=b"", code_path=sys.argv[2], env={}, cpu_milli=100,
    memory_bytes=0, open_files=256, processes=0, marker=b"m", watch_s=1.0, payload_max_bytes=1 << 20, use_cgroup=False,
)
if os.fork() == 0:
    keeper.keep(asked, request.Descriptors(runner.fileno(), claims, out, err, own.detach()))
os.wait()
print(worker.recv(64).decode())
"""


def test_a_tree_that_is_asked_to_end_before_its_runner_could_hear_it_ends(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("import time\ntime.sleep(60)\n")
    bundle = Path(str(bundle_module("keeper").__file__)).parents[1]
    argv = (sys.executable, "-c", ASKED_TO_END_AT_ONCE, str(bundle), str(tmp_path))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10.0)
    assert done.stdout.startswith("E "), done.stderr
