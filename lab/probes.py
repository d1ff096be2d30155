"""Probes: whether a container has started, lives and is ready. Asking is here, counting is in `Streak`."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Awaitable, Callable, Sequence

import httpx2
import msgspec
import trio

from .objects import Container, HttpGet, Probe

RunExec = Callable[[Sequence[str]], Awaitable[int]]


class Streak(msgspec.Struct, kw_only=True):
    """How often a probe has said the same in a row, and what that amounts to."""

    success_threshold: int
    failure_threshold: int
    well: bool
    _length: int = 0
    _last: bool | None = None

    def heard(self, well: bool) -> bool:
        """Take in one answer; True when what it amounts to has just changed, or failed once more."""
        self._length = self._length + 1 if well == self._last else 1
        self._last = well
        needed = self.success_threshold if well else self.failure_threshold
        if self._length < needed:
            return False
        changed = well != self.well or (not well and self._length == needed)
        self.well = well
        return changed


class Prober:
    """Asks the probes of one container. `execute` runs a command in it and returns its exit code."""

    def __init__(self, container: Container, address: str, execute: RunExec) -> None:
        self._container = container
        self._address = address
        self._execute = execute

    async def watch(self, probe: Probe, start_well: bool, told: Callable[[bool], None]) -> None:
        """Ask again and again; `told` hears each change. Runs until it is cancelled."""
        streak = Streak(
            success_threshold=max(1, probe.success_threshold),
            failure_threshold=max(1, probe.failure_threshold),
            well=start_well,
        )
        await trio.sleep(probe.initial_delay_seconds)
        while True:
            if streak.heard(await self.ask(probe)):
                told(streak.well)
            await trio.sleep(max(1, probe.period_seconds))

    async def ask(self, probe: Probe) -> bool:
        """One question, within its time."""
        with trio.move_on_after(max(1, probe.timeout_seconds)):
            if probe.exec is not None:
                return await self._execute(probe.exec.command) == 0
            if probe.http_get is not None:
                return await self._http(probe.http_get)
            if probe.tcp_socket is not None:
                return await self._tcp(probe.tcp_socket.host, probe.tcp_socket.port)
            return True
        return False

    async def _http(self, get: HttpGet) -> bool:
        url = f"{get.scheme.lower()}://{get.host or self._address}:{self._port(get.port)}/{get.path.lstrip('/')}"
        headers = {header.name: header.value for header in get.http_headers}
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE  # a kubelet doesn't look at the certificate of a probe either
        try:
            async with httpx2.AsyncClient(verify=trusting, trust_env=False) as client:
                return 200 <= (await client.get(url, headers=headers)).status_code < 400
        except (httpx2.HTTPError, httpx2.InvalidURL):
            return False

    async def _tcp(self, host: str, port: int | str) -> bool:
        try:
            stream = await trio.open_tcp_stream(host or self._address, self._port(port))
        except OSError:
            return False
        await stream.aclose()
        return True

    def _port(self, port: int | str) -> int:
        if isinstance(port, int) or port.isdigit():
            return int(port)
        named = {each.name: each.container_port for each in self._container.ports or ()}
        return named.get(port, 0)


async def exit_code_of(argv: Sequence[str], environment: dict[str, str], folder: str) -> int:
    """Run a command to its end, or end it when cancelled; its output goes nowhere."""
    try:
        finished = await trio.run_process(
            list(argv),
            env=environment,
            cwd=folder,
            check=False,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return 127
    return finished.returncode
