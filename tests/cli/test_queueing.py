"""`levers9 queue`, `quota` and `topology`: what they ask, and what they show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..sdk.http_stub import HttpStub
from .conftest import Line

USED = {"cpu": 2.5, "memory_mib": 1536, "gpu": 4.0}
NOTHING = {"cpu": 0.0, "memory_mib": 0, "gpu": 0.0}
QUEUE = {
    "name": "gpu",
    "workspace": "lab",
    "quota": "gpu",
    "pending": 3,
    "admitted": 2,
    "used": USED,
    "share": 0.5,
}
QUOTA = {
    "name": "gpu",
    "flavor": "gb200",
    "cohort": "all",
    "pending": 3,
    "admitted": 2,
    "used": USED,
    "nominal": {"cpu": 8.0, "memory_mib": 18_432, "gpu": 8.0},
    "borrowed": {"cpu": 0.0, "memory_mib": 0, "gpu": 1.0},
}
CONFIGURED = {
    "flavors": [{"name": "gb200", "gpu_type": "GB200", "labels": {"zone": "a"}, "topology": "nvl"}],
    "cohorts": [{"name": "all", "flavors": [{"flavor": "gb200", "gpu": 2}]}],
    "quotas": [
        {
            "name": "gpu",
            "cohort": "all",
            "held": True,
            "flavors": [{"flavor": "gb200", "cpu": 8, "memory": "18Gi", "gpu": {"nominal": 8, "lending": 2}}],
        }
    ],
    "queues": [{"name": "gpu", "workspace": "lab", "quota": "gpu"}],
    "shares": [{"workspace": "lab", "weight": 2, "max_gpus": 8}],
    "priorities": [{"name": "low", "value": -5}, {"name": "urgent", "value": 100}],
    "topologies": [{"name": "nvl", "levels": ["spine", "domain"]}],
}
STANDING = {"ok": True, "queues": [QUEUE], "quotas": [QUOTA], "queueing": CONFIGURED}


@pytest.fixture
def plane(http: HttpStub) -> HttpStub:
    http.answers["GET /api/v1/queueing"] = (200, STANDING)
    for method in ("PUT", "DELETE"):
        http.answers[f"{method} /api/v1/queueing*"] = (200, STANDING)
    return http


@pytest.mark.parametrize(
    ("verb", "shown"),
    [
        (("queue", "list"), ("lab", "2.5", "1.5 GiB", "50.0%")),
        (("queue", "priority", "list"), ("urgent", "100", "-5")),
        (("quota", "list"), ("gb200", "all", "2.5 of 8", "1.5 GiB of 18 GiB", "4 of 8", "1 card", "held")),
        (("quota", "flavor", "list"), ("GB200", "zone=a", "nvl", "any")),
        (("quota", "cohort", "list"), ("all", "gpu", "gb200")),
        (("quota", "share", "list"), ("lab", "2", "8")),
        (("topology", "list"), ("nvl", "spine > domain", "gb200")),
    ],
)
def test_a_list_shows_rows_and_json(plane: HttpStub, line: Line, verb: tuple[str, ...], shown: tuple[str, ...]) -> None:
    plain, as_json = line(*verb), line(*verb, "--json")
    assert (plain.code, as_json.code) == (0, 0)
    assert [word for word in shown if word not in plain.out] == []
    assert isinstance(json.loads(as_json.out), list)


@pytest.mark.parametrize(
    ("typed", "path", "body", "told"),
    [
        (
            ("queue", "put", "fast", "--workspace", "lab", "--quota", "gpu", "--weight", "3"),
            "queues/lab/fast",
            {"name": "fast", "workspace": "lab", "quota": "gpu", "weight": 3},
            "Queue lab/fast is set.",
        ),
        (
            ("queue", "put", "gpu", "--workspace", "lab", "--weight", "2"),
            "queues/lab/gpu",
            {"name": "gpu", "workspace": "lab", "quota": "gpu", "weight": 2},
            "Queue lab/gpu is set.",
        ),
        (
            ("queue", "put", "new"),
            "queues/default/new",
            {"name": "new", "workspace": "default", "quota": "default", "weight": 1},
            "Queue default/new is set.",
        ),
        (
            ("queue", "priority", "put", "urgent", "100"),
            "priorities/urgent",
            {"name": "urgent", "value": 100},
            "Priority urgent is set.",
        ),
        (
            ("topology", "put", "nvl", "spine", "a.b/domain"),
            "topologies/nvl",
            {"name": "nvl", "levels": ["spine", "a.b/domain"]},
            "Topology nvl is set.",
        ),
        (
            ("quota", "put", "new", "--flavor", "gb200", "--gpu", "8", "--memory", "18Gi", "--gpu-borrowing", "2"),
            "quotas/new",
            {
                "name": "new",
                "flavors": [
                    {
                        "flavor": "gb200",
                        "memory": {"nominal": "18Gi"},
                        "gpu": {"nominal": "8", "borrowing": "2"},
                    }
                ],
            },
            "Quota new is set.",
        ),
        (
            ("quota", "put", "gpu", "--gpu", "16", "--cpu", "none", "--gpu-lending", "none", "--reclaim", "any"),
            "quotas/gpu",
            {
                "name": "gpu",
                "cohort": "all",
                "held": True,
                "reclaim": "any",
                "flavors": [{"flavor": "gb200", "memory": {"nominal": "18Gi"}, "gpu": {"nominal": "16"}}],
            },
            "Quota gpu is set.",
        ),
        (
            ("quota", "put", "gpu", "--without", "gb200", "--cohort", ""),
            "quotas/gpu",
            {"name": "gpu", "held": True},
            "Quota gpu is set.",
        ),
        (
            ("quota", "release", "gpu"),
            "quotas/gpu",
            {k: v for k, v in CONFIGURED["quotas"][0].items() if k != "held"},  # type: ignore[attr-defined]
            "Quota gpu is released.",
        ),
        (("quota", "hold", "gpu"), "quotas/gpu", CONFIGURED["quotas"][0], "Quota gpu is held."),
        (
            ("quota", "flavor", "put", "spot", "--pool", "cheap", "--label", "a=b", "--label", "c=d=e"),
            "flavors/spot",
            {"name": "spot", "pool": "cheap", "gpu_type": "", "labels": {"a": "b", "c": "d=e"}, "topology": ""},
            "Flavor spot is set.",
        ),
        (
            ("quota", "cohort", "put", "all", "--parent", "root", "--gpu", "3"),
            "cohorts/all",
            {"name": "all", "parent": "root", "flavors": [{"flavor": "gb200", "gpu": {"nominal": "3"}}]},
            "Cohort all is set.",
        ),
        (
            ("quota", "share", "put", "lab", "--weight", "2", "--max-gpus", "8", "--max-cpu", "1.5"),
            "shares/lab",
            {"workspace": "lab", "weight": 2, "max_cpu": "1.5", "max_gpus": 8},
            "Share of workspace lab is set.",
        ),
    ],
)
def test_what_is_put_is_what_was_there_with_what_was_given(
    plane: HttpStub, line: Line, typed: tuple[str, ...], path: str, body: object, told: str
) -> None:
    done = line(*typed)
    assert (done.code, done.out, done.err) == (0, f"{told}\n", "")
    assert plane.asked[-1] == ("PUT", f"/api/v1/queueing/{path}", body)
    assert json.loads(line(*typed, "--json").out)


@pytest.mark.parametrize(
    ("typed", "path", "told"),
    [
        (("queue", "delete", "fast", "--workspace", "lab"), "queues/lab/fast", "Queue lab/fast is deleted."),
        (("queue", "priority", "delete", "low"), "priorities/low", "Priority low is deleted."),
        (("quota", "delete", "gpu"), "quotas/gpu", "Quota gpu is deleted."),
        (("quota", "flavor", "delete", "gb200"), "flavors/gb200", "Flavor gb200 is deleted."),
        (("quota", "cohort", "delete", "all"), "cohorts/all", "Cohort all is deleted."),
        (("quota", "share", "delete", "lab"), "shares/lab", "Share of workspace lab is deleted."),
        (("topology", "delete", "nvl"), "topologies/nvl", "Topology nvl is deleted."),
    ],
)
def test_a_thing_is_deleted_by_its_name(
    plane: HttpStub, line: Line, typed: tuple[str, ...], path: str, told: str
) -> None:
    assert line(*typed).out == f"{told}\n"
    assert plane.asked[-1] == ("DELETE", f"/api/v1/queueing/{path}", None)
    assert json.loads(line(*typed, "--json").out) == {"deleted": path.partition("/")[2]}


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("quota", "put", "new", "--gpu", "8"), "Of which flavor are these limits? Name it with --flavor."),
        (("quota", "hold", "nothing"), "There is no quota 'nothing'. Quotas: gpu."),
        (("quota", "flavor", "put", "x", "--label", "wrong"), "'wrong' is no label. Write KEY=VALUE."),
        (("topology", "put", "nvl"), "No level was named. Give node labels, from coarse to fine."),
        (("quota", "apply", "/nowhere.toml"), "/nowhere.toml cannot be read"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_changed(
    plane: HttpStub, line: Line, typed: tuple[str, ...], told: str
) -> None:
    done = line(*typed)
    assert done.code == 1
    assert told in done.err
    assert [asked for asked in plane.asked if asked[0] != "GET"] == []


def test_a_file_is_applied_as_a_whole(plane: HttpStub, line: Line, tmp_path: Path) -> None:
    file = tmp_path / "queues.toml"
    file.write_text(
        '[[queueing.topologies]]\nname = "nvl"\nlevels = ["rack"]\n'
        '[[queueing.quotas]]\nname = "gpu"\nflavors = [{ flavor = "gb200", gpu = 8 }]\n'
    )
    assert line("quota", "apply", str(file)).out == f"{file} is applied.\n"
    method, path, body = plane.asked[-1]
    assert (method, path) == ("PUT", "/api/v1/queueing")
    assert isinstance(body, dict)
    assert (body["topologies"], body["quotas"][0]["flavors"]) == (
        [{"name": "nvl", "levels": ["rack"]}],
        [{"flavor": "gb200", "gpu": 8}],
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("queues = [", "is not TOML"),
        ("[queueing]\ncolour = 1\n", "`colour`"),
        ('[[queueing.quotas]]\nname = "x"\nsize = 1\n', "`size` - at `$.quotas[0]`"),
    ],
)
def test_a_file_that_is_wrong_is_told_with_what_is(
    plane: HttpStub, line: Line, tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "queues.toml"
    file.write_text(text)
    done = line("quota", "apply", str(file))
    assert done.code == 1
    assert told in done.err


def test_who_is_not_the_admin_sees_what_is_used_and_no_more(http: HttpStub, line: Line) -> None:
    quota = {**QUOTA, "cohort": None, "nominal": None, "borrowed": None}
    http.answers["GET /api/v1/queueing"] = (200, {"ok": True, "queues": [QUEUE], "quotas": [quota], "queueing": None})
    assert "2.5 of" not in line("quota", "list").out
    assert "2.5" in line("quota", "list").out
    done = line("topology", "list")
    assert (done.code, done.out) == (1, "")
    assert "Only the platform's admin sees how queues are configured." in done.err


def test_whether_a_quota_is_held_is_in_its_json_as_well(plane: HttpStub, line: Line) -> None:
    assert [one["held"] for one in json.loads(line("quota", "list", "--json").out)] == [True]


def test_a_share_has_its_weight_in_json_where_it_is_one(plane: HttpStub, line: Line) -> None:
    shares = [{"workspace": "lab", "max_gpus": 8}]
    plane.answers["GET /api/v1/queueing"] = (200, {**STANDING, "queueing": {**CONFIGURED, "shares": shares}})
    (share,) = json.loads(line("quota", "share", "list", "--json").out)
    assert (share["weight"], share["max_gpus"], share["max_containers"]) == (1, 8, None)


def test_the_default_quota_has_to_be_set_before_it_is_held(plane: HttpStub, line: Line) -> None:
    assert "Make it with `levers9 quota put default` first." in line("quota", "hold", "default").err
    assert "There is no quota 'x'. Quotas: gpu." in line("quota", "hold", "x").err
