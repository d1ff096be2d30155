"""`task why` answers for each kind of hold, with real processes: what is lacking, where, and who has it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec
import pytest

from levers9.model.holds import Why
from levers9.model.reasons import HoldKind

from .controlplane import ControlPlane, command_of, kill, running, wait_until

pytestmark = pytest.mark.slow

DOMAIN = "accelerator.topograph.run/domain"
SETTINGS = f"""
[[pools]]
name = "lab"
isolation = "trusted"
cpu = 4
memory = "4Gi"
gpu = "GB200"
gpu_count = 4
labels = {{ "{DOMAIN}" = "nvl-1" }}
[[pools.nodes]]
name = "tray-1"
[[pools.nodes]]
name = "tray-2"

[[pools]]
name = "small"
isolation = "trusted"
cpu = 1
memory = 1024

[[pools]]
name = "slow"
isolation = "trusted"
cpu = 1
memory = 1024
max_workers = 2
idle_s = 1

[[pools]]
name = "failing"
isolation = "trusted"
cpu = 1
memory = 1024
max_workers = 2

[[pools]]
name = "paired"
isolation = "trusted"
cpu = 1
memory = 1024
max_workers = 2

[[pools]]
name = "kept"
isolation = "trusted"
cpu = 1
memory = 1024
gpu = "A100"
gpu_count = 2
[[pools.nodes]]
name = "kept-1"
[[pools.nodes]]
name = "kept-2"

[[queueing.topologies]]
name = "nvl"
levels = ["{DOMAIN}"]

[[queueing.flavors]]
name = "gb200"
gpu_type = "GB200"
topology = "nvl"
[[queueing.flavors]]
name = "plain"
pool = "small"
gpu_type = "none"

[[queueing.quotas]]
name = "gpu"
flavors = [{{ flavor = "gb200", gpu = 8 }}]
[[queueing.quotas]]
name = "held"
held = true
flavors = [{{ flavor = "gb200", gpu = 8 }}]
[[queueing.quotas]]
name = "ranked"
preempt = "lower_priority"
flavors = [{{ flavor = "plain", cpu = 1 }}]

[[queueing.queues]]
name = "gpu"
workspace = "default"
quota = "gpu"
[[queueing.queues]]
name = "held"
workspace = "default"
quota = "held"
[[queueing.queues]]
name = "ranked"
workspace = "default"
quota = "ranked"

[[queueing.shares]]
workspace = "team"
max_containers = 1

[[queueing.priorities]]
name = "urgent"
value = 1000
"""
GUARDED = """
[[pools]]
name = "guarded"
isolation = "trusted"
cpu = 1
memory = 1024

[provisioning_guard]
pending = 0
"""
CARD = {"gpu": "GB200", "gpu_count": 1, "cpu": 0.25, "memory": 128}
KEPT = {"pool": "kept", "gpu": "A100", "cpu": 0.125, "memory": 128, "timeout": 600}
Options = dict[str, object]
PATIENCE_S = 30.0  # on a machine that is busy


class Bench:
    """A control plane with what was submitted to it, which ends with the test."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._tokens = {"default": plane.token}
        self._submitted: list[str] = []

    def submit(self, name: str, *, stubborn_s: float = 0.0, workspace: str = "default", **options: object) -> str:
        """Submit a call of a function with these options; returns its task."""
        done = self.try_to_submit(name, stubborn_s=stubborn_s, workspace=workspace, **options)
        assert done.returncode == 0, done.stderr
        task = done.stdout.strip()
        self._submitted.append(task)
        return task

    def try_to_submit(
        self, name: str, *, stubborn_s: float = 0.0, workspace: str = "default", **options: object
    ) -> subprocess.CompletedProcess[str]:
        """As `submit`, for a call that is refused."""
        env = self.plane.environment | {"LEVERS9_TOKEN": self._token(workspace)}
        program = Path(__file__).with_name("held") / "jobs.py"
        argv = [sys.executable, str(program), name, json.dumps(options), str(stubborn_s)]
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60.0)

    def _token(self, workspace: str) -> str:
        if workspace not in self._tokens:
            body = {"kind": "workspace", "workspace": workspace}
            self._tokens[workspace] = json.loads(self.plane.ask("/api/v1/tokens", body, method="POST"))["token"]
        return self._tokens[workspace]

    def why(self, task: str) -> Why:
        """What `task why` says."""
        return msgspec.json.decode(self.plane.ask(f"/api/v1/tasks/{task}/why"), type=Why)

    def runs(self, task: str) -> None:
        """Wait until a task runs."""
        said: list[Why] = []

        def so() -> bool:
            said.append(self.why(task))
            return said[-1].state == "RUNNING"

        try:
            wait_until(so, "it runs", PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"it does not run: {said[-1]}") from None

    def waits_because(self, task: str, kind: HoldKind, words: str) -> str:
        """Wait until a task is held so, in these words (a pattern); returns them as they were said."""
        said: list[Why] = []

        def so() -> bool:
            found = self.why(task)
            said.append(found)
            return kind in [hold.kind for hold in found.holds] and bool(re.search(words, "\n".join(found.reasons)))

        try:
            wait_until(so, "it is held so", PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"{kind}: {words!r} was not said, but {said[-1]}") from None
        found = re.search(words, "\n".join(said[-1].reasons))
        assert found is not None
        return found[0]

    def worker_on(self, node: str) -> str:
        """The worker on a named node."""
        workers = json.loads(self.plane.ask("/api/v1/workers"))["workers"]
        return next(str(one["worker_id"]) for one in workers if one.get("node") == node)

    def wish(self, worker: str, wish: str) -> None:
        """Cordon or uncordon a worker."""
        self.plane.ask(f"/api/v1/workers/{worker}/{wish}", {}, method="POST")

    def process_of(self, pool: str, besides: frozenset[int] = frozenset()) -> int:
        """The process of a pool's worker, as soon as it is there."""
        found: list[int] = []

        def there() -> bool:
            pids = [pid for pid in self.plane.workers() if f"--pool {pool} " in command_of(pid) and pid not in besides]
            found.extend(pids)
            return bool(pids)

        wait_until(there, f"a worker of {pool} is there")
        return found[0]

    def end(self, task: str) -> None:
        """Cancel a task."""
        self.plane.ask(f"/api/v1/tasks/{task}/stop", {}, method="POST")

    def end_all(self) -> None:
        """Cancel what was submitted, what waits before what runs, and wait until none runs."""
        for task in reversed(self._submitted):
            self.end(task)
        submitted, self._submitted = self._submitted, []
        wait_until(lambda: all(self.why(task).state not in ("RUNNING", "CANCELLING") for task in submitted), "they end")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path_factory.mktemp("lab"), settings=SETTINGS)
    with running(plane):
        plane.wait_for_token()
        yield plane


@pytest.fixture(scope="module")
def long_waiting(lab: ControlPlane) -> Iterator[str]:
    """A gang for two whole nodes, of which one is in use: it waits from the first test on, for a minute at least."""
    found = Bench(lab)
    found.runs(found.submit("train", **KEPT, gpu_count=1, nodes=2))
    yield found.submit("other", **KEPT, gpu_count=2, nodes=2)
    found.end_all()


@pytest.fixture
def bench(lab: ControlPlane, long_waiting: str) -> Iterator[Bench]:
    found = Bench(lab)
    yield found
    found.end_all()


def test_room_that_others_have_is_told_with_who_has_it_and_a_pool_at_its_maximum(bench: Bench) -> None:
    options: Options = {"pool": "small", "cpu": 1, "memory": 256, "timeout": 600}
    bench.runs(bench.submit("train", **options))
    waiting = bench.submit("other", **options)
    bench.waits_because(waiting, HoldKind.ROOM, r"No worker has room for it.*: 1 more CPU needed")
    bench.waits_because(waiting, HoldKind.ROOM, r"train runs 1 container\.")
    bench.waits_because(waiting, HoldKind.MAXIMUM, r"Pool small: it is at its maximum of 1 worker\..*max_workers")


def test_a_worker_that_is_starting_is_told(bench: Bench) -> None:
    waiting = bench.submit("train", pool="slow", cpu=1, memory=256)
    worker = bench.process_of("slow")
    os.kill(worker, signal.SIGSTOP)
    try:
        bench.waits_because(waiting, HoldKind.STARTING, r"A worker with room for it is starting")
    finally:
        os.kill(worker, signal.SIGCONT)
    bench.runs(waiting)


def test_quota_that_others_use_is_told_with_who_has_it(bench: Bench) -> None:
    bench.runs(bench.submit("train", **CARD | {"gpu_count": 4}, nodes=2, queue="gpu", timeout=600))
    waiting = bench.submit("other", **CARD, nodes=8, topology=DOMAIN, queue="gpu")
    bench.waits_because(waiting, HoldKind.QUOTA, r"8 more GB200 needed in quota gpu\.")
    bench.waits_because(waiting, HoldKind.QUOTA, r"train \(2 containers\) holds 8 GB200; the first ends by .* latest\.")


def test_the_place_in_the_queue_is_told(bench: Bench) -> None:
    bench.runs(bench.submit("train", **CARD | {"gpu_count": 4}, nodes=2, queue="gpu"))
    bench.submit("other", **CARD, nodes=7, queue="gpu")
    last = bench.submit("other", **CARD, nodes=8, queue="gpu")
    bench.waits_because(last, HoldKind.QUOTA, r"1 request of its queue goes before it\.")


def test_a_workspace_at_its_limit_is_told_and_hears_no_names_of_others(bench: Bench) -> None:
    options: Options = {"pool": "lab", "cpu": 0.25, "memory": 128}
    bench.runs(bench.submit("train", workspace="team", **options))
    waiting = bench.submit("other", workspace="team", **options)
    bench.waits_because(waiting, HoldKind.CONCURRENCY, r"Its workspace may have 1 container at a time")


def test_names_of_another_workspaces_functions_are_not_told(bench: Bench) -> None:
    options: Options = {"pool": "small", "cpu": 1, "memory": 256}
    bench.runs(bench.submit("train", **options))
    waiting = bench.submit("other", workspace="team", **options)
    bench.waits_because(waiting, HoldKind.ROOM, r"Other workspaces run 1 container")
    assert "train" not in "\n".join(bench.why(waiting).reasons)


def test_a_domain_that_is_too_small_is_told_with_the_node_that_is_cordoned(bench: Bench) -> None:
    bench.runs(bench.submit("train", **CARD, nodes=8, topology=DOMAIN, queue="gpu"))  # so that both workers are there
    bench.end_all()
    cordoned = bench.worker_on("tray-2")
    bench.wish(cordoned, "cordon")
    try:
        waiting = bench.submit("other", **CARD, nodes=8, topology=DOMAIN, queue="gpu")
        bench.waits_because(
            waiting, HoldKind.TOPOLOGY, rf"Topology nvl: only 4 of 8 fit in one {DOMAIN}; tray-2 is cordoned\."
        )
    finally:
        bench.wish(cordoned, "uncordon")
    bench.runs(waiting)


def test_a_gang_whose_workers_are_starting_is_told(bench: Bench) -> None:
    waiting = bench.submit("train", pool="paired", cpu=1, memory=256, nodes=2)
    worker = bench.process_of("paired")
    os.kill(worker, signal.SIGSTOP)
    try:
        words = r"Its workers are starting in pool paired: 1 of 2 containers have theirs\."
        bench.waits_because(waiting, HoldKind.GANG, words)
    finally:
        os.kill(worker, signal.SIGCONT)
    bench.runs(waiting)


def test_a_quota_that_is_held_is_told_with_what_ends_it(bench: Bench) -> None:
    waiting = bench.submit("train", **CARD, queue="held")
    bench.waits_because(waiting, HoldKind.QUEUE_HELD, r"Quota held is held: .*`levers9 quota release held`")


def test_others_that_are_stopping_to_make_room_are_told(bench: Bench) -> None:
    options: Options = {"pool": "small", "cpu": 1, "memory": 256, "queue": "ranked"}
    low = bench.submit("train", stubborn_s=5.0, **options)
    bench.runs(low)
    urgent = bench.submit("other", priority="urgent", **options)
    bench.waits_because(urgent, HoldKind.PREEMPTING, r"Others are stopping to make room for it\.")
    bench.runs(urgent)


def test_a_call_that_was_stopped_for_another_one_runs_again_and_has_used_no_retry(bench: Bench) -> None:
    options: Options = {"pool": "small", "cpu": 1, "memory": 256, "queue": "ranked"}
    low = bench.submit("train", retries=0, **options)
    bench.runs(low)
    urgent = bench.submit("other", priority="urgent", **options)
    bench.runs(urgent)
    assert bench.why(low).state == "RETRY"
    bench.end(urgent)
    bench.runs(low)


def test_what_can_never_be_is_refused_at_submit(bench: Bench) -> None:
    for options, told in (
        ({**CARD, "nodes": 9}, "9 containers of this size never fit together. Pool lab, all of it, has room for 8."),
        ({**CARD, "nodes": 8, "topology": "rack"}, "No node has the topology level rack."),
        ({**CARD, "labels": {"zone": "a"}}, "No node has the label zone=a."),
        ({**CARD, "gpu_share": 0.5, "gpu_count": 1}, "No pool shares its GB200 cards."),
        ({**CARD, "queue": "none"}, "There is no queue 'none' in this workspace. Queues: default, gpu, held, ranked."),
        ({**CARD, "priority": "high"}, "There is no priority 'high'. Priorities: default, urgent."),
    ):
        done = bench.try_to_submit("train", **options)
        assert done.returncode != 0
        assert told in " ".join(done.stderr.split())


def test_a_guard_that_holds_an_order_is_told(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path, settings=GUARDED)
    with running(plane):
        plane.wait_for_token()
        bench = Bench(plane)
        waiting = bench.submit("train", cpu=1, memory=256)
        words = r"Pool guarded: the provisioning guard holds it: .* the limit is 0\."
        bench.waits_because(waiting, HoldKind.GUARD, words)


def test_a_pool_whose_workers_end_early_is_told_with_where_to_look(bench: Bench) -> None:
    waiting = bench.submit("train", pool="failing", cpu=1, memory=256)
    killed: frozenset[int] = frozenset()
    for _ in range(5):
        worker = bench.process_of("failing", killed)
        kill(worker)
        killed |= {worker}
    words = r"Pool failing: its last \d workers ended early;.* `levers9 worker list --gone` says why they ended\."
    bench.waits_because(waiting, HoldKind.BACK_OFF, words)


def test_room_that_is_kept_for_a_gang_that_waits_longer_is_told(bench: Bench, long_waiting: str) -> None:
    bench.waits_because(long_waiting, HoldKind.ROOM, r"Only 1 of 2 has room: 2 more A100 needed")
    tries = count()
    wait_until(lambda: _is_held_back(bench, next(tries)), "room is kept for the gang", 90.0)


def _is_held_back(bench: Bench, number: int) -> bool:
    """Submit a call that would fit, of a function of its own; it says that it must leave the room, or it runs."""
    small = bench.submit("train", **KEPT | {"timeout": 1000 + number}, gpu_count=1)
    found: list[Why] = []

    def decided() -> bool:
        found.append(bench.why(small))
        return found[-1].state == "RUNNING" or HoldKind.RESERVED in [hold.kind for hold in found[-1].holds]

    wait_until(decided, "it runs, or it is held")
    bench.end_all()
    return "is kept for a gang that waits longer" in "\n".join(found[-1].reasons)


def test_a_new_leader_that_waits_for_workers_is_told(bench: Bench) -> None:
    bench.runs(bench.submit("train", pool="small", cpu=1, memory=256))
    worker = bench.process_of("small")
    os.kill(worker, signal.SIGSTOP)  # it reports to the new leader late
    try:
        kill(bench.plane.brain())
        wait_until(lambda: bool(bench.plane.parts("levers9.daemons.brain")), "there is a brain again")
        waiting = bench.submit("other", **CARD, queue="gpu")
        bench.waits_because(waiting, HoldKind.LEADER, r"A new leader waits for its workers to report")
    finally:
        os.kill(worker, signal.SIGCONT)
    bench.runs(waiting)
