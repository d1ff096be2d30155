"""Probes: counting answers, and asking."""

import pytest
import trio

from levers9.lab.objects import Container, Exec, HttpGet, Port, Probe, TcpSocket
from levers9.lab.probes import Prober, Streak


def test_it_takes_as_many_failures_in_a_row_as_the_threshold_says() -> None:
    streak = Streak(success_threshold=1, failure_threshold=3, well=True)
    assert [streak.heard(well) for well in (False, False, True, False, False, False)] == [False] * 5 + [True]
    assert not streak.well


def test_a_failure_that_goes_on_is_told_once_until_it_has_gone_well() -> None:
    streak = Streak(success_threshold=1, failure_threshold=1, well=True)
    assert [streak.heard(well) for well in (False, False, True, False)] == [True, False, True, True]


def test_success_may_take_several_in_a_row() -> None:
    streak = Streak(success_threshold=2, failure_threshold=1, well=False)
    assert [streak.heard(well) for well in (True, False, True, True)] == [False, True, False, True]
    assert streak.well


async def run_nothing(argv: object) -> int:
    return 0 if argv == ("good",) else 1


@pytest.mark.parametrize(("command", "well"), [("good", True), ("bad", False)])
async def test_a_command_is_well_when_it_ends_with_0(command: str, well: bool) -> None:
    prober = Prober(Container(name="main"), "127.0.0.1", run_nothing)
    assert await prober.ask(Probe(exec=Exec(command=(command,)))) is well


async def test_a_command_that_takes_too_long_is_not_well(autojump_clock: object) -> None:
    async def run_long(argv: object) -> int:
        await trio.sleep(10)
        return 0

    prober = Prober(Container(name="main"), "127.0.0.1", run_long)
    assert not await prober.ask(Probe(exec=Exec(command=("x",)), timeout_seconds=2))


async def serve(answer: bytes, nursery: trio.Nursery) -> int:
    async def attend(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)

    listeners = await nursery.start(trio.serve_tcp, attend, 0)
    port: int = listeners[0].socket.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("status", "well"), [(b"200 OK", True), (b"302 Found", True), (b"404 No", False), (b"500 No", False)]
)
async def test_a_request_is_well_below_400(status: bytes, well: bool) -> None:
    async with trio.open_nursery() as nursery:
        port = await serve(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", nursery)
        named = Container(name="main", ports=(Port(container_port=port, name="web"),))
        prober = Prober(named, "127.0.0.1", run_nothing)
        assert await prober.ask(Probe(http_get=HttpGet(path="/x", port="web"))) is well
        nursery.cancel_scope.cancel()


async def test_a_port_is_well_when_somebody_listens() -> None:
    async with trio.open_nursery() as nursery:
        port = await serve(b"", nursery)
        prober = Prober(Container(name="main"), "127.0.0.1", run_nothing)
        assert await prober.ask(Probe(tcp_socket=TcpSocket(port=port)))
        nursery.cancel_scope.cancel()
    assert not await prober.ask(Probe(tcp_socket=TcpSocket(port=port)))


async def test_a_probe_waits_asks_and_tells_each_change(autojump_clock: object) -> None:
    answers = iter([1, 0, 0, 1, 1, 1, 0])
    told: list[tuple[float, bool]] = []
    began = trio.current_time()

    async def run(argv: object) -> int:
        return next(answers)

    prober = Prober(Container(name="main"), "127.0.0.1", run)
    probe = Probe(exec=Exec(command=("x",)), initial_delay_seconds=5, period_seconds=10)
    with trio.move_on_after(66):
        await prober.watch(probe, False, lambda well: told.append((trio.current_time() - began, well)))
    assert told == [(15, True), (55, False), (65, True)]
