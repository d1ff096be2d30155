"""The process of a lab: a control plane as its children, the trays in itself, and a socket for `levers9 lab`."""

from __future__ import annotations

import logging
import os
import shlex
import ssl
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from ..child import ChildSpec
from ..child_process import READY_FD
from ..daemons.edge import told
from ..daemons.ports import claim_port
from ..daemons.signals import until_signal
from ..errors import Refused
from ..kube.client import open_kube
from ..kube.endpoint import Endpoint
from ..model.ids import Chance
from ..process_identity import start_ticks
from ..supervision import Backoff, Intensity
from ..supervisor import Supervisor
from ..wire.mailbox import Mailbox
from .controlplane import HOST, ControlPlane, Plan, make_plan, write_files
from .environment import Surroundings
from .fleet import Fleet
from .folder import MARK_VARIABLE, DaemonMark, LabFolder, LabSettings, write_whole
from .images import KNOWN
from .kubeletapi import serve_kubelet, server_context
from .pod import PodServices
from .server import Desk, serve_talk
from .talk import Step
from .trays import TrayPlan, plan_trays
from .traystate import TrayState

_INTENSITY: Final = Intensity(restarts=5, within_s=30.0)  # what can't start is told to the person who waits
_log: Final = logging.getLogger("levers9.lab")


class Progress:
    """Tells whoever started the lab how far it is; nobody may be listening any more."""

    def __init__(self) -> None:
        named = os.environ.pop(READY_FD, "")
        self._descriptor = int(named) if named else -1

    def tell(self, step: Step) -> None:
        """A line."""
        _log.info("%s", step.words)
        if self._descriptor >= 0:
            try:
                os.write(self._descriptor, msgspec.json.encode(step) + b"\n")
            except BrokenPipeError:
                self._descriptor = -1

    def close(self) -> None:
        """No more steps."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Lab:
    """Everything of one lab."""

    def __init__(self, folder: LabFolder, settings: LabSettings, progress: Progress) -> None:
        self.folder = folder
        self.settings = settings
        self.plan: Plan = make_plan(settings)
        self.trays: tuple[TrayPlan, ...] = trays_of(settings)
        self._progress = progress
        self._environment = {**os.environ, MARK_VARIABLE: settings.lab_id}
        self.controlplane = ControlPlane(folder, settings, self.plan, self._environment)

    async def run(self) -> None:
        """Until a signal ends it."""
        addresses = tuple(tray.address for tray in self.trays)
        write_files(self.folder, self.settings, self.plan, addresses)
        write_programs(self.folder.path / "programs")
        nodes = ChildSpec("nodes", self._run_nodes, backoff=Backoff(max_s=1.0))
        async with until_signal():
            self._progress.tell(Step("Starting etcd and the API server."))
            await Supervisor("lab", (*self.controlplane.children(), nodes), intensity=_INTENSITY).run()

    async def _run_nodes(self, mailbox: Mailbox, *, task_status: trio.TaskStatus[None]) -> None:
        """The trays and the socket, for one life: what ran on trays is lost with it."""
        async with open_kube(self._endpoint(), Chance()) as kube, trio.open_nursery() as nursery:
            port = claim_port(self.trays[0].address, 0, "kubelets")
            services = PodServices(kube=kube, around=self._around(), patterns=(*KNOWN, *self.settings.images))
            states = tuple(TrayState(tray) for tray in self.trays)
            fleet = Fleet(states, self.folder.nodes, services, port, self.settings.grace_s / 4)
            desk = Desk(self.folder, self.settings, self.plan.url, fleet, self.controlplane)
            await nursery.start(serve_talk, self.folder, desk)
            self._progress.tell(Step("The API server is ready; nodes register."))
            context = server_context(self.folder)
            for kubelet in fleet.kubelets.values():
                await nursery.start(serve_kubelet, kubelet, port, context)
            await nursery.start(fleet.run)
            task_status.started()
            self._progress.tell(Step("All nodes are ready.", done=True))
            self._progress.close()

    def _endpoint(self) -> Endpoint:
        trust = ssl.create_default_context(cafile=str(self.folder.keys / "ca.crt"))
        token = f"Bearer {self.plan.users[0].token}"
        return Endpoint(server=self.plan.url, tls=trust, authorization=token)

    def _around(self) -> Surroundings:
        return Surroundings(
            lab_id=self.settings.lab_id,
            api_host=HOST,
            api_port=self.plan.api_port,
            programs=self.folder.path / "programs",
        )


def trays_of(settings: LabSettings) -> tuple[TrayPlan, ...]:
    """The trays that were asked for; each lab has loopback addresses of its own, as far as chance has it."""
    return plan_trays(
        settings.name,
        64 + zlib.crc32(settings.lab_id.encode()) % 128,
        trays=settings.trays,
        gpus=settings.gpus,
        gpu=settings.gpu,
        cpu=settings.cpu,
        memory=settings.memory,
        trays_per_domain=settings.trays_per_domain,
    )


def write_programs(folder: Path) -> None:
    """What every image of a lab has: this installation of levers9, and its Python."""
    folder.mkdir(exist_ok=True)
    python = shlex.quote(sys.executable)
    levers9 = "import sys; from levers9.cli import main; sys.argv[0] = 'levers9'; main()"
    for name, command in (
        ("levers9", f"{python} -P -c {shlex.quote(levers9)}"),
        ("python", python),
        ("python3", python),
    ):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        program.chmod(0o755)


def main() -> int:
    """`python -m levers9.lab.daemon FOLDER`."""
    folder = LabFolder(Path(sys.argv[1]))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    progress = Progress()
    with _noted(folder):
        settings = folder.settings()
        if settings is None:
            raise Refused(f"{folder.path} holds no settings of a lab.")
        lab = Lab(folder, settings, progress)
        return told(
            "levers9 lab", lambda: _run(lab), lambda words: progress.tell(Step(f"{words} {_tails(lab)}", failed=True))
        )


def _run(lab: Lab) -> int:
    trio.run(lab.run)
    return 0


def _tails(lab: Lab) -> str:
    found = [(name, list(tail)) for name, tail in lab.controlplane.tails.items() if tail]
    return f"{found[-1][0]} said last: {' | '.join(found[-1][1][-5:])}" if found else ""


@contextmanager
def _noted(folder: LabFolder) -> Iterator[None]:
    """The file that says which process runs the lab, while it does."""
    pid = os.getpid()
    write_whole(folder.daemon_file, msgspec.json.encode(DaemonMark(pid, start_ticks(pid) or 0)))
    try:
        yield
    finally:
        folder.daemon_file.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
