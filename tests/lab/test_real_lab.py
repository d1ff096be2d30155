"""A lab with a real control plane: what a person does with it, and what each fault does to pods."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from levers9_test_lab import WITHIN_S, RunningLab, node_is, pod_in, run_job, running_lab, until

from levers9.errors import KubeRefused, KubeUnavailable
from levers9.kube.client import KubeClient
from levers9.kube.kinds import JOBS, NODES
from levers9.lab.binaries import missing
from levers9.lab.folder import MARK_VARIABLE
from levers9.lab.marks import marked
from levers9.lab.objects import PODS

pytestmark = pytest.mark.slow
ONE_CARD = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
FOREVER = {"command": ["sleep", "1000"]}


def kubectl_says(lab: RunningLab, kubectl: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [kubectl, *arguments],
        env=lab.environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def kubectl_on_terminal(lab: RunningLab, kubectl: str, *arguments: str) -> str:
    ours, theirs = os.openpty()
    try:
        said = subprocess.run(
            [kubectl, *arguments], env=lab.environment, stdin=theirs, capture_output=True, timeout=30, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return said.stdout.decode()


async def test_nodes_have_the_labels_of_their_cards_and_their_domain(lab: RunningLab) -> None:
    async with lab.kube() as kube:
        nodes = (await kube.list(NODES)).items
    labels = [node.metadata.labels for node in nodes]
    assert [each["nvidia.com/gpu.product"] for each in labels] == ["NVIDIA-GB200"] * 2
    assert len({each["nvidia.com/gpu.clique"] for each in labels}) == 1
    assert len([key for key in labels[0] if key.startswith("nvidia.com/")]) >= 25
    assert [node.status.allocatable["nvidia.com/gpu"] for node in nodes] == ["4", "4"]


async def test_a_job_sees_its_cards_numbered_from_0_and_its_log_can_be_read(lab: RunningLab, kubectl: str) -> None:
    two_cards = {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        command = {"command": ["sh", "-c", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES"]}
        await run_job(kube, namespace, "cards", {**command, **two_cards})
        await pod_in(kube, namespace, "Succeeded")
        lines = kubectl_says(lab, kubectl, "logs", "job/cards", "-n", namespace).stdout.splitlines()
    uuids = [line.split("UUID: ")[1].rstrip(")") for line in lines[:2]]
    assert [line.split(":")[0] for line in lines[:2]] == ["GPU 0", "GPU 1"]
    assert lines[2] == f"0,1 {','.join(uuids)}"


async def test_two_pods_of_a_node_never_have_the_same_card(lab: RunningLab, kubectl: str) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        for number in range(8):
            await run_job(
                kube, namespace, f"one-{number}", {"command": ["sh", "-c", "nvidia-smi -L; sleep 60"], **ONE_CARD}
            )

        async def all_run() -> bool:
            pods = (await kube.list(PODS, namespace)).items
            return [pod.status.phase for pod in pods] == ["Running"] * 8

        await until(all_run)
        names = [pod.metadata.name for pod in (await kube.list(PODS, namespace)).items]
        said = [kubectl_says(lab, kubectl, "exec", "-n", namespace, name, "--", "nvidia-smi", "-L") for name in names]
    assert len({answer.stdout for answer in said}) == 8
    assert all(answer.stdout.startswith("GPU 0: ") for answer in said)


async def test_exec_carries_input_output_and_the_exit_code(lab: RunningLab, kubectl: str) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        await run_job(kube, namespace, "long", FOREVER)
        name = (await pod_in(kube, namespace, "Running")).metadata.name
        command = ["exec", "-n", namespace, "-i", name, "--", "sh", "-c", "cat; echo oops >&2; exit 7"]
        said = kubectl_says(lab, kubectl, *command, stdin="hello")
    assert (said.stdout, said.returncode) == ("hello", 7)
    assert "oops" in said.stderr


async def test_a_command_ends_with_whoever_waits_for_it_and_the_lab_goes_on(lab: RunningLab, kubectl: str) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        await run_job(kube, namespace, "long", {**FOREVER, "env": [{"name": "MARK", "value": "exec"}]})
        name = (await pod_in(kube, namespace, "Running")).metadata.name
        command = [kubectl, "exec", "-n", namespace, name, "--", "sleep", "999"]
        before = lab.status().processes

        async def runs() -> bool:
            return len(list(marked("MARK", "exec"))) == 2

        async def has_ended() -> bool:
            return len(list(marked("MARK", "exec"))) == 1

        waiting = await trio.lowlevel.open_process(command, env=lab.environment)
        await until(runs)
        waiting.kill()
        await waiting.wait()
        assert await until(has_ended)
        assert await pod_in(kube, namespace, "Running")
    assert lab.status().processes == before


async def test_exec_with_a_terminal_gives_the_command_one(lab: RunningLab, kubectl: str) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        await run_job(kube, namespace, "long", FOREVER)
        name = (await pod_in(kube, namespace, "Running")).metadata.name
        command = ("exec", "-it", "-n", namespace, name, "--", "sh", "-c", "test -t 0 && echo on a terminal")
        said = kubectl_on_terminal(lab, kubectl, *command)
    assert said == "on a terminal\r\n"


async def test_a_user_of_the_lab_has_no_rights_until_somebody_gives_them(lab: RunningLab) -> None:
    async with lab.kube("guest") as guest:
        with pytest.raises(KubeRefused) as refused:
            await guest.list(NODES)
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")


async def test_events_say_what_happened_to_a_pod(lab: RunningLab, kubectl: str) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        await run_job(kube, namespace, "short", {"command": ["true"]})
        await pod_in(kube, namespace, "Succeeded")
        reasons = "-o=jsonpath={.items[*].reason}"
        events = ("get", "events", "-n", namespace, "--field-selector=involvedObject.kind=Pod", reasons)

        async def told() -> bool:  # a moment after what they tell, in the order of random names
            return sorted(kubectl_says(lab, kubectl, *events).stdout.split()) == ["Scheduled", "Started"]

        assert await until(told)


def until_there(path: Path, before: str = "", after: str = "true") -> dict[str, object]:
    """A container that waits for a file."""
    return {"command": ["sh", "-c", f"{before} until test -e '{path}'; do sleep 0.05; done; {after}"]}


async def test_a_log_is_followed_to_the_end_of_its_container(lab: RunningLab, kubectl: str, tmp_path: Path) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        await run_job(kube, namespace, "count", until_there(tmp_path / "go", "echo a;", "echo b"))
        await pod_in(kube, namespace, "Running")
        argv = [kubectl, "logs", "-f", "-n", namespace, "job/count"]
        follows = await trio.lowlevel.open_process(argv, env=lab.environment, stdout=subprocess.PIPE)
        assert follows.stdout is not None
        with trio.fail_after(WITHIN_S):
            assert await follows.stdout.receive_some() == b"a\n"
            (tmp_path / "go").touch()
            assert b"".join([piece async for piece in follows.stdout]) == b"b\n"
            assert await follows.wait() == 0


async def test_a_pod_that_is_deleted_ends_by_term_and_is_gone(lab: RunningLab) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        await kube.create(PODS, pod("one", {"command": ["sleep", "1000"]}), namespace)
        await pod_in(kube, namespace, "Running")
        await kube.delete(PODS, "one", namespace)

        async def is_gone() -> bool:
            return await kube.get(PODS, "one", namespace) is None

        assert await until(is_gone)


def pod(name: str, container: dict[str, object], **spec: object) -> dict[str, object]:
    containers = [{"name": "main", "image": "busybox", **container}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


async def test_a_container_restarts_with_its_pod_and_init_containers_come_first(lab: RunningLab, kubectl: str) -> None:
    before = [{"name": "first", "image": "busybox", "command": ["sh", "-c", "echo made > /data/x"], **SHARED_MOUNT}]
    main = {
        "command": ["sh", "-c", "cat /data/x; test -e /data/again || { touch /data/again; exit 1; }"],
        **SHARED_MOUNT,
    }
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        body = pod(
            "two", main, initContainers=before, volumes=[{"name": "d", "emptyDir": {}}], restartPolicy="OnFailure"
        )
        await kube.create(PODS, body, namespace)
        await pod_in(kube, namespace, "Succeeded")
        restarts = "-o=jsonpath={.status.containerStatuses[0].restartCount}"
        said = kubectl_says(lab, kubectl, "get", "pod", "two", "-n", namespace, restarts)
        log = kubectl_says(lab, kubectl, "logs", "two", "-n", namespace)
    assert (said.stdout, log.stdout) == ("1", "made\n")


SHARED_MOUNT = {"volumeMounts": [{"name": "d", "mountPath": "/data"}]}


async def test_a_pod_speaks_to_the_api_server_as_its_service_account(lab: RunningLab, kubectl: str) -> None:
    program = (
        "import trio; from levers9.kube.config import load_config; from levers9.kube.client import open_kube\n"
        "from levers9.kube.kinds import NODES; from levers9.model.ids import Chance\n"
        "async def main():\n"
        "    async with open_kube(await load_config(), Chance()) as kube: await kube.list(NODES)\n"
        "trio.run(main)"
    )
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        await run_job(kube, namespace, "account", {"image": "python", "command": ["python", "-c", program]})
        await pod_in(kube, namespace, "Failed")
        said = kubectl_says(lab, kubectl, "logs", "-n", namespace, "job/account")
    assert f'User "system:serviceaccount:{namespace}:default" cannot list resource "nodes"' in said.stdout


# Faults


async def test_a_cordoned_node_takes_no_pods_until_it_is_uncordoned(lab: RunningLab) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        for node in lab.nodes:
            lab.verb("cordon", node)
        await run_job(kube, namespace, "waits", FOREVER)
        waiting = await pod_in(kube, namespace, "Pending")
        lab.verb("uncordon", lab.nodes[1])
        placed = await pod_in(kube, namespace, "Running")
        await lab.calm(kube)
    assert waiting.metadata.uid == placed.metadata.uid
    assert placed.spec.node_name == lab.nodes[1]


async def test_without_power_a_node_is_lost_with_its_processes_and_comes_back(lab: RunningLab) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        await kube.create(PODS, pod("marked", {"command": ["sleep", "1000"], "env": MARK}), namespace)
        node = (await pod_in(kube, namespace, "Running")).spec.node_name
        assert list(marked("MARK", "power"))
        lab.verb("power-off", node)
        await node_is(kube, node, ready=False)
        assert not list(marked("MARK", "power"))
        lab.verb("power-on", node)
        await node_is(kube, node, ready=True)

        async def runs_again() -> bool:
            return bool(list(marked("MARK", "power")))

        assert await until(runs_again)
        await lab.calm(kube)


MARK = [{"name": "MARK", "value": "power"}]


async def test_without_network_a_node_is_lost_and_what_runs_there_goes_on(lab: RunningLab) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        env = [{"name": "MARK", "value": "network"}]
        await kube.create(PODS, pod("marked", {"command": ["sleep", "1000"], "env": env}), namespace)
        node = (await pod_in(kube, namespace, "Running")).spec.node_name
        before = sorted(marked("MARK", "network"))
        lab.verb("partition", node)
        await node_is(kube, node, ready=False)
        lab.verb("heal", node)
        await node_is(kube, node, ready=True)
        assert sorted(marked("MARK", "network")) == before
        await lab.calm(kube)


async def test_a_slow_node_starts_pods_late(lab: RunningLab) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        for node in lab.nodes:
            lab.verb("slow", node, slow_s=2.0)
        started = trio.current_time()
        await run_job(kube, namespace, "late", FOREVER)
        await pod_in(kube, namespace, "Running")
        took_s = trio.current_time() - started
        await lab.calm(kube)
    assert took_s > 2.0


async def test_a_pull_that_fails_is_told_and_heals(lab: RunningLab, kubectl: str) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        for node in lab.nodes:
            lab.verb("fail-pull", node)
        await run_job(kube, namespace, "pull", FOREVER)
        reason = "-o=jsonpath={.items[0].status.containerStatuses[0].state.waiting.reason}"

        async def backs_off() -> bool:
            return kubectl_says(lab, kubectl, "get", "pods", "-n", namespace, reason).stdout == "ImagePullBackOff"

        await until(backs_off)
        await lab.calm(kube)
        assert await pod_in(kube, namespace, "Running")


async def test_an_image_that_nobody_has_is_never_pulled(lab: RunningLab, kubectl: str) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        await run_job(kube, namespace, "pull", {"image": "registry.example/nobody/has:this"})
        message = "-o=jsonpath={.items[0].status.containerStatuses[0].state.waiting.message}"

        async def is_told() -> bool:
            said = kubectl_says(lab, kubectl, "get", "pods", "-n", namespace, message).stdout
            return 'failed to pull and unpack image "registry.example/nobody/has:this"' in said

        assert await until(is_told)


async def test_an_evicted_pod_says_that_its_node_did_it(lab: RunningLab) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        await run_job(kube, namespace, "evicted", FOREVER)
        node = (await pod_in(kube, namespace, "Running")).spec.node_name
        lab.verb("evict", node)
        failed = await pod_in(kube, namespace, "Failed")
    reasons = {each.type: each.reason for each in failed.status.conditions or ()}
    assert reasons["DisruptionTarget"] == "TerminationByKubelet"


async def test_a_lost_card_is_not_offered_until_it_is_back(lab: RunningLab) -> None:
    async with lab.kube() as kube:
        node = lab.nodes[0]
        lab.verb("lose-card", node)
        fewer = await kube.get(NODES, node)
        lab.verb("regain-card", node)
        again = await kube.get(NODES, node)
        await lab.calm(kube)
    assert fewer is not None
    assert again is not None
    assert (fewer.status.allocatable["nvidia.com/gpu"], fewer.status.capacity["nvidia.com/gpu"]) == ("3", "4")
    assert again.status.allocatable["nvidia.com/gpu"] == "4"


async def test_a_split_domain_shows_in_both_labels_until_it_is_joined(lab: RunningLab) -> None:
    async with lab.kube() as kube:
        lab.verb("split-domain", lab.nodes[1])
        apart = await domains(kube)
        lab.verb("join-domain", lab.nodes[1])
        together = await domains(kube)
    assert (len(apart), len(together)) == (2, 1)


async def domains(kube: KubeClient) -> set[tuple[str, str]]:
    labels = [node.metadata.labels for node in (await kube.list(NODES)).items]
    return {(each["nvidia.com/gpu.clique"], each["accelerator.topograph.run/domain"]) for each in labels}


async def test_a_dead_api_server_comes_back_and_pods_run_on(lab: RunningLab, tmp_path: Path) -> None:
    async with lab.kube() as kube, lab.namespace(kube) as namespace:
        await run_job(kube, namespace, "on", until_there(tmp_path / "go"))
        await pod_in(kube, namespace, "Running")
        before = lab.status().processes["kube-apiserver"]
        lab.kill("kube-apiserver")
        (tmp_path / "go").touch()

        async def is_back() -> bool:
            return lab.status().processes.get("kube-apiserver", before) != before

        await until(is_back)
        assert await until(lambda: finished(kube, namespace))


async def finished(kube: KubeClient, namespace: str) -> bool:
    try:
        job = await kube.get(JOBS, "on", namespace)
    except KubeUnavailable:
        return False
    return job is not None and job.status.succeeded == 1


# Up and down


def levers9_says(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", "from levers9.cli import main; main()", "lab", *arguments],
        env={**os.environ, "LEVERS9_LAB_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_person_starts_a_lab_looks_at_it_breaks_it_and_ends_it(tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(why)
    folder = tmp_path / "lab"
    try:
        up = levers9_says(folder, "up", "--trays", "1", "--gpus", "2", "--gpu", "L4", "--user", "anna")
        again = levers9_says(folder, "up")
        lost = levers9_says(folder, "lose-card", "tray-0")
        status = levers9_says(folder, "status")
        nobody = levers9_says(folder, "cordon", "tray-9")
        anna = levers9_says(folder, "kubeconfig", "--user", "anna")
    finally:
        down = levers9_says(folder, "down")
    assert up.stdout == f"export KUBECONFIG={folder}/kubeconfig\n"
    assert "All nodes are ready." in up.stderr
    assert (again.returncode, "runs here already" in again.stderr) == (1, True)
    assert lost.stdout == "tray-0 offers 1 of 2 cards. Undo: levers9 lab regain-card tray-0.\n"
    assert status.stdout.splitlines()[1].split()[:5] == ["tray-0", "ready", "L4", "1", "1"]
    assert "There is no node tray-9; there are tray-0." in nobody.stderr
    assert anna.stdout == f"{folder}/kubeconfig-anna\n"
    assert (down.returncode, down.stderr) == (0, "The lab is down.\n")


async def test_down_leaves_no_process_and_no_file() -> None:
    if why := missing():
        pytest.skip(why)
    with running_lab(trays=1, gpus=1) as lab:
        settings = lab.folder.settings()
        assert settings is not None
        async with lab.kube() as kube, lab.namespace(kube) as namespace:
            away = "import os, time; os.setsid() if os.fork() == 0 else None; time.sleep(1000)"
            await run_job(kube, namespace, "away", {"image": "python", "command": ["python", "-c", away]})
            await pod_in(kube, namespace, "Running")
        assert len(list(marked(MARK_VARIABLE, settings.lab_id))) > 5
    assert list(marked(MARK_VARIABLE, settings.lab_id)) == []
    assert not lab.folder.settings_file.exists()
