"""`levers9 trace`: the scheduler's journal, recorded, run again, compared and explained."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import cyclopts
import msgspec

from ..errors import INVALID, NOT_FOUND, Refused
from ..model.sentences import plural
from .output import Json, duration, print_json, print_table
from .plane import plane

if TYPE_CHECKING:
    from ..actors.scheduler.core import Core
    from ..actors.scheduler.events import Decision
    from ..actors.scheduler.explaining import Explanation
    from ..actors.scheduler.journal import Segment
    from ..actors.scheduler.replay import Comparison, Difference

app = cyclopts.App(name="trace", help="The scheduler's journal: record, replay, diff, explain.")

File = Annotated[Path, cyclopts.Parameter(name="FILE", help="A recorded journal.")]
DIFFERENT: Final = 1


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    file: str
    bytes: int
    segments: int
    events: int


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a replay; `first` is the first difference, None where all was equal."""

    segments: int
    events: int
    decisions: int
    dropped: int
    took_s: float
    first: Difference | None = None


@app.command
def record(file: File, /, *, segments: int = 0, json: Json = False) -> None:
    """Fetch the journal of the control plane that runs. The file tells of every workspace: keep it to yourself.

    Parameters
    ----------
    segments
        Only the newest so many; each can be replayed alone.
    """
    from ..actors.scheduler.journal import read_journal

    rest = plane()
    try:
        data = rest.call("GET", f"/api/v1/scheduler/journal?segments={segments}")
    finally:
        rest.close()
    read = list(read_journal(data))
    try:
        file.write_bytes(data)
    except OSError as error:
        raise Refused(f"{file} cannot be written: {error.strerror}.", fix="Name another file.") from error
    events = sum(len(segment.records) for segment in read)
    if json:
        print_json(Recorded(file=str(file), bytes=len(data), segments=len(read), events=events))
        return
    print(f"{file} has {len(data):,} bytes: {_counted(len(read), 'segment')} with {events:,} events.")


@app.command
def replay(file: File, /, *, json: Json = False) -> int:
    """Run a journal again, and say whether every decision comes out the same. Exits with 1 where one does not."""
    began = time.perf_counter()
    segments, events, decisions, dropped = 0, 0, 0, 0
    first: Difference | None = None
    for segment in _segments(file):
        segments += 1
        first = first or _first_difference(segment)
        events += len(segment.records)
        decisions += sum(len(step.decisions) for step in segment.records)
        dropped += segment.dropped
        if first is not None:
            break
    done = Replayed(
        segments=segments,
        events=events,
        decisions=decisions,
        dropped=dropped,
        took_s=time.perf_counter() - began,
        first=first,
    )
    if json:
        print_json(done)
    else:
        _print_replayed(done)
    return DIFFERENT if first is not None else 0


@app.command
def diff(file: File, first: str, second: str, /, *, segment: int = 0, json: Json = False) -> None:
    """Compare two placement policies on the events of one segment.

    Parameters
    ----------
    first
        A policy, such as best_fit; a name that is none is refused with those that are.
    second
        Another one.
    segment
        Counted from 1; the newest where it is left out.
    """
    from ..actors.scheduler.replay import diff as compare

    whole = _segment(file, segment)
    found = compare(whole, lambda: _new_core(whole), _policy(first), _policy(second))
    if json:
        print_json(found)
    else:
        _print_comparison(found)


@app.command
def explain(file: File, /, *, at: int = 0, segment: int = 0, json: Json = False) -> None:
    """Tell one step: what the scheduler was told, what stood before, what it decided and why.

    Parameters
    ----------
    at
        The step, counted from 1 in its segment; the last one that decided something where it is left out.
    segment
        Counted from 1; the newest where it is left out.
    """
    from ..actors.scheduler.explaining import explain as explained
    from ..model.sentences import sentence

    chosen = _segment(file, segment)
    told = explained(chosen, at or _last_decision(chosen), sentence)
    if json:
        print_json(told)
    else:
        _print_explanation(told)


# The file


def _segments(file: Path) -> Iterator[Segment]:
    from ..actors.scheduler.journal import read_journal

    try:
        data = file.read_bytes()
    except OSError as error:
        fix = "`levers9 trace record` makes one."
        raise Refused(f"{file} cannot be read: {error.strerror}.", fix=fix, code=NOT_FOUND) from error
    return read_journal(data)


def _segment(file: Path, number: int) -> Segment:
    found = list(_segments(file))
    if number < 0 or number > len(found):
        raise Refused(f"{file} has no segment {number}.", f"It has segments 1 to {len(found)}.", code=NOT_FOUND)
    return found[number - 1]


def _last_decision(segment: Segment) -> int:
    decided = [number for number, record in enumerate(segment.records, start=1) if record.decisions]
    return decided[-1] if decided else len(segment.records)


def _new_core(segment: Segment) -> Core:
    """An empty core; pools that name no policy have the one that was the default when the segment was written."""
    from ..actors.scheduler.core import Core
    from ..actors.scheduler.placement import new_placement

    return Core(lambda name: new_placement(_policy(name or segment.header.placement)))


def _policy(name: str) -> str:
    from ..actors.scheduler.placement import PLACEMENTS

    if name not in PLACEMENTS:
        raise Refused(f"There is no placement policy {name!r}.", f"There are: {', '.join(PLACEMENTS)}.", code=INVALID)
    return name


def _first_difference(segment: Segment) -> Difference | None:
    from ..actors.scheduler.replay import replay as replayed

    return next(replayed(segment, _new_core(segment)), None)


# What is shown


def _print_replayed(done: Replayed) -> None:
    gap = f" {done.dropped:,} more events were never written." if done.dropped else ""
    if done.first is None:
        print(f"replayed {done.events:,} events, {done.decisions:,} decisions, all equal ({done.took_s:.1f} s).{gap}")
        return
    _print_difference(done.first, f"Segment {done.segments}, step")


def _print_difference(found: Difference, where: str) -> None:
    from ..actors.scheduler.telling import tell_event

    print(f"{where} {found.number} is different: {tell_event(found.event)}")
    for heading, decisions in (("before", found.before), ("after", found.after)):
        for line in _told(decisions, found.now_s) or ["nothing."]:
            print(f"  {heading}: {line}")


def _told(decisions: tuple[Decision, ...], now_s: float) -> list[str]:
    from ..actors.scheduler.telling import tell
    from ..model.sentences import sentence

    return [line for decision in decisions for line in tell(decision, sentence, now_s)]


def _print_comparison(found: Comparison) -> None:
    sides = (found.first, found.second)
    rows = [
        ("placed", *(f"{side.placed:,}" for side in sides)),
        ("preempted", *(f"{side.preempted:,}" for side in sides)),
        ("cards held at the end", *(f"{side.gpu_milli / 1000:,.1f}" for side in sides)),
        ("cards held, mean over time", *(f"{side.mean_gpu_milli / 1000:,.1f}" for side in sides)),
        ("CPUs held at the end", *(f"{side.cpu_milli / 1000:,.1f}" for side in sides)),
    ]
    for size in sorted({line.size for side in sides for line in side.waiting}):
        counts = ({line.size: line.requests for line in side.waiting}.get(size, 0) for side in sides)
        rows.append((f"waiting at the end: {size}", *(f"{count:,}" for count in counts)))
    print_table(("", *(side.placement.upper() for side in sides)), rows, "")
    print(f"{found.different:,} of {found.steps:,} steps are decided differently.")
    if found.differences:
        _print_difference(found.differences[0], "The first: step")


def _print_explanation(told: Explanation) -> None:
    from ..actors.scheduler.telling import tell_event

    print(f"Step {told.number}: {tell_event(told.event)}")
    print(f"\n{_counted(told.nodes_open, 'open node')}:")
    nodes = ((one.node, one.pool, one.standing, one.free, str(one.rooms)) for one in told.nodes)
    print_table(("NODE", "POOL", "STATE", "FREE", "ROOMS"), nodes, "There were no nodes.")
    print(f"\n{_counted(told.waiting, 'request')} waited:")
    queue = ((str(one.place), one.request_id, one.workspace, one.queue, one.priority, one.asks, duration(one.waited_s))
             for one in told.queue)  # fmt: skip
    print_table(("PLACE", "REQUEST", "WORKSPACE", "QUEUE", "PRIORITY", "ASKS", "WAITED"), queue, "Nobody waited.")
    print("\nWorkspaces held:")
    shares = ((one.workspace, one.holds, f"{one.dominant_milli / 10:.1f} %") for one in told.shares)
    print_table(("WORKSPACE", "HOLDS", "SHARE"), shares, "Nobody held anything.")
    print("\nDecided:")
    for line in told.sentences or ("nothing.",):
        print(f"- {line}")
    sys.stdout.flush()


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {plural(noun, count)}"
