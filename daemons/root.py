"""The root of a control plane's processes: it starts them, restarts what dies, and stops them in order.

It holds no state and does no work, so that nothing else is a reason for it to die. Brain and gateways die with it;
workers outlive a brain, and end once the root is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from ..child_process import AtOnce, ProcessChild, Program, ReadyLine
from ..errors import Refused
from ..model.ids import Chance
from ..model.states import TokenKind
from ..model.tokens import SECRET_BYTES, make_token
from ..store.embedded import ServerProcess, prepare_postgres, prepare_valkey
from ..supervisor import ChildSpec, Intensity, Supervisor
from ..wire.control import ChildStanding
from .disk import watch_disks
from .lines import LOGS_VARIABLE, LogStyle, RootLogs
from .orders import BrainOrders, gateway_ipc, journal_dir
from .ports import claim_port
from .root_tree import keep_root_tree
from .settings import Settings
from .troubles import Troubles, tell_troubles

STOP_S: Final = 20.0
SETTLED_WITHIN_S: Final = 30.0  # a database that recovers may take longer; then callers are refused for a while


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What a root says once its gateways answer."""

    stream_url: str
    http_url: str


class Root:
    """The processes of one replica. `on_line` gets each line of a child, `show_token` the first admin token.

    `warn` gets a sentence for the person who runs it: that the disk is full, that a process does not come up, and when
    that is over. `style` is how the children write their logs, whose lines `on_line` gets; what the root itself logs
    is among them.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        admin_token: str = "",
        owns_workers: bool = False,
        show_token: Callable[[str], None] = lambda token: None,
        on_line: Callable[[str, str], None] = lambda name, line: None,
        warn: Callable[[str], None] = lambda sentence: None,
        style: LogStyle = LogStyle.JSON,
    ) -> None:
        self.settings = settings
        self._admin_token = admin_token
        self._owns_workers = owns_workers
        self._show_token = show_token
        self._on_line = on_line
        self._warn = warn
        self._style = style
        self._replica_token = make_token(TokenKind.REPLICA, secrets.token_bytes(SECRET_BYTES))
        self._replica_id = Chance().id("replica")
        self._settled = trio.Event()
        self._troubles = Troubles()
        self._servers: tuple[ServerProcess, ...] | None = None  # until all is prepared

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Ready]:
        """Start everything, yield once the gateways answer, and stop everything in order."""
        RootLogs(self._on_line, self._style).install()
        try:
            async with trio.open_nursery() as watching:
                async with trio.open_nursery() as nursery:
                    ready = await self._prepare()
                    watching.start_soon(watch_disks, self._folders(), self._warn)
                    tree = Supervisor("root", self._children(), intensity=Intensity(restarts=100, within_s=60.0))
                    watching.start_soon(keep_root_tree, Path(self.settings.run_dir), partial(_standing, tree))
                    watching.start_soon(tell_troubles, self._troubles, lambda: tree.inspect()[1:], self._warn)
                    await nursery.start(tree.run)
                    await self._until_settled()
                    try:
                        yield ready
                    finally:
                        tree.stop("the root stops")
                watching.cancel_scope.cancel(reason="the root has stopped")
        finally:
            if self._servers is not None:  # else they may be somebody else's
                _remove_sockets(Path(self.settings.run_dir))
            _remove_empty(Path(self.settings.run_dir))

    async def _until_settled(self) -> None:
        """Until the token that we chose is good: a gateway may be quicker than the brain that makes it so."""
        if self._admin_token:
            with trio.move_on_after(SETTLED_WITHIN_S):
                await self._settled.wait()

    async def _prepare(self) -> Ready:
        """Claim the ports, prepare the embedded servers, and settle every address before anything starts."""
        settings = self.settings
        await trio.to_thread.run_sync(_make_folders, settings.state_dir, settings.run_dir)
        stream_port = claim_port(settings.bind, settings.stream_port, "streams")
        http_port = claim_port(settings.bind, settings.http_port, "HTTP")
        host = "127.0.0.1" if settings.bind in ("0.0.0.0", "::") else settings.bind
        letter = "s" if settings.cert else ""
        servers: tuple[ServerProcess, ...] = ()
        database_url, redis_url = settings.database_url, settings.redis_url
        if not database_url:
            postgres = await trio.to_thread.run_sync(_prepare_postgres, settings.state_dir, settings.run_dir)
            servers += (postgres,)
            database_url = postgres.url
        if not redis_url:
            valkey = prepare_valkey(Path(settings.run_dir))
            servers += (valkey,)
            redis_url = valkey.url
        stream_url = f"ws{letter}://{host}:{stream_port}"
        http_url = f"http{letter}://{host}:{http_port}"
        self.settings = msgspec.structs.replace(
            settings,
            stream_port=stream_port,
            http_port=http_port,
            database_url=database_url,
            redis_url=redis_url,
            objects_url=settings.objects_url or f"file://{settings.state_dir}/objects",
            advertise_url=settings.advertise_url or stream_url,
        )
        self._servers = servers
        self._ready = Ready(stream_url=stream_url, http_url=http_url)
        return self._ready

    def _folders(self) -> tuple[Path, ...]:
        """Where state of ours grows on disks of this host."""
        objects = self.settings.objects_url.removeprefix("file://")
        found = [Path(self.settings.state_dir)]
        if "://" not in objects and not Path(objects).is_relative_to(found[0]):
            found.append(Path(objects))
        return tuple(found)

    def _children(self) -> list[ChildSpec]:
        children = [
            ChildSpec(server.name, self._server_child(server), shutdown_s=STOP_S + 5, address="")
            for server in self._servers or ()
        ]
        orders = {"LEVERS9_BRAIN": self._brain_orders()}
        children.append(
            ChildSpec("brain", self._process("brain", "daemons.brain", orders), shutdown_s=STOP_S + 5, address="")
        )
        for number in range(self.settings.gateways):
            children.append(self._gateway(number))
        return children

    def _server_child(self, server: ServerProcess) -> ProcessChild:
        async def prepare() -> Program:
            if server.name == "postgres":
                settings = self.settings
                await trio.to_thread.run_sync(_prepare_postgres, settings.state_dir, settings.run_dir)
            return Program(
                argv=server.argv,
                cwd=server.folder,
                stop_signal=signal.Signals(server.stop_signal),
                stop_s=STOP_S,
            )

        return ProcessChild(prepare, on_line=lambda line: self._heard(server.name, line))

    def _gateway(self, number: int) -> ChildSpec:
        settings = self.settings
        arguments = [
            *("--gateway-id", f"{self._replica_id}-{number}"),
            *("--brain", gateway_ipc(Path(settings.run_dir), number)),
            *("--bind", settings.bind),
            *("--stream-port", str(settings.stream_port)),
            *("--http-port", str(settings.http_port)),
            *("--metrics-port", str(settings.metrics_port)),
            *("--objects-url", settings.objects_url),
            *("--advertise-url", settings.advertise_url),
            *("--journal-dir", str(journal_dir(settings))),
        ]
        for flag, value in (
            ("--cert", settings.cert),
            ("--key", settings.key),
            ("--external-url", settings.external_url),
            ("--external-ca", settings.external_ca),
        ):
            if value:
                arguments += [flag, value]
        env = {
            "LEVERS9_REPLICA_TOKEN": self._replica_token,
            "LEVERS9_DATABASE_URL": settings.database_url,
            "LEVERS9_REDIS_URL": settings.redis_url,
        }
        child = self._process(f"gateway-{number}", "daemons.gateway", env, arguments, ready='"ready"')
        return ChildSpec(f"gateway-{number}", child, shutdown_s=STOP_S + 5, address="")

    def _process(
        self, name: str, module: str, env: Mapping[str, str], arguments: Sequence[str] = (), ready: str = ""
    ) -> ProcessChild:
        program = Program(
            argv=(sys.executable, "-m", f"levers9.{module}", *arguments),
            env={**os.environ, LOGS_VARIABLE: self._style, **env},
            ready=ReadyLine(ready) if ready else AtOnce(),
            stop_s=STOP_S,
        )
        return ProcessChild(program, on_line=lambda line: self._heard(name, line))

    def _brain_orders(self) -> str:
        orders = BrainOrders(
            settings=self.settings,
            root_pid=os.getpid(),
            worker_urls=(self._ready.stream_url,),
            worker_http_url=self._ready.http_url,
            replica_id=self._replica_id,
            replica_token=self._replica_token,
            admin_token=self._admin_token,
            owns_workers=self._owns_workers,
        )
        return msgspec.json.encode(orders).decode()

    def _heard(self, name: str, line: str) -> None:
        if name == "brain" and line.startswith('{"type":"first_admin"'):
            self._show_token(msgspec.json.decode(line)["token"])
        elif name == "brain" and line.startswith('{"type":"settled"'):
            self._settled.set()
        else:
            self._troubles.heard(name, line)
            self._on_line(name, line)


def _standing(tree: Supervisor) -> tuple[ChildStanding, ...]:
    own, *children = tree.inspect()
    return (msgspec.structs.replace(own, process_id=os.getpid()), *children)


def _prepare_postgres(state_dir: str, run_dir: str) -> ServerProcess:
    """In a thread of Trio's; when that is cancelled, it ends at once."""
    go_on = trio.from_thread.check_cancelled
    return prepare_postgres(Path(state_dir, "postgres"), Path(run_dir), die_with_parent=True, go_on=go_on)


def _make_folders(*folders: str) -> None:
    for folder in folders:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)


def _remove_sockets(folder: Path) -> None:
    """Of those who listened on them and were killed; nobody does any more."""
    for path in (*folder.glob("*.ipc"), *folder.glob("*.sock"), *folder.glob("postgres/.s.PGSQL.*")):
        with contextlib.suppress(OSError):
            path.unlink()


def _remove_empty(folder: Path) -> None:
    """Sockets go with those who listened on them; their folders go here."""
    for one in (folder / "postgres", folder):
        with contextlib.suppress(OSError):
            one.rmdir()


def default_run_dir(state_dir: Path) -> Path:
    """A short private folder for sockets; the same for the same state directory."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime, "levers9") if runtime and os.path.isdir(runtime) else Path(f"/tmp/levers9-{os.getuid()}")
    return base / hashlib.blake2b(os.fsencode(state_dir.absolute()), digest_size=4).hexdigest()


def check_writable(folder: Path) -> None:
    """Raises `Refused` when the state directory cannot be made or written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Refused(
            f"levers9 keeps its state in {folder}, and that cannot be written: {error.strerror}.",
            fix="Name another folder with --state-dir.",
        ) from error
