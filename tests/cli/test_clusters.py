"""`levers9 cluster`, against a control plane's HTTP face: what is shown, what is asked, and what is told."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from levers9.cli.clusters import selector_text
from levers9.errors import ConfigError

from ..sdk.http_stub import HttpStub
from .conftest import Line

CLUSTERS = "/api/v1/controlplane/clusters"
NODE = {
    "name": "n1",
    "state": "ready",
    "ready": True,
    "gpus": 4,
    "gpus_free": 3,
    "gpus_ours": 1,
    "gpu_type": "GB200",
    "cpu_free_millis": 4500,
    "memory_free_mb": 2048,
    "worker_id": "worker-1",
    "worker_state": "available",
}
OWN: dict[str, object] = {
    "name": "lab-1",
    "gpu_type": "GB200",
    "status": "online",
    "shared": False,
    "owned": True,
    "cluster_id": "cluster-1",
    "nodes": [NODE, {**NODE, "name": "n2", "state": "cordoned", "ready": False, "why": "cordoned"}],
    "matched": 2,
    "last_seen_s": 0.0,
    "agent_version": "0.1.0",
    "workers": 2,
    "pending": 1,
    "nodes_total": 2,
    "nodes_ready": 1,
    "cards": 8,
    "cards_ours": 2,
    "cards_free": 2,
    "namespace": "levers9",
}
OTHERS = {**OWN, "name": "big", "owned": False, "shared": True, "nodes": [{**NODE, "name": ""}], "agent_version": ""}
ADMINS = {**OWN, "name": "far", "owned": False, "workspace": "team-b", "agent_outdated": True, "problem": "No pods."}
JOIN = ("cluster", "join", "lab-1", "--gpu", "GB200")


def show(http: HttpStub, cluster: dict[str, object] = OWN, manifest: str = "kind: Namespace\n") -> None:
    answer = {"ok": True, "cluster": cluster, "manifest": manifest}
    http.answers[f"GET {CLUSTERS}/{cluster['name']}"] = (200, answer)


def attached(http: HttpStub, manifest: str = "kind: Namespace\n", **change: object) -> None:
    answer = {"ok": True, "cluster": {**OWN, "status": "waiting", **change}, "manifest": manifest, "url": "http://x"}
    http.answers[f"POST {CLUSTERS}"] = (200, answer)
    http.answers[f"GET {CLUSTERS}?nodes=no"] = (200, {"clusters": []})


def test_clusters_are_listed_with_whom_they_serve_and_how_old_their_agent_is(http: HttpStub, line: Line) -> None:
    old = {**OWN, "last_seen_s": time.time() - 40, "agent_started_at_s": time.time() - 3 * 86400}
    http.answers[f"GET {CLUSTERS}?nodes=no"] = (200, {"clusters": [old, OTHERS, ADMINS]})
    shown = line("cluster", "list").out.splitlines()
    heads = ("CLUSTER", "GPU", "STATE", "NODES", "CARDS", "OURS", "FREE", "SEEN", "SERVES", "WORKERS", "AGENT")
    assert [word for word in heads if word not in shown[0]] == []
    cells = ("lab-1", "online", "1/2  ", "  8      2     2  ", "40 s", "you", "2 (1 pending)")
    words = (*cells, "0.1.0, up 3 d")
    assert [word for word in words if word not in shown[1]] == []
    assert "everyone" in shown[2]
    assert "team-b only" in shown[3]
    assert "No pods. Its agent is older than the control plane." in shown[3]


def test_that_an_agent_is_not_heard_is_told_while_its_cluster_is_online(http: HttpStub, line: Line) -> None:
    http.answers[f"GET {CLUSTERS}?nodes=no"] = (200, {"clusters": [{**OWN, "agent_silent": True}]})
    assert "Its agent is not heard: where that goes on, no worker starts there." in line("cluster", "list").out


def test_where_no_node_takes_work_the_list_says_where_to_read_why(http: HttpStub, line: Line) -> None:
    none = {**OWN, "nodes_ready": 0, "problem": ""}
    http.answers[f"GET {CLUSTERS}?nodes=no"] = (200, {"clusters": [none, {**none, "problem": "No cards."}]})
    _, shut, told = line("cluster", "list").out.splitlines()
    assert "None of its nodes takes work: see `levers9 cluster nodes lab-1`." in shut
    assert ("None of its nodes" in told, "No cards." in told) == (False, True)


def test_nodes_that_are_not_reported_yet_are_not_told_as_none(http: HttpStub, line: Line) -> None:
    counts = {"nodes_total": 0, "nodes_ready": 0, "cards": 0, "cards_ours": 0, "cards_free": 0}
    unknown = {**OWN, **counts, "nodes": [], "nodes_known": False}
    http.answers[f"GET {CLUSTERS}?nodes=no"] = (200, {"clusters": [unknown, {**unknown, "status": "waiting"}]})
    _, online, waiting = line("cluster", "list").out.splitlines()
    assert online.split()[2:7] == ["online", "–", "–", "–", "–"]
    assert online.endswith("Its nodes are not reported yet.")
    assert (waiting.split()[3], "not reported" in waiting) == ("–", False)
    show(http, unknown)
    assert line("cluster", "nodes", "lab-1").err == "lab-1 is online; its nodes are not reported yet.\n"


@pytest.mark.parametrize("flags", [("--json",), ("--format", "json")])
def test_clusters_are_listed_for_programs(http: HttpStub, line: Line, flags: tuple[str, ...]) -> None:
    http.answers[f"GET {CLUSTERS}?nodes=no"] = (200, {"clusters": [OWN]})
    assert [one["name"] for one in json.loads(line("cluster", "list", *flags).out)] == ["lab-1"]


def test_what_a_worker_of_ours_has_is_not_free(http: HttpStub, line: Line) -> None:
    mine = {**NODE, "gpus_ours": 3, "cpu_ours_millis": 4000, "memory_ours_mb": 1024}
    show(http, {**OWN, "nodes": [mine]})
    row = line("cluster", "nodes", "lab-1").out.splitlines()[1]
    assert row.split()[:8] == ["n1", "ready", "4", "GB200", "3", "0", "0.5", "1.0"]


def test_nodes_are_shown_with_what_is_free(http: HttpStub, line: Line) -> None:
    show(http)
    shown = line("cluster", "nodes", "lab-1").out.splitlines()
    words = ("n1", "ready", "4 GB200  1     2", "4.5", "2.0 GiB", "worker-1 available")
    assert [word for word in words if word not in shown[1]] == []
    assert shown[2].endswith("cordoned")
    assert json.loads(line("cluster", "nodes", "lab-1", "--json").out)[1]["why"] == "cordoned"


def test_that_nodes_may_be_out_of_date_is_told_beside_them(http: HttpStub, line: Line) -> None:
    show(http, {**OWN, "status": "stale"})
    assert line("cluster", "nodes", "lab-1").err == "lab-1 is stale: this is what was last reported.\n"
    show(http, {**OWN, "agent_silent": True, "last_seen_s": time.time() - 40})
    assert line("cluster", "nodes", "lab-1").err == "Its agent is not heard: this is what it said 40 s ago.\n"
    show(http, {**OWN, "status": "waiting", "nodes": []})
    assert line("cluster", "nodes", "lab-1").err == "lab-1 is waiting: its agent has never dialled in.\n"


def test_why_there_are_no_nodes_is_told_beside_them(http: HttpStub, line: Line) -> None:
    show(http, {**OWN, "nodes": [], "problem": "Its selector names no node."})
    assert line("cluster", "nodes", "lab-1").err == "Its selector names no node.\n"


def test_nodes_of_anothers_cluster_have_no_names(http: HttpStub, line: Line) -> None:
    show(http, OTHERS)
    assert line("cluster", "nodes", "big").out.splitlines()[1].startswith("– ")


@pytest.mark.parametrize(
    ("flags", "shared", "told"),
    [((), True, "lab-1 is shared"), (("--off",), False, "lab-1 serves its own workspace from the next job on")],
)
def test_a_cluster_is_shared_and_taken_back(
    http: HttpStub, line: Line, flags: tuple[str, ...], shared: bool, told: str
) -> None:
    http.answers["PUT /api/v1/cluster/lab-1/shared"] = (200, {"ok": True, "name": "lab-1", "shared": shared})
    done = line("cluster", "share", "lab-1", *flags)
    assert (done.code, http.asked[-1][2]) == (0, {"shared": shared})
    assert told in done.out
    assert json.loads(line("cluster", "share", "lab-1", *flags, "--json").out) == {"name": "lab-1", "shared": shared}


def test_the_manifest_is_printed_for_its_owner_only(http: HttpStub, line: Line) -> None:
    show(http)
    show(http, OTHERS, "")
    assert line("cluster", "manifest", "lab-1").out == "kind: Namespace\n"
    refused = line("cluster", "manifest", "big")
    assert (refused.code, "its owner's" in refused.err) == (1, True)


def test_the_admin_says_whose_cluster_is_meant(http: HttpStub, line: Line) -> None:
    http.answers[f"GET {CLUSTERS}?nodes=no&workspace=team-b"] = (200, {"clusters": [ADMINS]})
    assert "far" in line("cluster", "list", "--workspace", "team-b").out


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        (("--manifest-only", "--no-wait"), 130, "lab-1 is registered, what was applied stays"),
        (("--kubeconfig", "/nowhere"), 130, "nothing was changed"),
    ],
)
def test_what_there_is_after_ctrl_c_is_told(
    http: HttpStub, line: Line, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], code: int, told: str
) -> None:
    run = trio.run

    def broken_off(*arguments: object) -> None:
        with suppress(ConfigError):
            run(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    attached(http)
    monkeypatch.setattr(trio, "run", broken_off)
    done = line(*JOIN, *flags)
    assert done.code == code
    assert f"Broken off: {told}" in done.err


# Joining without a context


def test_the_manifest_alone_goes_to_standard_output_and_what_happens_to_standard_error(
    http: HttpStub, line: Line
) -> None:
    attached(http)
    show(http, {**OWN, "last_seen_s": 5.0})
    done = line(*JOIN, "--manifest-only", "--selector", "a=b", "--selector", "k=in (x,y)", "--flavor", "gke")
    assert (done.code, done.out) == (0, "kind: Namespace\n")
    assert "lab-1 is registered. Its agent dials http://x." in done.err
    body = http.asked[1][2]
    assert body == {
        "name": "lab-1",
        "gpu_type": "GB200",
        "namespace": "levers9",
        "selector": "a=b,k in (x,y)",
        "flavor": "gke",
        "worker_image": "",
        "image_pull_secret": "",
        "host_network": None,
    }


@pytest.mark.slow
def test_who_applies_the_manifest_from_a_pipe_reads_its_end_while_the_agent_is_waited_for(http: HttpStub) -> None:
    attached(http)
    show(http, {**OWN, "status": "waiting"})
    line = "import sys; from levers9.cli import main; main(sys.argv[1:])"
    argv = [sys.executable, "-c", line, *JOIN, "--manifest-only", "--timeout", "60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.read() == b"kind: Namespace\n"
        assert waiting.poll() is None
        waiting.kill()


def test_a_manifest_and_a_cluster_are_not_both_printed(http: HttpStub, line: Line) -> None:
    refused = line(*JOIN, "--manifest-only", "--json")
    assert (refused.code, http.asked, "Say one of them." in refused.err) == (1, [], True)


def test_nobody_waits_who_says_so(http: HttpStub, line: Line) -> None:
    attached(http)
    done = line(*JOIN, "--manifest-only", "--no-wait", "--no-host-network", "--namespace", "gpu")
    assert (done.code, len(http.asked)) == (0, 2)
    assert isinstance(http.asked[1][2], dict)
    assert (http.asked[1][2]["host_network"], http.asked[1][2]["namespace"]) == (False, "gpu")


def test_an_agent_that_does_not_dial_in_is_waited_for_so_long_and_no_longer(http: HttpStub, line: Line) -> None:
    attached(http)
    show(http, {**OWN, "status": "waiting"})
    done = line(*JOIN, "--manifest-only", "--timeout", "0.05")
    assert done.code == 1
    assert "did not dial in within 0.05 s" in done.err
    assert "apply the manifest" in done.err


def test_a_renewed_token_waits_for_the_agent_that_has_it(http: HttpStub, line: Line) -> None:
    attached(http, last_seen_s=4.0, agent_started_at_s=1.0)
    show(http, {**OWN, "last_seen_s": 5.0, "agent_started_at_s": 1.0})
    assert line(*JOIN, "--manifest-only", "--timeout", "0.05").code == 1
    show(http, {**OWN, "last_seen_s": 5.0, "agent_started_at_s": 2.0})
    assert line(*JOIN, "--manifest-only", "--timeout", "5").code == 0


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        (("--selector", "a in b"), 1, "'a in b' selects no nodes."),
        (("--flavor", "openshift"), 2, "--flavor"),
        (("--timeout", "-3"), 1, "--timeout -3 is no time to wait."),
        (("--timeout", "nan"), 1, "--timeout nan is no time to wait."),
        (("twice",), 2, "That is more than it takes: twice."),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_registered(
    http: HttpStub, line: Line, flags: tuple[str, ...], code: int, told: str
) -> None:
    done = line(*JOIN, *flags)
    assert (done.code, http.asked) == (code, [])
    assert told in done.err


def test_without_a_kubeconfig_it_is_told_what_to_do(
    http: HttpStub, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    done = line(*JOIN)
    assert (done.code, http.asked) == (1, [])
    assert "kubeconfig" in done.err.lower()
    assert "--manifest-only" in done.err


@pytest.mark.slow
def test_an_api_server_that_is_away_is_told_by_its_address(http: HttpStub, line: Line, tmp_path: Path) -> None:
    http.answers[f"GET {CLUSTERS}?nodes=no"] = (200, {"clusters": []})
    done = line(*JOIN, "--kubeconfig", str(kubeconfig_of("https://127.0.0.1:9", tmp_path)))
    assert (done.code, [asked[0] for asked in http.asked]) == (1, ["GET"])
    assert "127.0.0.1:9" in done.err
    assert "refuses connections" in done.err


def kubeconfig_of(server: str, folder: Path) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "here",
            }
        )
    )
    return path


# Leaving


def leaving(http: HttpStub) -> None:
    show(http)
    http.answers[f"DELETE {CLUSTERS}/lab-1"] = (200, {"ok": True, "name": "lab-1"})


def test_a_cluster_is_left_and_its_objects_are_kept_where_that_is_wanted(http: HttpStub, line: Line) -> None:
    leaving(http)
    done = line("cluster", "leave", "lab-1", "--yes", "--keep-agent")
    assert (done.code, [asked[0] for asked in http.asked]) == (0, ["GET", "DELETE"])
    assert "lab-1 is detached" in done.out


def test_a_cluster_that_is_gone_once_it_is_left_was_left(http: HttpStub, line: Line) -> None:
    """Its answer was lost, or somebody else was quicker."""
    show(http)
    done = line("cluster", "leave", "lab-1", "--yes", "--keep-agent")
    assert (done.code, [asked[0] for asked in http.asked]) == (0, ["GET", "DELETE"])
    assert "lab-1 is detached" in done.out


def test_one_that_is_not_there_is_told_so_whatever_the_context(http: HttpStub, line: Line, tmp_path: Path) -> None:
    done = line("cluster", "leave", "lab-1", "--yes", "--kubeconfig", str(tmp_path / "none"))
    assert (done.code, [asked[0] for asked in http.asked]) == (1, ["GET"])


def test_nobody_leaves_without_being_asked(http: HttpStub, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    leaving(http)
    done = line("cluster", "leave", "lab-1", "--keep-agent")
    assert (done.code, [asked[0] for asked in http.asked]) == (1, ["GET"])
    assert "Say --yes." in done.err


def test_who_has_left_is_advised_nothing_that_comes_too_late(http: HttpStub, line: Line, tmp_path: Path) -> None:
    leaving(http)
    done = line("cluster", "leave", "lab-1", "--yes", "--kubeconfig", str(tmp_path / "none"))
    assert (done.code, "Its objects in the cluster are still there." in done.err) == (1, True)
    assert "--keep-agent" not in done.err


def test_one_that_never_dialled_in_is_left_though_nothing_of_it_is_there(
    http: HttpStub, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving(http)
    show(http, {**OWN, "status": "waiting"})

    async def removed(*_: object) -> int:
        await trio.lowlevel.checkpoint()
        return 0

    monkeypatch.setattr("levers9.cli.clusters._in_context", removed)
    done = line("cluster", "leave", "lab-1", "--yes")
    assert (done.code, done.err) == (0, "")
    assert "Its agent has never dialled in, and the cluster of this context has nothing of it." in done.out


def test_the_end_of_the_input_is_no_yes(http: HttpStub, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    leaving(http)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)

    def closed(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", closed)
    done = line("cluster", "leave", "lab-1", "--keep-agent")
    assert (done.code, [asked[0] for asked in http.asked]) == (1, ["GET"])
    assert done.err == "levers9: lab-1 stays attached.\n"


@pytest.mark.parametrize(("said", "methods"), [("y", ["GET", "DELETE"]), ("", ["GET"])])
def test_who_sits_before_it_is_asked(
    http: HttpStub, line: Line, monkeypatch: pytest.MonkeyPatch, said: str, methods: list[str]
) -> None:
    leaving(http)
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return said

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", answer)
    line("cluster", "leave", "lab-1", "--keep-agent")
    assert [asked[0] for asked in http.asked] == methods
    assert prompts == ["2 workers run there. Detach lab-1? [y/N] "]


@pytest.mark.slow
def test_who_cannot_reach_the_cluster_leaves_it_all_the_same_and_is_told_what_is_left_there(
    http: HttpStub, line: Line, tmp_path: Path
) -> None:
    leaving(http)
    path = kubeconfig_of("https://127.0.0.1:9", tmp_path)
    done = line("cluster", "leave", "lab-1", "--yes", "--kubeconfig", str(path))
    assert (done.code, [asked[0] for asked in http.asked]) == (1, ["GET", "DELETE"])
    assert "lab-1 is detached" in done.out
    command = [row for row in done.err.splitlines() if row.startswith("  kubectl delete deployments,jobs,")]
    assert len(command) == 1  # whole, in a line of its own, to be copied
    assert command[0].endswith("-n levers9 -l levers9.dev/cluster=cluster-1")


def test_conditions_are_understood_as_either_client_writes_them() -> None:
    assert selector_text(["a=b", "k in (x,y)", "pool=in (p,q)", "bare"]) == "a=b,k in (x,y),pool in (p,q),bare"
