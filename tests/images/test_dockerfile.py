"""The image that agents and workers run agrees with what starts them."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from levers9.actors.gateway.manifest import AgentManifest, render

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "images" / "Dockerfile").read_text()
TOLD = AgentManifest(cluster_id="c", name="n", namespace="levers9", image="levers9:1", url="https://levers9.example")


def test_every_stage_begins_with_a_version_that_is_pinned() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2
    assert [base for base in bases if not re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", base)] == []


def test_who_runs_in_the_image_is_said_by_what_starts_it() -> None:
    found = {one["kind"]: one for one in yaml.safe_load_all(render(TOLD))}
    told = found["Deployment"]["spec"]["template"]["spec"]["securityContext"]
    assert (told["runAsNonRoot"], f"nobody ({told['runAsUser']})" in DOCKERFILE) == (True, True)
    assert not re.search(r"^USER", DOCKERFILE, re.MULTILINE)


def test_the_version_in_its_first_lines_is_ours() -> None:
    from levers9 import __version__

    assert f"levers9:{__version__}" in DOCKERFILE


def test_the_pins_are_read_as_the_lock_writes_them() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pins = re.findall(r"^[A-Za-z0-9._-]+==[^ ]+", lock, re.MULTILINE)
    assert {"trio", "msgspec", "kubernetes"} <= {pin.partition("==")[0] for pin in pins}
