"""The life of one pod on its tray: volumes, init containers in order, containers, and the end that was asked for."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Final

import msgspec
import trio

from ..errors import KubeRefused, KubeUnavailable
from ..kube.face import Kube
from .container import ContainerLife, Setting, now_s
from .environment import Environment, Given, Surroundings
from .expansion import MountPaths, PodPlace, expand
from .images import always_pulls, can_pull, entrypoint
from .objects import Container, Pod
from .podstatus import ContainerState, Note, Outcome, PodView, Terminated, Waiting
from .trays import smi_list
from .traystate import TrayState
from .volumes import ConfigMissing, Sources, Volumes, remove

_NOTES: Final = 20  # that wait to be written; the oldest give way

_RENEWED_EVERY_S: Final = 600.0


class PodServices(msgspec.Struct, frozen=True, kw_only=True):
    """What all pods of a lab use."""

    kube: Kube
    around: Surroundings
    patterns: tuple[str, ...]  # of images


class PodLife:
    """Runs one pod. `dirty` is set when its status has changed, `over` when nothing of it will run any more."""

    def __init__(self, pod: Pod, tray: TrayState, place: PodPlace, folder: Path, services: PodServices) -> None:
        self.pod = pod
        self.dirty = trio.Event()
        self.over = trio.Event()
        self.stopping = trio.Event()
        self.grace_s = float(pod.spec.termination_grace_period_seconds)
        self.outcome: Outcome | None = None
        self.disrupted = False
        self.lost = False  # with its tray's power: what it has come to is not told
        self.killing = trio.CancelScope()
        self.notes: deque[Note] = deque(maxlen=_NOTES)
        self.address = place.pod_ip
        self._tray = tray
        self._place = place
        self._folder = folder
        self._services = services
        self._start_time = now_s()
        self._nudged = trio.Event()
        self._room = {"cpu": str(tray.plan.cpu), "memory": tray.plan.memory}
        self._sources = Sources(services.kube)
        self._volumes = Volumes(folder, folder.parent.parent / "host", pod, place, self._sources)
        self._made = trio.Lock()
        self._volumes_ready = False
        before = tuple(pod.spec.init_containers or ())
        self.containers = {each.name: self._container(each, is_init=True) for each in before}
        self.containers |= {each.name: self._container(each, is_init=False) for each in pod.spec.containers}

    def _container(self, container: Container, *, is_init: bool) -> ContainerLife:
        sidecar = is_init and container.restart_policy == "Always"
        begins = "PodInitializing" if self.pod.spec.init_containers else "ContainerCreating"
        state = ContainerState(container=container, state=Waiting(begins), is_init=is_init, is_sidecar=sidecar)
        policy = self.pod.spec.restart_policy
        if is_init and not sidecar and policy == "Always":
            policy = "OnFailure"
        logs = self._folder / "logs" / container.name
        return ContainerLife(state, "Always" if sidecar else policy, self, logs, self.address, self.pod.metadata.uid)

    @property
    def view(self) -> PodView:
        """What its status is made of."""
        return PodView(
            policy=self.pod.spec.restart_policy,
            states=tuple(each.state for each in self.containers.values()),
            place=self._place,
            start_time=self._start_time,
            outcome=self.outcome,
            disrupted=self.disrupted,
            over=self.over.is_set(),
        )

    # --- Its life ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until all of it has ended."""
        self.changed()
        with self.killing:
            async with trio.open_nursery() as nursery:
                if self.pod.spec.active_deadline_seconds is not None:
                    nursery.start_soon(self._end_late, self.pod.spec.active_deadline_seconds)
                nursery.start_soon(self._renew_volumes)
                await self._run_all()
                nursery.cancel_scope.cancel(reason="the pod is over")
        self._conclude()

    async def _run_all(self) -> None:
        async with trio.open_nursery() as sidecars:
            if await self._initialize(sidecars):
                async with trio.open_nursery() as nursery:
                    for each in self._plain:
                        nursery.start_soon(each.run)
            self.stopping.set()
            await self._stop_processes(self.grace_s)

    async def _initialize(self, sidecars: trio.Nursery) -> bool:
        for each in self.containers.values():
            if not each.state.is_init:
                continue
            if each.state.is_sidecar:
                sidecars.start_soon(each.run)
                await each.started.wait()
                continue
            await each.run()
            if not isinstance(each.state.state, Terminated) or each.state.state.exit_code != 0:
                return False
        return not self.stopping.is_set()

    @property
    def _plain(self) -> list[ContainerLife]:
        return [each for each in self.containers.values() if not each.state.is_init]

    async def stop(self, grace_s: float, outcome: Outcome | None = None, *, disrupted: bool = False) -> None:
        """End it: TERM, and KILL after the grace. `outcome` is why, where it counts as failed for it."""
        if outcome is not None:
            self.outcome, self.disrupted = outcome, disrupted
            self.note(Note(outcome.reason, outcome.message, is_warning=True))
        self.grace_s = grace_s
        self.stopping.set()
        self.nudge()
        await self._stop_processes(grace_s)

    async def _stop_processes(self, grace_s: float) -> None:
        async with trio.open_nursery() as nursery:
            for each in self.containers.values():
                nursery.start_soon(each.stop, grace_s)

    async def _renew_volumes(self) -> None:
        """Tokens run out after an hour; secrets and configuration maps change."""
        while True:
            await trio.sleep(_RENEWED_EVERY_S)
            try:
                await self._volumes.make()
            except (ConfigMissing, KubeRefused, KubeUnavailable, OSError) as error:
                self.note(Note("FailedMount", str(error), is_warning=True))

    async def _end_late(self, seconds: int) -> None:
        await trio.sleep(seconds)
        await self.stop(self.grace_s, Outcome("DeadlineExceeded", "Pod was active on the node longer than specified"))

    def _conclude(self) -> None:
        """What had no end of its own was killed with its tray, or never started."""
        for each in self.containers.values():
            if not isinstance(each.state.state, Terminated) and each.state.container_id:
                each.state.state = Terminated(
                    exit_code=137, started_at="", finished_at=now_s(), reason="ContainerStatusUnknown"
                )
                each.state.ready = False
        self.over.set()
        self.changed()

    def resume(self, before: PodLife) -> bool:
        """Go on from a life that was lost; False where the pod is over with it."""
        policy = self.pod.spec.restart_policy
        for name, each in self.containers.items():
            old = before.containers[name].state
            if not old.container_id:
                continue
            assert isinstance(old.state, Terminated), "a life that is over has ended all its containers"
            each.state.container_id, each.state.last = old.container_id, old.state
            each.state.restarts = old.restarts + 1
            if policy == "Never":
                each.state.state, each.state.last, each.state.restarts = old.state, old.last, old.restarts
        return policy != "Never" or not any(old.state.container_id for old in before.containers.values())

    def remove_files(self) -> None:
        """Nothing of it is needed any more."""
        remove(self._folder)

    # --- What its containers ask -------------------------------------------------------------------------------

    def note(self, note: Note) -> None:
        """See `Host`."""
        self.notes.append(note)

    def changed(self) -> None:
        """See `Host`."""
        self.dirty.set()

    def has_image(self, container: Container) -> bool:
        """See `Host`."""
        image = container.image
        if image in self._tray.images and not always_pulls(image, container.image_pull_policy):
            return True
        if not self._tray.faults.pulls or not can_pull(image, self._services.patterns):
            return False
        self._tray.images.add(image)
        return True

    def nudge(self) -> None:
        """Wake what waits: something has changed for it."""
        self._nudged.set()
        self._nudged = trio.Event()

    async def wait(self, seconds: float) -> None:
        """See `Host`."""
        if not self.stopping.is_set():
            with trio.move_on_after(seconds):
                await self._nudged.wait()

    async def configure(self, state: ContainerState) -> Setting:
        """See `Host`."""
        async with self._made:
            if not self._volumes_ready:
                await self._volumes.make()
                self._write_programs()
                self._volumes_ready = True
        container = state.container
        root = self._folder / "root" / container.name
        paths = MountPaths(self._volumes.mount(container, root))
        given = Given(place=self._place, cards=self._tray.cards_of(self.pod.metadata.uid), room=self._room)
        maker = Environment(self.pod, given, self._services.around, self._sources, self._bin)
        environment = await maker.of(container, paths, root)
        command = container.command or entrypoint(container.image)
        argv = tuple(paths.rewrite(expand(word, environment)) for word in (*command, *(container.args or ())))
        return Setting(argv=argv, environment=environment, folder=_folder_of(container, paths, root))

    @property
    def _bin(self) -> Path:
        return self._folder / "bin"

    def _write_programs(self) -> None:
        """The pod's own `nvidia-smi`, which lists its cards, numbered from 0."""
        self._bin.mkdir(parents=True, exist_ok=True)
        listing = smi_list(self._tray.cards_of(self.pod.metadata.uid), self._tray.plan.model)
        program = self._bin / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{listing}END\n" if listing else _NO_CARDS)
        program.chmod(0o755)


_NO_CARDS = "#!/bin/sh\necho 'No devices were found'\nexit 6\n"


def _folder_of(container: Container, paths: MountPaths, root: Path) -> Path:
    """Where a container's process starts: never outside of its pod."""
    if not container.working_dir:
        return root
    rewritten = paths.rewrite(container.working_dir)
    folder = Path(rewritten) if rewritten != container.working_dir else root / container.working_dir.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
