"""A worker's process as it runs in a pod: what it is given there, what its code sees of that, and how it ends."""

import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import trio
import trustme

from levers9.errors import BrokenByPeer
from levers9.model.tokens import hash_of
from levers9.wire.carriers.proved import dial
from levers9.wire.scheduling import WorkerLeaving, WorkerReported

from ..wire.carriers.connect_proxy import a_proxy
from .worker_plane import Gateway, call, run_a_call, start

SPACES = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
CANARY = "l9_workr_canary"
LOOKS = """
import glob, os

def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""

def function():
    places = [path for name in ("environ", "cmdline") for path in glob.glob(f"/proc/[0-9]*/{name}")]
    return [dict(os.environ), [path for path in places if b"l9_workr_" + b"canary" in read(path)]]
"""
MEETS = """
import os, socket, time

def function():
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if os.environ["RANK"] == "0":
        with socket.create_server((host, port)) as listener:
            peer, _ = listener.accept()
            with peer:
                return peer.recv(100).decode()
    while True:
        try:
            with socket.create_connection((host, port)) as peer:
                return peer.send(b"rank 1 was here")
        except ConnectionRefusedError:
            time.sleep(0.01)
"""


@contextlib.asynccontextmanager
async def a_pod(
    folder: Path, gateway: Gateway, url: str, *more: str, before: tuple[str, ...] = (), **variables: str
) -> AsyncIterator[trio.Process]:
    """The process of a pod's worker, with these variables; `before` is what starts it."""
    argv = [*before, sys.executable, "-m", "levers9.daemons.worker", "--id", gateway.worker_id, "--pool", "p"]
    argv += [] if "--listen" in more else ["--url", url]
    argv += ["--http-url", url, "--state-dir", str(folder / gateway.worker_id), "--memory-mib", "700", *more]
    env = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    env |= {"PYTHONPATH": str(folder), "LEVERS9_WORKER_TOKEN": CANARY, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    with (folder / f"{gateway.worker_id}.log").open("wb") as output:
        process = await trio.lowlevel.open_process(
            argv, env=env | variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


@pytest.mark.slow
async def test_behind_a_proxy_and_a_private_authority_it_works_and_its_code_sees_no_secret(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text(LOOKS)
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("plane.test").configure_cert(context)
    gateway = Gateway(ssl_context=context)
    pem = authority.cert_pem.bytes().decode()
    async with trio.open_nursery() as nursery, a_proxy(wants="me:proxy-secret") as proxy:
        await nursery.start(gateway.serve)
        given = {"HTTPS_PROXY": proxy.url, "LEVERS9_CA_PEM": pem, "LEVERS9_POD_IP": "127.77.3.1"}
        async with a_pod(tmp_path, gateway, f"https://plane.test:{gateway.port}", **given):
            seen, found = msgspec.msgpack.decode(await run_a_call(gateway))
            report = await gateway.until(WorkerReported)
        nursery.cancel_scope.cancel()
    assert isinstance(report, WorkerReported)
    assert (report.host, gateway.came[0].token, proxy.tunnels) == ("127.77.3.1", CANARY, 1)
    assert found == []
    assert CANARY not in repr(seen)
    assert "proxy-secret" not in repr(seen)
    assert not [name for name in seen if name.startswith("KUBERNETES_") or name == "LEVERS9_WORKER_TOKEN"]
    assert (seen["LEVERS9_CA_PEM"], seen["LEVERS9_CONTROLPLANE_HOST"]) == (pem, "plane.test")


@pytest.mark.slow
async def test_refused_for_good_it_ends_its_containers_and_itself_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("import os\ndef function():\n    return os.getpid()\n")
    gateway = Gateway()
    async with trio.open_nursery() as nursery:
        await nursery.start(gateway.serve)
        url = f"ws://127.0.0.1:{gateway.port}"
        async with a_pod(tmp_path, gateway, url, "--root-pid", str(os.getpid())) as process:
            runner = msgspec.msgpack.decode(await run_a_call(gateway), type=int)
            gateway.refuses = True
            assert gateway.link is not None
            await gateway.link.aclose()
            with trio.fail_after(10):
                assert await process.wait() == 1
        nursery.cancel_scope.cancel()
    assert not os.path.exists(f"/proc/{runner}")  # noqa: ASYNC240 - it is no disk
    assert "Its cluster was detached." in (tmp_path / "w1.log").read_text()


@pytest.mark.slow
async def test_the_ranks_of_a_gang_meet_at_the_address_of_rank_0_s_pod(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text(MEETS)
    planes = [Gateway("w0"), Gateway("w1")]
    results: dict[int, object] = {}

    async def run(rank: int, rank0: str) -> None:
        results[rank] = msgspec.msgpack.decode(await call(planes[rank], rank0))

    async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as stack:
        for rank, plane in enumerate(planes):
            await nursery.start(plane.serve)
            url = f"ws://127.0.0.1:{plane.port}"
            await stack.enter_async_context(a_pod(tmp_path, plane, url, LEVERS9_POD_IP=f"127.77.{rank}.1"))
        ready = [await start(plane, rank=rank) for rank, plane in enumerate(planes)]
        assert [one.address.rpartition(":")[0] for one in ready] == ["127.77.0.1", "127.77.1.1"]
        async with trio.open_nursery() as both:
            both.start_soon(run, 0, ready[0].address)
            both.start_soon(run, 1, ready[0].address)
        nursery.cancel_scope.cancel()
    assert results == {0: "rank 1 was here", 1: len("rank 1 was here")}


def needs_spaces() -> None:
    tried = shutil.which("unshare") and subprocess.run([*SPACES, "true"], capture_output=True, check=False)
    if not tried or tried.returncode:
        pytest.skip("no process namespace may be made here: unshare needs root")


@pytest.mark.slow
async def test_as_the_first_process_of_its_container_it_leaves_on_sigterm_with_status_0(tmp_path: Path) -> None:
    needs_spaces()
    (tmp_path / "mod.py").write_text("import os\ndef function():\n    return os.getppid()\n")
    gateway = Gateway()
    async with trio.open_nursery() as nursery:
        await nursery.start(gateway.serve)
        url = f"ws://127.0.0.1:{gateway.port}"
        async with a_pod(tmp_path, gateway, url, before=SPACES, LEVERS9_POD_IP="127.77.5.1") as outer:
            await run_a_call(gateway)
            (first,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()  # noqa: ASYNC240
            os.kill(int(first), signal.SIGTERM)
            await gateway.until(WorkerLeaving)
            with trio.fail_after(10):
                assert await outer.wait() == 0
        nursery.cancel_scope.cancel()


async def keep_dialling(gateway: Gateway, url: str) -> None:
    """As a gateway does with a worker that the brain names."""
    while True:
        with contextlib.suppress(BrokenByPeer):
            carrier = await dial(url, worker_id=gateway.worker_id, token_hash=hash_of(CANARY))
            await gateway.acceptor.serve(carrier, name=f"worker/{gateway.worker_id}", on_link=gateway.on_link)
        await trio.sleep(0.02)


@pytest.mark.slow
async def test_a_worker_that_listens_is_dialled_and_leaves_when_asked(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("import os\ndef function():\n    return os.environ['LEVERS9_CONTROLPLANE_HOST']\n")
    gateway = Gateway()
    with socket.socket() as free:
        free.bind(("127.77.4.1", 0))
        port = free.getsockname()[1]
    listening = ("--listen", f":{port}")
    async with trio.open_nursery() as nursery:
        await nursery.start(gateway.acceptor.run)
        nursery.start_soon(keep_dialling, gateway, f"ws://127.77.4.1:{port}")
        async with a_pod(tmp_path, gateway, "http://127.0.0.1:9", *listening, LEVERS9_POD_IP="127.77.4.1") as process:
            assert msgspec.msgpack.decode(await run_a_call(gateway)) == "127.0.0.1"
            process.terminate()
            await gateway.until(WorkerLeaving)
            with trio.fail_after(10):
                assert await process.wait() == 0
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_place_where_it_cannot_listen_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.77.4.2", 0)) as taken:
        place = "127.77.4.2:" + str(taken.getsockname()[1])
        async with a_pod(tmp_path, Gateway(), "http://127.0.0.1:9", "--listen", place) as process:
            with trio.fail_after(10):
                assert await process.wait() == 2
    assert "cannot listen at 127.77.4.2" in (tmp_path / "w1.log").read_text()
