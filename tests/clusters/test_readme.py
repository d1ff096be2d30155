"""The README's section "Attach a cluster", as a new user types it: top to bottom, in an empty home."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from levers9.lab.binaries import found, missing

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 240.0
_WHY_NOT = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "the lab can run here")]


def commands() -> list[list[str]]:
    """The commands of each block of the section."""
    section = re.search(r"^## Attach a cluster\n(.*?)^## ", (ROOT / "README.md").read_text(), re.M | re.S)
    assert section is not None
    blocks = re.findall(r"^```console\n(.*?)^```$", section[1], re.M | re.S)
    return [re.findall(r"^\$ (.*)$", block, re.M) for block in blocks]


def here(command: str) -> str:
    """A command of this checkout's environment, wherever that is."""
    return command.replace(".venv/bin/", f"{shlex.quote(str(Path(sys.executable).parent))}/")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of a new user: an empty home, and nothing configured."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LEVERS9_", "KUBE", "XDG_"))}
    kept["KUBEBUILDER_ASSETS"] = str(Path(found("kube-apiserver", os.environ)).parent)  # an empty home has none built
    home = tmp_path / "home"
    home.mkdir()
    return {**kept, "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}


@pytest.fixture
def dev(environment: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    """The first terminal: the control plane that is left running, on ports that are free."""
    ((command,), _) = commands()
    log = tmp_path / "dev.log"
    argv = [*shlex.split(here(command)), "--stream-port", "0", "--http-port", "0"]
    with log.open("wb") as file:
        process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=file, stderr=file)
    try:
        ends_s = time.monotonic() + 60.0
        while "levers9 runs" not in log.read_text():
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < ends_s, log.read_text()[-3000:]
            time.sleep(0.1)
        yield log
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_a_new_user_gets_from_nothing_to_a_card_and_leaves_nothing(dev: Path, environment: dict[str, str]) -> None:
    (_, typed) = commands()
    script = "set -e\n" + "\n".join(here(command) for command in typed)
    try:
        done = subprocess.run(
            ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WITHIN_S,
            check=False,
        )  # fmt: skip
        said = f"{done.stdout}\n{done.stderr}\n{dev.read_text()[-3000:]}"
    finally:
        down = [*shlex.split(here(".venv/bin/levers9 lab down"))]
        subprocess.run(down, env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, said
    assert re.search(r"^tray-\d gave GPU-[0-9a-f-]+$", done.stdout, re.M), said
    assert re.search(r"^lab-1 +GB200 +online +2/2 +8 ", done.stdout, re.M), said
    assert "lab-1 is detached" in done.stdout
