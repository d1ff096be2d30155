"""`levers9 trace` on real files: a journal of the real core is fetched, run again, compared and explained."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from levers9.actors.scheduler.capacity import Standing
from levers9.actors.scheduler.core import Core
from levers9.actors.scheduler.events import Ended, Event, NodeSet, Planned, PoolSet, Request, Requested
from levers9.actors.scheduler.journal import Header, Record, Segment, encode_segment
from levers9.actors.scheduler.placement import new_placement
from levers9.model.resources import Capacity, Shape

from ..sdk.http_stub import HttpStub
from .conftest import Line

SIZES = {"large": 8, "small": 2}
SHAPE = Shape(cpu_milli=1000, memory_mib=1024, gpu_count=2)


def node(name: str, cards: int) -> NodeSet:
    capacity = Capacity(cpu_milli=64_000, memory_mib=65_536, gpu_count=cards, gpu_type="A100")
    return NodeSet(node_id=name, pool="p", capacity=capacity, standing=Standing.OPEN)


def requested(*names: str) -> Requested:
    requests = [
        Request(
            request_id=name, group="f", label="app/f", workspace="w", members=(name,), shape=SHAPE, requested_at_s=90.0
        )
        for name in names
    ]
    return Requested(requests=tuple(requests))


def journal(number: int = 1) -> Segment:
    """One node of two cards and one of eight; six requests for two cards each, of which the last must wait."""
    core = Core(lambda name: new_placement(name or "best_fit"))  # as the header says
    core.handle(PoolSet(pool="p"), 100.0)
    for name, cards in SIZES.items():
        core.handle(node(name, cards), 100.0)
    events: list[Event] = [requested("a"), Planned(), requested("b", "c", "d", "e", "f"), Planned(), Ended(member="a")]
    opening, records = core.snapshot(), []
    for at_s, event in enumerate([*events, Planned()], start=101):
        records.append(Record(float(at_s), event, core.handle(event, float(at_s))))
    header = Header(number, 3, "0.1", "best_fit")
    return Segment(header=header, opened_at_s=100.0, opening=opening, records=tuple(records), closed=True)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "recorded"
    path.write_bytes(encode_segment(journal()) + encode_segment(journal(2)))
    return str(path)


def test_record_writes_what_the_control_plane_has(http: HttpStub, line: Line, tmp_path: Path) -> None:
    path = tmp_path / "recorded"
    http.answers["GET /api/v1/scheduler/journal[?]segments=2"] = (200, encode_segment(journal()))
    done = line("trace", "record", str(path), "--segments", "2")
    assert (done.code, path.read_bytes()) == (0, encode_segment(journal()))
    assert "1 segment with 6 events" in done.out


def test_record_keeps_nothing_that_is_no_journal(http: HttpStub, line: Line, tmp_path: Path) -> None:
    http.answers["GET /api/v1/scheduler/journal*"] = (200, b"<html>")
    done = line("trace", "record", str(tmp_path / "recorded"))
    assert (done.code, list(tmp_path.glob("recorded"))) == (1, [])
    assert "does not begin as a journal does" in done.err


def test_record_says_whom_to_ask_where_this_replica_does_not_lead(http: HttpStub, line: Line, tmp_path: Path) -> None:
    refused = {"ok": False, "code": "not_leader", "what": "This replica does not lead.", "fix": "Ask that one."}
    http.answers["GET /api/v1/scheduler/journal*"] = (503, refused)
    done = line("trace", "record", str(tmp_path / "recorded"))
    assert (done.code, done.err) == (1, "levers9: This replica does not lead. Ask that one.\n")


def test_record_says_why_it_cannot_write(http: HttpStub, line: Line, tmp_path: Path) -> None:
    http.answers["GET /api/v1/scheduler/journal*"] = (200, encode_segment(journal()))
    done = line("trace", "record", str(tmp_path))
    assert (done.code, "cannot be written: Is a directory" in done.err) == (1, True)


def test_replay_of_our_own_journal_is_equal(line: Line, file: str) -> None:
    done = line("trace", "replay", file)
    assert done.code == 0
    assert done.out.startswith("replayed 12 events, ")
    assert "all equal" in done.out
    told = json.loads(line("trace", "replay", file, "--json").out)
    assert (told["segments"], told["events"], told["first"]) == (2, 12, None)


def test_replay_tells_the_first_difference_and_fails(line: Line, tmp_path: Path) -> None:
    segment = journal()
    wrong = msgspec.structs.replace(segment.records[1], decisions=())
    records = (segment.records[0], wrong, *segment.records[2:])
    path = tmp_path / "recorded"
    path.write_bytes(encode_segment(msgspec.structs.replace(segment, records=records, closed=True, dropped=4)))
    done = line("trace", "replay", str(path))
    assert done.code == 1
    assert done.out.splitlines() == [
        "Segment 1, step 2 is different: Planned: steps=256.",
        "  before: nothing.",
        "  after: a gets room: small (cards 0, 1).",
    ]
    assert json.loads(line("trace", "replay", str(path), "--json").out)["first"]["number"] == 2


def test_replay_says_what_was_never_written(line: Line, tmp_path: Path) -> None:
    path = tmp_path / "recorded"
    path.write_bytes(encode_segment(msgspec.structs.replace(journal(), dropped=4)))
    assert "4 more events were never written" in line("trace", "replay", str(path)).out


def test_diff_compares_two_policies(line: Line, file: str) -> None:
    done = line("trace", "diff", file, "best_fit", "clustering")
    assert done.code == 0
    assert "BEST_FIT" in done.out
    assert "cards held at the end" in done.out
    assert "steps are decided differently" in done.out
    told = json.loads(line("trace", "diff", file, "best_fit", "best_fit", "--segment", "1", "--json").out)
    assert (told["steps"], told["different"], told["first"]["gpu_milli"]) == (6, 0, 10_000)


def test_a_policy_that_there_is_not_is_refused_with_those_that_are(line: Line, file: str) -> None:
    done = line("trace", "diff", file, "best_fit", "worst_fit")
    assert done.code == 1
    assert "There are: best_fit, fgd" in done.err


def test_explain_tells_a_step_in_words(line: Line, file: str) -> None:
    done = line("trace", "explain", file, "--at", "4")
    assert done.code == 0
    shown = [
        "Step 4: Planned: steps=256.",
        "2 open nodes:",
        "5 requests waited:",
        "f waits. No worker has room for it: 2",
        "b gets room: large (cards 0, 1).",
    ]
    assert [words for words in shown if words not in done.out] == []
    told = json.loads(line("trace", "explain", file, "--at", "4", "--json").out)
    assert (told["number"], told["waiting"], len(told["queue"])) == (4, 5, 5)


def test_without_a_step_explain_tells_the_last_one_that_decided_something(line: Line, file: str) -> None:
    told = json.loads(line("trace", "explain", file, "--json").out)
    later = [
        json.loads(line("trace", "explain", file, "--at", str(at), "--json").out) for at in range(told["number"] + 1, 7)
    ]
    assert told["decisions"]
    assert not any(step["decisions"] for step in later)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--at", "7"), "The journal has no step 7. It has steps 1 to 6."),
        (("--at", "1", "--segment", "3"), "has no segment 3. It has segments 1 to 2."),
    ],
)
def test_a_step_that_is_not_there_is_refused(line: Line, file: str, arguments: tuple[str, ...], said: str) -> None:
    done = line("trace", "explain", file, *arguments)
    assert (done.code, said in done.err) == (1, True)


def test_a_file_that_is_not_there_is_refused(line: Line, tmp_path: Path) -> None:
    done = line("trace", "replay", str(tmp_path / "nothing"))
    assert (done.code, "cannot be read: No such file" in done.err) == (1, True)
