"""What the API server asks of a kubelet, read."""

from levers9.lab.execution import status_of
from levers9.lab.kubeletapi import log_query, read_call
from levers9.lab.logfile import LogQuery


def test_a_call_is_its_path_and_its_query() -> None:
    call = read_call("/exec/ns/a%20pod/main?command=sh&command=-c&input=1&tty=", {"upgrade": "WebSocket"})
    assert call.parts == ("exec", "ns", "a pod", "main")
    assert call.query["command"] == ("sh", "-c")
    assert (call.is_set("input"), call.is_set("tty"), call.is_set("output")) == (True, False, False)
    assert call.is_websocket


def test_a_log_is_asked_for_with_what_kubectl_says() -> None:
    target = "/containerLogs/ns/pod/main?follow=true&tailLines=5&timestamps=true&sinceSeconds=10&limitBytes=99"
    assert log_query(read_call(target, {}), now_s=1_000_010.0) == LogQuery(
        follow=True, timestamps=True, tail=5, since="1970-01-12T13:46:40.000000000Z", limit_bytes=99
    )
    assert log_query(read_call("/containerLogs/ns/pod/main", {}), now_s=0.0) == LogQuery()


def test_how_a_command_ended_is_told_as_kubectl_reads_it() -> None:
    assert status_of(0).status == "Success"
    failed = status_of(7)
    assert (failed.status, failed.reason) == ("Failure", "NonZeroExitCode")
    assert failed.details is not None
    assert (failed.details.causes[0].reason, failed.details.causes[0].message) == ("ExitCode", "7")
