"""The same events give the same decisions: from any point on, through the journal's bytes, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levers9.actors.scheduler.events import Planned
from levers9.actors.scheduler.journal import Header, Record, Segment, encode_segment, read_journal
from levers9.actors.scheduler.replay import replay

from .soup import Draw, Soup, new_core

HERE = Path(__file__).resolve().parent
DEADLINE_S = 120


def from_bytes(choices: bytes) -> Draw:
    """Choices out of one draw of Hypothesis, which is quicker than many; the first option once they have run out."""
    left = iter(choices)
    return lambda below: next(left, 0) % below


@pytest.mark.slow
@settings(settings.get_profile("property"))
@given(choices=st.binary(min_size=40, max_size=300), before=st.integers(0, 30), after=st.integers(1, 20))
def test_a_segment_that_begins_anywhere_is_replayed_exactly(choices: bytes, before: int, after: int) -> None:
    soup, core = Soup(from_bytes(choices)), new_core()
    for event in soup.opening():
        core.handle(event, soup.now_s)
    for _ in range(before):
        core.handle(soup.event(), soup.now_s)
    opened_at_s, opening = core.now_s, core.snapshot()
    records: list[Record] = []
    for _ in range(after):
        event = soup.event()
        records.append(Record(soup.now_s, event, core.handle(event, soup.now_s)))
    records.append(Record(soup.now_s, Planned(), core.handle(Planned(), soup.now_s)))
    segment = Segment(header=Header(1), opened_at_s=opened_at_s, opening=opening, records=tuple(records))
    (read,) = read_journal(encode_segment(segment))
    assert list(replay(read, new_core())) == []


@pytest.mark.slow
def test_another_seed_of_hashes_decides_nothing_otherwise() -> None:
    digests = set()
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, str(HERE / "soup.py")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        digests.add(done.stdout)
    assert len(digests) == 1
