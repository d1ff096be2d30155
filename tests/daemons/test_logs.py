"""What a daemon writes on its standard error, in a process of its own: loggers belong to the whole process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import logging, structlog
from levers9.daemons.logs import set_up_logs

set_up_logs()
structlog.contextvars.bind_contextvars(replica="replica-1")
structlog.get_logger("levers9.brain").info("we lead", epoch=3)
logging.getLogger("levers9.supervisor").warning("%s crashed", "brain/tasks")

def fail():
    token = "l9-secret"
    raise ValueError("boom")

try:
    fail()
except ValueError:
    logging.getLogger("levers9.supervisor").warning("it failed", exc_info=True)
"""


def said(**variables: str) -> str:
    """What the program writes into a pipe."""
    env = {name: value for name, value in os.environ.items() if name not in ("LEVERS9_LOGS", "NO_COLOR")}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(
        command, env=env | variables, stderr=subprocess.PIPE, text=True, check=True, timeout=60
    ).stderr


@pytest.mark.slow
def test_a_pipe_gets_an_object_a_line_from_both_kinds_of_loggers() -> None:
    first, second, third = (json.loads(line) for line in said().splitlines())
    assert (first["event"], first["epoch"], first["replica"]) == ("we lead", 3, "replica-1")
    assert (second["event"], second["level"]) == ("brain/tasks crashed", "warning")
    assert third["exception"][0]["exc_value"] == "boom"


@pytest.mark.slow
def test_a_pipe_that_leads_to_a_terminal_gets_what_a_person_reads() -> None:
    lines = said(LEVERS9_LOGS="pretty").splitlines()
    assert "we lead" in lines[0]
    assert "\x1b[" in lines[0]
    assert lines[-1] == "ValueError: boom"


@pytest.mark.slow
def test_who_wants_no_colours_gets_none() -> None:
    assert "\x1b[" not in said(LEVERS9_LOGS="pretty", NO_COLOR="1")


@pytest.mark.slow
@pytest.mark.parametrize("style", ["json", "pretty"])
def test_tracebacks_do_not_tell_the_values_of_variables(style: str) -> None:
    assert "l9-secret" not in said(LEVERS9_LOGS=style).replace('token = "l9-secret"', "")
