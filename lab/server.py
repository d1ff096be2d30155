"""The daemon's side of its socket."""

from __future__ import annotations

from typing import Final

import msgspec
import trio

from ..errors import KubeRefused, KubeUnavailable, Refused
from .controlplane import ControlPlane
from .faults import perform
from .fleet import Fleet
from .folder import LabFolder, LabSettings
from .kubelet import Kubelet
from .talk import Answer, Ask, AskFault, Done, LabStatus, RefusedToDo, TrayStatus, asks, socket_path

_ASK_MAX_BYTES: Final = 64 << 10
_ASKED_WITHIN_S: Final = 10.0


async def serve_talk(
    folder: LabFolder, desk: Desk, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Answer until cancelled. Only the owner of the folder gets this far: its mode and the socket's see to that."""
    (folder.path / folder.socket_name).unlink(missing_ok=True)
    with trio.socket.socket(trio.socket.AF_UNIX) as listener:
        with socket_path(folder) as path:
            await listener.bind(path)
        (folder.path / folder.socket_name).chmod(0o600)
        listener.listen(16)
        await trio.serve_listeners(desk.attend, [trio.SocketListener(listener)], task_status=task_status)  # type: ignore[arg-type]


class Desk:
    """Answers what `levers9 lab` asks."""

    def __init__(
        self, folder: LabFolder, settings: LabSettings, url: str, fleet: Fleet, controlplane: ControlPlane
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._url = url
        self._fleet = fleet
        self._controlplane = controlplane

    async def attend(self, stream: trio.SocketStream) -> None:
        """One question, one answer."""
        with trio.move_on_after(_ASKED_WITHIN_S) as waiting:
            line = await _line(stream)
        if waiting.cancelled_caught or not line:
            return
        try:
            answer = await self._answer(asks.decode(line))
        except msgspec.DecodeError as error:
            answer = RefusedToDo(f"The lab doesn't understand: {error}")
        except (Refused, KubeRefused, KubeUnavailable) as error:
            answer = RefusedToDo(str(error))
        try:
            await stream.send_all(msgspec.json.encode(answer) + b"\n")
        except trio.BrokenResourceError:
            return  # it has not waited

    async def _answer(self, question: Ask) -> Answer:
        if not isinstance(question, AskFault):
            return self._status()
        kubelet = self._fleet.kubelets.get(question.node)
        if kubelet is None:
            return RefusedToDo(f"There is no node {question.node}; there are {', '.join(self._fleet.kubelets)}.")
        return Done(await perform(question.verb, kubelet, self._fleet.kube, question.slow_s))

    def _status(self) -> LabStatus:
        return LabStatus(
            name=self._settings.name,
            url=self._url,
            kubeconfig=str(self._folder.kubeconfig()),
            processes=self._controlplane.process_ids,
            trays=tuple(self._tray(kubelet) for kubelet in self._fleet.kubelets.values()),
        )

    def _tray(self, kubelet: Kubelet) -> TrayStatus:
        node = self._fleet.nodes.get(kubelet.name)
        tray = kubelet.tray
        taken = sum(len(tray.cards_of(uid)) for uid in kubelet.lives)
        return TrayStatus(
            node=kubelet.name,
            ready=self._fleet.is_ready(kubelet.name),
            cordoned=node is not None and node.spec.unschedulable,
            gpu=tray.plan.gpu,
            cards=len(tray.healthy),
            cards_free=max(0, len(tray.healthy) - taken),
            pods=len(kubelet.lives),
            domain=tray.domain,
            faults=tray.words,
        )


async def _line(stream: trio.SocketStream) -> bytes:
    data = b""
    while b"\n" not in data and len(data) < _ASK_MAX_BYTES:
        piece = await stream.receive_some()
        if not piece:
            break
        data += piece
    return data.partition(b"\n")[0]
