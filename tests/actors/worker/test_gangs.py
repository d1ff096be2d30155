"""What a worker does for members of gangs: where they meet, what their code is told, and when a loss is no fault."""

import socket

import msgspec
from levers9_test_worker import a_spec, an_order

from levers9.actors.worker import events
from levers9.actors.worker.meeting import free_port, own_address
from levers9.actors.worker.policy import WorkerPolicy
from levers9.actors.worker.reports import Identity
from levers9.actors.worker.runtime.environment import rank_variables
from levers9.model.resources import Capacity
from levers9.model.states import End
from levers9.wire.control import ReportAgain
from levers9.wire.message import Message, Payload
from levers9.wire.scheduling import ContainerReady, StartContainer, StopContainer, WorkerReported
from levers9.wire.work import AttemptResult, AttemptsFinished, RunAttempts

START = StartContainer(
    container_id="c1", stub_id="s", workspace_id="ws", spec=a_spec(), gang_id="gang-1", rank=2, world_size=4
)


def a_policy() -> WorkerPolicy:
    capacity = Capacity(cpu_milli=1000, memory_mib=1000)
    return WorkerPolicy(Identity(worker_id="w", pool="p", epoch=7, capacity=capacity, host="10.0.0.7"))


def said(policy: WorkerPolicy, message: Message) -> list[events.Decision]:
    return policy.handle(events.MessageArrived(message), 0.0)


def sent(decisions: list[events.Decision], kind: type[Message]) -> list[Message]:
    return [one.message for one in decisions if isinstance(one, events.Send) and isinstance(one.message, kind)]


def test_a_member_is_launched_with_its_rank() -> None:
    (launch,) = said(a_policy(), START)
    assert isinstance(launch, events.Launch)
    assert (launch.gang_id, launch.rank, launch.world_size) == ("gang-1", 2, 4)
    assert rank_variables(launch) == {
        "LEVERS9_GANG": "gang-1",
        "LEVERS9_RANK": "2",
        "LEVERS9_WORLD_SIZE": "4",
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
    }
    assert rank_variables(msgspec.structs.replace(launch, gang_id="")) == {}


def test_where_it_is_met_is_told_when_it_is_ready_and_to_whoever_leads_next() -> None:
    policy = a_policy()
    said(policy, START)
    told = policy.handle(events.ContainerLoaded("c1", 7001), 0.0)
    assert told == [events.Send(ContainerReady(container_id="c1", window=1, address="10.0.0.7:7001"))]
    (report,) = sent(said(policy, ReportAgain(epoch=9)), WorkerReported)
    assert isinstance(report, WorkerReported)
    assert (report.host, report.containers[0].address) == ("10.0.0.7", "10.0.0.7:7001")


def test_one_on_its_own_is_met_nowhere() -> None:
    policy = a_policy()
    said(policy, msgspec.structs.replace(START, gang_id=""))
    assert policy.handle(events.ContainerLoaded("c1"), 0.0) == [
        events.Send(ContainerReady(container_id="c1", window=1))
    ]


def test_large_arguments_keep_the_place_where_the_ranks_meet() -> None:
    policy = a_policy()
    said(policy, START)
    policy.handle(events.ContainerLoaded("c1", 7001), 0.0)
    order = msgspec.structs.replace(an_order(1), arguments=Payload("msgpack", b"", "blob/x", 9), rank0="10.0.0.9:7000")
    said(policy, RunAttempts(container_id="c1", attempts=(order,)))
    key = policy.containers["c1"].attempts
    (give,) = policy.handle(events.ArgumentsFetched("c1", next(iter(key)), Payload("msgpack", b"x")), 0.0)
    assert isinstance(give, events.Give)
    assert (give.orders[0].rank0, give.orders[0].arguments.data) == ("10.0.0.9:7000", b"x")


def test_what_runs_in_a_container_that_makes_room_is_lost_to_preemption() -> None:
    for preempted in (True, False):
        policy = a_policy()
        said(policy, START)
        policy.handle(events.ContainerLoaded("c1", 7001), 0.0)
        order = an_order(1)
        said(policy, RunAttempts(container_id="c1", attempts=(order,)))
        said(policy, StopContainer(container_id="c1", why="room", preempted=preempted))
        key = next(iter(policy.containers["c1"].attempts))
        told = policy.handle(events.ContainerExited("c1", End.KILLED, "", (key,)), 1.0)
        (finished,) = sent(told, AttemptsFinished)
        assert isinstance(finished, AttemptsFinished)
        (result,) = finished.results
        assert isinstance(result, AttemptResult)
        assert (result.end, result.started, result.preempted) == (End.DISCONNECTED, True, preempted)


def test_an_ipv6_address_is_written_as_in_urls() -> None:
    identity = msgspec.structs.replace(a_policy().identity, host="fd00::7")
    assert identity.address(7001) == "[fd00::7]:7001"


def test_a_port_is_free_at_the_address_at_which_the_worker_is_reached() -> None:
    with socket.socket() as other:
        other.bind(("127.77.0.1", 0))
        other.listen()
        with socket.socket() as listener:
            listener.bind(("127.77.1.1", free_port("127.77.1.1")))
            assert listener.getsockname()[0] == "127.77.1.1"
    assert free_port("203.0.113.7") > 0  # an address of a translation, which this host has not


def test_a_free_port_can_be_listened_on() -> None:
    with socket.socket() as listener:
        listener.bind((own_address(), free_port()))
        assert listener.getsockname()[1] > 0
