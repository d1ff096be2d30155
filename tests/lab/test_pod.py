"""Pods on a tray: real processes, and a cluster in memory."""

import base64
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from levers9.kube.face import Body
from levers9.kube.memory import MemoryCluster
from levers9.lab.daemon import write_programs
from levers9.lab.environment import Surroundings
from levers9.lab.expansion import PodPlace
from levers9.lab.logfile import LogQuery
from levers9.lab.marks import marked
from levers9.lab.objects import CONFIG_MAPS, SECRETS, Pod
from levers9.lab.pod import PodLife, PodServices
from levers9.lab.podstatus import Outcome, Phase, Terminated, Waiting
from levers9.lab.trays import plan_trays
from levers9.lab.traystate import TrayState

pytestmark = pytest.mark.slow
WITHIN_S = 20


class Room:
    """A tray on which pods can be run."""

    def __init__(self, folder: Path) -> None:
        self.kube = MemoryCluster()
        self.folder = folder
        self.tray = TrayState(
            plan_trays("lab", 77, trays=1, gpus=4, gpu="L4", cpu=8, memory="32Gi", trays_per_domain=1)[0]
        )
        write_programs(folder / "programs")

    def life(self, *containers: Body, uid: str = "u1", cards: int = 0, **spec: object) -> PodLife:
        body = {
            "metadata": {"name": "one", "namespace": "default", "uid": uid},
            "spec": {
                "containers": [{"name": "main", "image": "busybox", **each} for each in containers],
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                **spec,
            },
        }
        around = Surroundings(
            lab_id=f"test-{os.getpid()}", api_host="127.0.0.1", api_port=1, programs=self.folder / "programs"
        )
        services = PodServices(kube=self.kube, around=around, patterns=("busybox", "python"))
        place = PodPlace(node="tray-0", host_ip="127.0.0.1", pod_ip="127.0.0.1")
        assert self.tray.allocate(uid, cards) is not None
        pod = msgspec.convert(body, Pod)
        return PodLife(pod, self.tray, place, self.folder / "tray-0" / "pods" / uid, services)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def shell(script: str) -> dict[str, object]:
    return {"command": ["sh", "-c", script]}


def log_of(life: PodLife, name: str = "main") -> str:
    lines = life.containers[name].logs[-1].path.read_bytes().splitlines()
    return "\n".join(line.split(b" ", 3)[3].decode() for line in lines)


@asynccontextmanager
async def running(life: PodLife) -> AsyncIterator[PodLife]:
    """Runs a pod beside a test; what is left at the end is killed."""
    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.run)
            yield life
            life.killing.cancel()


async def until(life: PodLife, holds: Callable[[], bool]) -> None:
    """Wait for changes of a pod until something holds."""
    while not holds():
        await life.dirty.wait()
        life.dirty = trio.Event()


async def said(life: PodLife, text: str) -> None:
    """Wait until its container has written this."""
    async with aclosing(life.containers["main"].logs[-1].read(LogQuery(follow=True))) as lines:
        async for line in lines:
            if line == f"{text}\n".encode():
                return


async def ran(life: PodLife) -> Phase:
    with trio.fail_after(WITHIN_S):
        await life.run()
    return life.view.phase


async def test_it_succeeds_when_all_containers_do(room: Room) -> None:
    assert await ran(room.life(shell("echo hello"))) is Phase.SUCCEEDED


async def test_it_fails_with_the_code_of_the_container_that_failed(room: Room) -> None:
    life = room.life(shell("exit 3"))
    assert await ran(life) is Phase.FAILED
    ended = life.containers["main"].state.state
    assert isinstance(ended, Terminated)
    assert ended.exit_code == 3


async def test_a_command_that_is_not_there_is_told(room: Room) -> None:
    life = room.life({"command": ["no-such-program"]})
    assert await ran(life) is Phase.FAILED
    ended = life.containers["main"].state.state
    assert isinstance(ended, Terminated)
    assert (ended.reason, ended.exit_code) == ("StartError", 128)
    assert "executable file not found" in ended.message


async def test_variables_come_from_all_over_and_know_each_other(room: Room) -> None:
    await room.kube.create(SECRETS, {"metadata": {"name": "s"}, "data": {"token": b64("abc")}}, "default")
    await room.kube.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"A": "1", "B": "2"}}, "default")
    env = [
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "other", "optional": True}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "ALL", "value": "$(TOKEN)-$(X_A)-$(MISSING)"},
    ]
    env_from = [{"prefix": "X_", "configMapRef": {"name": "c"}}]
    life = room.life({**shell('echo "$TOKEN $IP $CPU $ALL $X_B [$NONE]"'), "env": env, "envFrom": env_from})
    await ran(life)
    assert log_of(life) == "abc 127.0.0.1 8 abc-1-$(MISSING) 2 []"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_without_its_secret_a_container_waits_and_starts_once_it_is_there(room: Room) -> None:
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}]
    async with running(room.life({**shell("echo $TOKEN"), "env": env})) as life:
        await until(life, lambda: isinstance(life.containers["main"].state.state, Waiting))
        waiting = Waiting("CreateContainerConfigError", 'secret "s" not found')
        await until(life, lambda: life.containers["main"].state.state == waiting)
        await room.kube.create(SECRETS, {"metadata": {"name": "s"}, "data": {"token": b64("abc")}}, "default")
        await life.over.wait()
    assert log_of(life) == "abc"


async def test_while_the_api_server_is_away_a_container_waits_and_starts_once_it_is_back(room: Room) -> None:
    await room.kube.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"A": "1"}}, "default")
    room.kube.go_away()
    container = {**shell("echo $A"), "envFrom": [{"configMapRef": {"name": "c"}}]}
    async with running(room.life(container)) as life:
        await until(life, lambda: reason_of(life) == "CreateContainerConfigError")
        room.kube.come_back()
        await life.over.wait()
    assert log_of(life) == "1"


def reason_of(life: PodLife) -> str:
    state = life.containers["main"].state.state
    return state.reason if isinstance(state, Waiting) else ""


async def test_cards_are_numbered_from_0_and_listed_by_the_programs_of_the_driver(room: Room) -> None:
    room.tray.allocate("another", 2)
    life = room.life(shell("nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES"), cards=2)
    await ran(life)
    own = [card.uuid for card in room.tray.cards_of("u1")]
    lines = log_of(life).splitlines()
    assert lines[:2] == [f"GPU {number}: NVIDIA L4 (UUID: {uuid})" for number, uuid in enumerate(own)]
    assert lines[2] == f"0,1 {','.join(own)}"


async def test_a_pod_without_cards_sees_none(room: Room) -> None:
    life = room.life(shell("nvidia-smi -L; echo $? [$CUDA_VISIBLE_DEVICES] $NVIDIA_VISIBLE_DEVICES"))
    await ran(life)
    assert log_of(life) == "No devices were found\n6 [] void"


async def test_volumes_are_where_their_mounts_are_named(room: Room) -> None:
    await room.kube.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"key": "value"}}, "default")
    volumes = [
        {"name": "empty", "emptyDir": {}},
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "host", "hostPath": {"path": "/var/lib/x", "type": "DirectoryOrCreate"}},
    ]
    mounts = [
        {"name": "empty", "mountPath": "/scratch"},
        {"name": "config", "mountPath": "/etc/app"},
        {"name": "host", "mountPath": "/var/lib/x"},
    ]
    script = (
        "cat /etc/app/key > /scratch/copy; cat $WHERE/copy $LEVERS9_LAB_ROOT/etc/app/key; echo kept > /var/lib/x/file"
    )
    first = room.life(
        {**shell(script), "volumeMounts": mounts, "env": [{"name": "WHERE", "value": "/scratch"}]}, volumes=volumes
    )
    await ran(first)
    assert log_of(first) == "valuevalue"
    second = room.life({**shell("cat /var/lib/x/file"), "volumeMounts": mounts[2:]}, uid="u2", volumes=volumes[2:])
    await ran(second)
    assert log_of(second) == "kept"  # it is the node's
    assert (room.folder / "tray-0/host/var/lib/x/file").read_text() == "kept\n"


async def test_volumes_follow_what_they_come_from(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levers9.lab.pod._RENEWED_EVERY_S", 0.05)
    await room.kube.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"key": "old"}}, "default")
    volumes = [{"name": "config", "configMap": {"name": "c"}}]
    script = "echo up; until grep -q new /etc/app/key; do sleep 0.05; done; cat /etc/app/key"
    container = {**shell(script), "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}]}
    async with running(room.life(container, volumes=volumes)) as life:
        await until(life, lambda: life.containers["main"].runs)
        await said(life, "up")
        await room.kube.patch(CONFIG_MAPS, "c", {"data": {"key": "new"}}, "default")
        await life.over.wait()
    assert log_of(life) == "up\nnew"


async def test_init_containers_run_one_after_the_other_and_a_failed_one_ends_the_pod(room: Room) -> None:
    before = [
        {"name": "first", "image": "busybox", **shell("exit 0")},
        {"name": "second", "image": "busybox", **shell("exit 1")},
    ]
    life = room.life(shell("echo never"), initContainers=before)
    assert await ran(life) is Phase.FAILED
    assert life.containers["main"].state.state == Waiting("PodInitializing")


async def test_a_sidecar_is_there_before_the_others_and_ends_after_them(room: Room) -> None:
    began = room.folder / "began"
    sidecar = {
        "name": "side",
        "image": "busybox",
        "restartPolicy": "Always",
        **shell(f"trap 'echo ended; exit 0' TERM; echo began; touch '{began}'; while true; do sleep 0.05; done"),
    }
    life = room.life(shell(f"until test -e '{began}'; do sleep 0.05; done"), initContainers=[sidecar])
    assert await ran(life) is Phase.SUCCEEDED
    assert log_of(life, "side") == "began\nended"


async def test_term_comes_first_and_kill_after_the_grace(room: Room) -> None:
    async with running(room.life(shell("trap 'echo heard' TERM; echo up; while true; do sleep 0.05; done"))) as life:
        await until(life, lambda: life.containers["main"].runs)
        await said(life, "up")
        await life.stop(1.0)
        await life.over.wait()
    ended = life.containers["main"].state.state
    assert isinstance(ended, Terminated)
    assert (ended.exit_code, log_of(life)) == (137, "up\nheard")


async def test_nothing_that_a_container_started_outlives_it(room: Room) -> None:
    if shutil.which("setsid") is None:
        pytest.skip("setsid is not installed")
    life = room.life(shell("setsid sleep 1000 & echo on; sleep 0.3"))
    await ran(life)
    assert not list(marked("LEVERS9_LAB_CONTAINER", "u1/main"))


async def test_a_container_that_fails_its_liveness_probe_is_started_again(room: Room) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    async with running(room.life({**shell("sleep 1000"), "livenessProbe": probe}, restartPolicy="Always")) as life:
        await until(life, lambda: life.containers["main"].state.restarts == 1)
        assert life.containers["main"].state.last is not None


async def test_a_container_is_ready_once_its_readiness_probe_says_so(room: Room) -> None:
    probe = {"exec": {"command": ["sh", "-c", "test -e $LEVERS9_LAB_ROOT/ready"]}, "periodSeconds": 1}
    async with running(room.life({**shell("sleep 0.3; touch ready; sleep 1000"), "readinessProbe": probe})) as life:
        await until(life, lambda: life.containers["main"].state.started)
        assert not life.containers["main"].state.ready
        await until(life, lambda: life.containers["main"].state.ready)


async def test_a_pod_beyond_its_deadline_fails_for_it(room: Room) -> None:
    life = room.life(shell("sleep 1000"), activeDeadlineSeconds=1)
    assert await ran(life) is Phase.FAILED
    assert life.outcome is not None
    assert life.outcome.reason == "DeadlineExceeded"


async def test_an_eviction_is_the_nodes_doing(room: Room) -> None:
    async with running(room.life(shell("sleep 1000"))) as life:
        await until(life, lambda: life.containers["main"].runs)
        await life.stop(0.0, Outcome("Evicted", "low on memory"), disrupted=True)
        await life.over.wait()
    assert (life.view.phase, life.view.disrupted) == (Phase.FAILED, True)


async def test_after_a_loss_it_starts_again_where_its_policy_allows_it(room: Room) -> None:
    again = room.life(shell("sleep 1000"), uid="u2", restartPolicy="Always")
    async with running(room.life(shell("sleep 1000"), restartPolicy="Always")) as before:
        await until(before, lambda: before.containers["main"].runs)
    assert again.resume(before)
    state = again.containers["main"].state
    assert state.restarts == 1
    assert state.last is not None
    assert (state.last.exit_code, state.last.reason) == (137, "ContainerStatusUnknown")


async def test_after_a_loss_a_pod_that_never_restarts_has_failed(room: Room) -> None:
    again = room.life(shell("sleep 1000"), uid="u2")
    async with running(room.life(shell("sleep 1000"))) as before:
        await until(before, lambda: before.containers["main"].runs)
    assert not again.resume(before)
    again.over.set()
    assert again.view.phase is Phase.FAILED
