"""The figures of the product, said twice on purpose: a change of one is a decision, and this page asks for it."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Final

import levers9
from levers9.model import figures
from levers9.sdk.job import job

ROOT: Final = Path(levers9.__file__).resolve().parent
PRODUCT: Final = ("actors", "cli", "daemons", "kube", "lab", "model", "sdk", "store", "wire")

FIGURES: Final[dict[str, float]] = {
    "STREAM_PORT": 1993,
    "HTTP_PORT": 1994,
    "WORKER_PORT": 1995,
    "METRICS_PORT": 9090,
    "HEARTBEAT_S": 5.0,
    "PEER_SILENT_AFTER_S": 15.0,
    "WORKER_LEASE_S": 300.0,
    "REPORT_WAIT_S": 15.0,
    "OWN_OUTAGE_S": 1.0,
    "SWEEP_S": 1.0,
    "SESSION_KEPT_S": 300.0,
    "HANDSHAKE_LIMIT_S": 10.0,
    "DIAL_LIMIT_S": 15.0,
    "CARRIER_WRITE_LIMIT_S": 30.0,
    "GOODBYE_WAIT_S": 2.0,
    "CARRIER_DEAD_AFTER_S": 45.0,
    "LEADER_LEASE_S": 5.0,
    "LEADER_RENEW_S": 1.0,
    "REDIAL_FIRST_MIN_S": 0.5,
    "REDIAL_FIRST_MAX_S": 15.0,
    "REDIAL_MAX_S": 30.0,
    "REDIAL_RESET_AFTER_S": 60.0,
    "CONTAINER_START_LIMIT_S": 900.0,
    "STOP_GRACE_S": 30.0,
    "STARTING_STOP_GRACE_S": 1.0,
    "IDLE_WORKER_S": 300.0,
    "WORKER_START_LIMIT_S": 1200.0,
    "GUARD_PENDING": 20,
    "GUARD_PER_MINUTE": 30,
    "GUARD_WINDOW_S": 60.0,
    "CRASH_LOOP_FAILURES": 3,
    "CRASH_LOOP_FIRST_S": 60.0,
    "CRASH_LOOP_MAX_S": 3600.0,
    "DRAIN_S": 0.5,
    "JOB_CPU": 0.125,
    "JOB_MEMORY_MIB": 128,
    "JOB_TIMEOUT_S": 3600,
    "JOB_RETRIES": 3,
    "JOB_KEEP_WARM_S": 10.0,
    "MAX_IN_FLIGHT": 2000,
    "FRAME_MAX_BYTES": 1 << 20,
    "BATCH_BYTES": 64 << 10,
    "MAILBOX_SLOTS": 1024,
    "LOCAL_SLOTS": 65_536,
    "STREAMS_MAX": 20_000,
    "DEAD_LETTERS": 1000,
    "RESEND_ENVELOPES": 4096,
    "RESEND_BYTES": 8 << 20,
    "INLINE_MAX_BYTES": 512 << 10,
    "PAYLOAD_MAX_BYTES": 256 << 20,
    "LOG_LINE_MAX_BYTES": 64 << 10,
    "LOG_KEPT_BYTES": 64 << 20,
    "REST_BODY_MAX_BYTES": 32 << 20,
    "KEPT_AFTER_READ_S": 600.0,
    "KEPT_UNREAD_S": 43_200.0,
    "CREDIT_WINDOW_MAX": 64,
    "CREDIT_HORIZON_S": 0.1,
    "HAND_BACK_AFTER_S": 1.0,
    "TOKEN_KEPT_S": 10.0,
    "FAILURES_ALLOWED": 10,
    "FAILURES_WITHIN_S": 60.0,
    "CRASHES_TO_QUARANTINE": 3,
    "GANG_READY_S": 300.0,
    "GANG_RETRY_S": 60.0,
    "FAIR_SLICE_S": 2.0,
    "REPORT_EVERY_S": 10.0,
    "REPORT_CHANGE_S": 1.0,
    "REPORT_STALE_S": 90.0,
    "JOB_START_LIMIT_S": 1200.0,
    "JOB_WITHOUT_POD_S": 30.0,
    "JOB_KEPT_S": 30,
    "JOB_GRACE_S": 120,
    "JOB_RESERVE_CPU_MILLI": 500,
    "JOB_RESERVE_MEMORY_MIB": 1024,
    "CLUSTERS_PER_WORKSPACE": 5,
    "JOIN_WAIT_S": 180.0,
    "JOIN_LOOK_S": 5.0,
}

# `@job` says these as numbers, for people who read its signature and to be imported quickly
SIGNATURE: Final = {
    "cpu": figures.JOB_CPU,
    "memory": figures.JOB_MEMORY_MIB,
    "timeout": figures.JOB_TIMEOUT_S,
    "retries": figures.JOB_RETRIES,
}
IN_SIGNATURE: Final = {"JOB_CPU", "JOB_MEMORY_MIB", "JOB_TIMEOUT_S", "JOB_RETRIES"}


def constants() -> dict[str, float]:
    """All that `figures.py` says, by name."""
    return {name: value for name, value in vars(figures).items() if name.isupper()}


def names_taken(path: Path) -> set[str]:
    """What a file imports from `figures`."""
    tree = ast.parse(path.read_text())
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in froms if (node.module or "").endswith("figures") for alias in node.names}


def test_every_figure_is_what_was_decided() -> None:
    assert constants() == FIGURES


def test_every_figure_is_used() -> None:
    paths = [*ROOT.glob("*.py"), *(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))]
    used = set().union(*(names_taken(path) for path in paths))
    assert constants().keys() - used - IN_SIGNATURE == set()


def test_the_defaults_of_job_are_the_figures() -> None:
    said = inspect.signature(job).parameters
    assert {name: said[name].default for name in SIGNATURE} == SIGNATURE
