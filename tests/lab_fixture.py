"""A lab for tests, one a session: `lab`. Where its programs are missing, tests that ask for it are skipped.

Its nodes are shared: a test takes a namespace of its own (`async with lab.namespace() as name`), and undoes its faults
(`lab.calm()`). Helpers from here: `from levers9_test_lab import RunningLab, until`.
"""

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from levers9.kube.client import KubeClient, open_kube
from levers9.kube.config import load_config
from levers9.kube.face import Body
from levers9.kube.kinds import JOBS, NAMESPACES, NODES, SERVICE_ACCOUNTS
from levers9.kube.objects import Job, Node
from levers9.lab.binaries import missing, provide
from levers9.lab.folder import LabFolder, LabSettings
from levers9.lab.objects import PODS, Pod
from levers9.lab.running import end_lab, start_lab
from levers9.lab.talk import AskFault, AskStatus, Done, LabStatus, ask
from levers9.lab.verbs import Verb
from levers9.model.ids import Chance

WITHIN_S = 30.0
_ASKED_EVERY_S = 0.1
_OPPOSITES = (Verb.UNCORDON, Verb.POWER_ON, Verb.HEAL, Verb.STEADY, Verb.PULL_AGAIN, Verb.JOIN_DOMAIN)
T = TypeVar("T")


async def until(ask_for: Callable[[], Awaitable[T | None]], within_s: float = WITHIN_S) -> T:
    """Ask a real server again and again until the answer is neither None nor False."""
    with trio.fail_after(within_s):
        while True:
            found = await ask_for()
            if found is not None and found is not False:
                return found
            await trio.sleep(_ASKED_EVERY_S)


class RunningLab:
    """A lab that runs."""

    def __init__(self, folder: LabFolder) -> None:
        self.folder = folder

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder.kubeconfig()

    @property
    def environment(self) -> dict[str, str]:
        """For programs that are to find it: `kubectl`, `levers9 lab`, `levers9 cluster`."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "LEVERS9_LAB_DIR": str(self.folder.path)}

    @asynccontextmanager
    async def kube(self, user: str = "") -> AsyncIterator[KubeClient]:
        """A client, as the administrator or as one of the lab's users."""
        async with open_kube(await load_config(self.folder.kubeconfig(user)), Chance()) as kube:
            yield kube

    @asynccontextmanager
    async def namespace(self, kube: KubeClient) -> AsyncIterator[str]:
        """A namespace of a test's own, in which pods can be made; it goes with all that is in it."""
        name = f"test-{uuid.uuid4().hex[:8]}"
        await kube.create(NAMESPACES, {"metadata": {"name": name}})
        await until(lambda: kube.get(SERVICE_ACCOUNTS, "default", name))
        try:
            yield name
        finally:
            with trio.move_on_after(10, shield=True):
                await kube.delete(NAMESPACES, name)

    def verb(self, name: str, node: str, slow_s: float = 3.0) -> str:
        """Do something to a node, as `levers9 lab NAME NODE` does."""
        answer = ask(self.folder, AskFault(verb=Verb(name), node=node, slow_s=slow_s))
        assert isinstance(answer, Done)
        return answer.words

    def status(self) -> LabStatus:
        """What `levers9 lab status` shows."""
        answer = ask(self.folder, AskStatus())
        assert isinstance(answer, LabStatus)
        return answer

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of its nodes."""
        return tuple(tray.node for tray in self.status().trays)

    async def calm(self, kube: KubeClient) -> None:
        """Undo every fault, and wait until all nodes are ready."""
        for tray in self.status().trays:
            for verb in _OPPOSITES:
                self.verb(verb, tray.node)
            for words in tray.faults:
                for _ in range(int(words.split()[0]) if words.endswith("cards lost") else 0):
                    self.verb(Verb.REGAIN_CARD, tray.node)

        async def ready() -> bool:
            return all(tray.ready and not tray.cordoned and not tray.faults for tray in self.status().trays)

        await until(ready)

    @contextmanager
    def paused(self, process: str = "kube-apiserver") -> Iterator[None]:
        """Stop a process of the control plane for a while: connections stay, and nobody answers."""
        pid = self.status().processes[process]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def kill(self, process: str = "kube-apiserver") -> None:
        """Kill a process of the control plane: the lab starts it again."""
        os.kill(self.status().processes[process], signal.SIGKILL)


async def run_job(kube: KubeClient, namespace: str, name: str, container: Body, **spec: object) -> Job:
    """Create a Job of one container, which never restarts."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox", **container}], **spec}
    body = {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": {"spec": pod}}}
    return await kube.create(JOBS, body, namespace)


async def pod_in(kube: KubeClient, namespace: str, phase: str, within_s: float = WITHIN_S) -> Pod:
    """The first pod of a namespace that has come to this phase."""

    async def look() -> Pod | None:
        pods = (await kube.list(PODS, namespace)).items
        return next((pod for pod in pods if pod.status.phase == phase), None)

    return await until(look, within_s)


def is_ready(node: Node | None) -> bool:
    """Whether a node says that it is."""
    conditions = (node.status.conditions if node else None) or ()
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


async def node_is(kube: KubeClient, name: str, *, ready: bool) -> None:
    """Wait until a node is ready, or no longer."""

    async def look() -> bool:
        return is_ready(await kube.get(NODES, name)) is ready

    await until(look)


@contextmanager
def running_lab(**settings: object) -> Iterator[RunningLab]:
    """A lab with these settings, in a folder that goes with it."""
    with tempfile.TemporaryDirectory(prefix="levers9-lab-") as place:
        folder = LabFolder(Path(place) / "lab")
        wanted = LabSettings(lab_id=uuid.uuid4().hex, binaries=provide(os.environ, print), **settings)  # type: ignore[arg-type]
        start_lab(folder, wanted, lambda words: None)
        try:
            yield RunningLab(folder)
        finally:
            end_lab(folder)


@pytest.fixture(scope="session")
def lab() -> Iterator[RunningLab]:
    """Two trays with four cards each, in one NVLink domain; a silent node counts as lost after 4 s."""
    if why := missing():
        pytest.skip(why)
    with running_lab(grace_s=4) as running:
        yield running


@pytest.fixture(scope="session")
def kubectl() -> str:
    """The `kubectl` program."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed")
    return program
