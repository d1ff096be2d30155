"""Each verb against a control plane's HTTP face: what it asks, what it shows, and how it fails."""

from __future__ import annotations

import json

import pytest

from ..sdk.http_stub import HttpStub
from .conftest import Line

TASK = {
    "ok": True,
    "task_id": "task-1",
    "workspace_id": "w",
    "stub_id": "stub-1",
    "name": "app/double",
    "state": "ERROR",
    "attempt": 2,
    "container_id": "c-1",
    "worker_id": "worker-1",
    "accepted_at_s": 100.0,
    "started_at_s": 101.0,
    "ended_at_s": 104.0,
    "failure": "ValueError: no",
    "traceback": "Traceback …",
}
WORKER = {
    "worker_id": "worker-1",
    "pool": "local",
    "state": "available",
    "cpu_milli": 2000,
    "memory_mib": 4096,
    "gpu_count": 1,
    "gpu_type": "A100",
    "seen_at_s": 0,
    "why": "",
}
CONTAINER = {
    "container_id": "c-1",
    "stub_id": "stub-1",
    "state": "ready",
    "worker_id": "worker-1",
    "requested_at_s": 0,
    "ready_at_s": 0,
    "ended_at_s": 0,
    "end": None,
    "why": "",
}
TOKEN = {
    "token_id": "token-1",
    "workspace_id": "w",
    "kind": "workspace",
    "name": "laptop",
    "hint": "l9w_ab",
    "active": True,
    "created_at_s": 0,
}
WORKSPACE = {"workspace_id": "w", "name": "team", "created_at_s": 0}
CHILD = {
    "path": "brain/tasks",
    "kind": "actor",
    "state": "running",
    "restarts": 3,
    "mailbox_depth": 7,
    "mailbox_slots": 1024,
    "handled": 12345,
    "last_failure": "boom",
}


@pytest.mark.parametrize(
    ("verb", "path", "answer", "shown"),
    [
        (("task", "list"), "tasks[?]limit=50", {"tasks": [TASK]}, ("task-1", "app/double", "ERROR", "3.0 s")),
        (("worker", "list"), "workers", {"workers": [WORKER]}, ("worker-1", "local", "4 GiB", "1 A100")),
        (("container", "list"), "containers", {"containers": [CONTAINER]}, ("c-1", "ready", "worker-1")),
        (("token", "list"), "tokens", {"tokens": [TOKEN]}, ("token-1", "laptop", "l9w_ab")),
        (("workspace", "list"), "workspaces", {"workspaces": [WORKSPACE]}, ("w", "team")),
        (("inspect",), "inspect", {"children": [CHILD], "dead_letters": 2}, ("tasks", "7/1024", "boom", "letters: 2")),
    ],
)
def test_a_list_shows_rows_and_json(
    http: HttpStub, line: Line, verb: tuple[str, ...], path: str, answer: object, shown: tuple[str, ...]
) -> None:
    http.answers[f"GET /api/v1/{path}"] = (200, answer)
    plain, as_json = line(*verb), line(*verb, "--json")
    assert (plain.code, as_json.code) == (0, 0)
    assert [word for word in shown if word not in plain.out] == []
    assert json.loads(as_json.out)
    assert http.tokens == {"Bearer token-of-a-test"}


def test_the_help_of_worker_says_who_starts_one(line: Line) -> None:
    done = line("worker", "--help")
    assert "Pools start them, by `levers9 worker` with options." in " ".join(done.out.split())


def test_task_show_tells_the_traceback(http: HttpStub, line: Line) -> None:
    http.answers["GET /api/v1/tasks/task-1"] = (200, TASK)
    done = line("task", "show", "task-1")
    assert "container c-1 on worker worker-1" in done.out
    assert "Traceback …" in done.out


def test_task_why_tells_the_reasons(http: HttpStub, line: Line) -> None:
    why = {"task_id": "task-1", "state": "PENDING", "reasons": ["no worker is free", "the pool is full"]}
    http.answers["GET /api/v1/tasks/task-1/why"] = (200, why)
    assert line("task", "why", "task-1").out == "task-1 is PENDING.\n- no worker is free\n- the pool is full\n"


def test_task_why_follows_what_changes_until_the_call_runs(
    http: HttpStub, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = {"kind": "quota", "quota": "gpu", "lacks": [{"resource": "GB200", "amount": 8}]}
    first = {"task_id": "task-1", "state": "PENDING", "reasons": ["8 more GB200 needed in quota gpu."], "holds": [hold]}
    starting = {"task_id": "task-1", "state": "PENDING", "reasons": ["A worker is starting."]}
    runs = {"task_id": "task-1", "state": "RUNNING", "reasons": ["It runs."]}
    coming = iter([first, starting, runs])
    http.answers["GET /api/v1/tasks/task-1/why"] = (200, first)
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        http.answers["GET /api/v1/tasks/task-1/why"] = (200, next(coming))

    monkeypatch.setattr("levers9.cli.tasks.time.sleep", sleep)
    done = line("task", "why", "--follow", "task-1")
    assert done.out == (
        "task-1 is PENDING.\n- 8 more GB200 needed in quota gpu.\n"
        "task-1 is PENDING.\n- A worker is starting.\n"
        "task-1 is RUNNING.\n- It runs.\n"
    )
    assert slept == [1.0, 1.0, 1.0]


def test_task_why_tells_the_holds_as_json(http: HttpStub, line: Line) -> None:
    hold = {"kind": "room", "pool": "lab"}
    why = {"task_id": "task-1", "state": "PENDING", "reasons": ["No room."], "holds": [hold]}
    http.answers["GET /api/v1/tasks/task-1/why"] = (200, why)
    assert json.loads(line("task", "why", "task-1", "--json").out) == why


def test_task_stop_tells_the_state(http: HttpStub, line: Line) -> None:
    http.answers["POST /api/v1/tasks/task-1/stop"] = (200, {"task_id": "task-1", "state": "CANCELLING"})
    assert line("task", "stop", "task-1").out == "task-1 is CANCELLING.\n"


def test_task_logs_go_to_the_stream_they_were_written_to(http: HttpStub, line: Line) -> None:
    lines = b'{"n":1,"stream":"out","time":1,"text":"hello"}\n{"n":2,"stream":"err","time":1,"text":"oh"}\n{"end":2}\n'
    http.answers["GET /api/v1/tasks/task-1/logs[?]follow=1&after=0"] = (200, lines)
    done = line("task", "logs", "-f", "task-1")
    assert (done.code, done.out, done.err) == (0, "hello\n", "oh\n")


def test_a_new_token_is_alone_on_standard_output(http: HttpStub, line: Line) -> None:
    http.answers["POST /api/v1/tokens"] = (200, {**TOKEN, "token": "l9w_secret"})
    done = line("token", "create", "--name", "laptop")
    assert done.out == "l9w_secret\n"
    assert http.asked[-1][2] == {"kind": "workspace", "name": "laptop", "workspace": ""}


def test_tokens_of_machines_and_revoked_ones_are_listed_where_asked(http: HttpStub, line: Line) -> None:
    others = [
        {**TOKEN, "token_id": "token-2", "kind": "worker"},
        {**TOKEN, "token_id": "token-3", "name": "container container-7"},
        {**TOKEN, "token_id": "token-4", "active": False},
    ]
    http.answers["GET /api/v1/tokens"] = (200, {"tokens": [TOKEN, *others]})
    assert [one["token_id"] for one in json.loads(line("token", "list", "--json").out)] == ["token-1"]
    assert len(json.loads(line("token", "list", "--all", "--json").out)) == 4


def test_a_kind_of_token_that_does_not_exist_is_told_with_the_nearest(http: HttpStub, line: Line) -> None:
    done = line("token", "create", "--kind", "workspaces")
    assert (done.code, done.err) == (
        1,
        "levers9: There is no kind of token 'workspaces'. Did you mean 'workspace'?\n",
    )
    assert http.asked == []


def test_stopping_nothing_is_told(http: HttpStub, line: Line) -> None:
    done = line("task", "stop")
    assert (done.code, done.out) == (1, "")
    assert "No call was named. Give the ids of calls" in done.err


def test_a_token_is_revoked_by_its_id(http: HttpStub, line: Line) -> None:
    http.answers["DELETE /api/v1/tokens/token-1"] = (200, {"token_id": "token-1"})
    assert line("token", "revoke", "token-1").out == "token-1 is revoked.\n"


def test_a_new_workspace_comes_with_its_token(http: HttpStub, line: Line) -> None:
    http.answers["POST /api/v1/workspaces"] = (200, {"workspace_id": "w", "name": "team", "token": "l9w_first"})
    assert line("workspace", "create", "team").out == "team is w. Its token:\nl9w_first\n"


def test_a_refusal_is_a_sentence_and_exit_code_1(http: HttpStub, line: Line) -> None:
    refusal = {"ok": False, "code": "not_found", "what": "There is no task task-9.", "fix": "See: levers9 task list."}
    http.answers["GET /api/v1/tasks/task-9"] = (404, refusal)
    done = line("task", "show", "task-9")
    assert (done.code, done.out) == (1, "")
    assert done.err == "levers9: There is no task task-9. See: levers9 task list.\n"


def test_an_answer_that_cannot_be_read_is_a_sentence(http: HttpStub, line: Line) -> None:
    http.answers["GET /api/v1/workers"] = (200, {"workers": [{"no": 1}]})
    done = line("worker", "list")
    assert done.code == 1
    assert "cannot be read" in done.err
    assert "Traceback" not in done.err


def test_a_control_plane_that_is_away_is_a_sentence(
    http: HttpStub, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVERS9_HTTP_URL", "http://127.0.0.1:9")
    done = line("task", "list")
    assert done.code == 1
    assert "http://127.0.0.1:9 does not answer" in done.err


def test_no_token_says_what_to_do(line: Line) -> None:
    done = line("task", "list")
    assert done.code == 1
    assert "levers9 dev" in done.err
    assert "levers9 login" in done.err


@pytest.mark.parametrize("wrong", [("tsk",), ("task", "lst"), ("task", "show"), ("task", "list", "--limit", "many")])
def test_a_wrong_command_line_is_exit_code_2(line: Line, wrong: tuple[str, ...]) -> None:
    done = line(*wrong)
    assert done.code == 2
    assert done.err.startswith("levers9: ")
    assert "--help" in done.err
    assert "Traceback" not in done.err


def test_the_help_names_every_verb(line: Line) -> None:
    done = line("--help")
    verbs = ["dev", "controlplane", "worker", "gateway", "run", "task", "token", "workspace", "inspect", "config"]
    assert [verb for verb in verbs if verb not in done.out] == []
