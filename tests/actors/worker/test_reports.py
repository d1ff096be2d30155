"""What a worker says of itself."""

from __future__ import annotations

from levers9.actors.worker.reports import Identity, whole_truth
from levers9.model.resources import Capacity


def test_it_says_why_it_has_fewer_cards_than_were_ordered() -> None:
    none = Capacity(cpu_milli=1000, memory_mib=1000)
    why = "the driver shows 8 cards, and nothing says which 4 of them are its own"
    report = whole_truth(Identity(worker_id="w", pool="p", epoch=7, capacity=none, lacks=why), ())
    assert (report.capacity, report.lacks) == (none, why)
