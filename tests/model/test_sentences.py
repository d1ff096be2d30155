"""Each kind of hold in words: how many more of what, where, who has it, and what to do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levers9.model.reasons import Excluded, Holder, HoldKind, Lack, Reason
from levers9.model.sentences import sentence

DOMAIN = "accelerator.topograph.run/domain"
CARDS = (Lack("GB200", 8000),)
NOON_S = 1_800_014_400.0 - 1_800_014_400.0 % 86_400 + 43_200  # 12:00 UTC of some day
CORDONED = Excluded("sched-worker2", "cordoned")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            Reason(kind=HoldKind.ROOM, lacks=(Lack("GB200", 2000), Lack("memory", 3072)), pool="lab"),
            "No worker has room for it in pool lab: 2 more GB200 and 3 GiB more memory needed.",
        ),
        (
            Reason(kind=HoldKind.ROOM, lacks=(Lack("cpu", 500),), excluded=(CORDONED,)),
            "No worker has room for it: 0.5 more CPUs needed; sched-worker2 is cordoned.",
        ),
        (Reason(kind=HoldKind.ROOM), "No worker has room for it."),
        (
            Reason(kind=HoldKind.ROOM, lacks=(Lack("GB200", 2000),), pool="lab", free=4000, most=2000),
            "No one node has room for it in pool lab: 4 GB200 are free, at most 2 on one node; "
            "2 more GB200 needed there.",
        ),
        (
            Reason(kind=HoldKind.ROOM, lacks=(Lack("gpu", 500), Lack("cpu", 1000)), free=1000, most=500),
            "No one node has room for it: 1 card is free, at most 0.5 on one node; "
            "0.5 more cards and 1 more CPU needed there.",
        ),
        (
            Reason(kind=HoldKind.ROOM, lacks=(Lack("GB200", 1000),), free=2000, most=1000, excluded=(CORDONED,)),
            "No one node has room for it: 2 GB200 are free, at most 1 on one node; 1 more GB200 needed there; "
            "sched-worker2 is cordoned.",
        ),
        (
            Reason(kind=HoldKind.ROOM, excluded=(Excluded("n1", "cards unknown"), Excluded("n2", "cards unknown"))),
            "No worker has room for it; the last worker on n1 and n2 could not tell which cards are its own.",
        ),
        (Reason(kind=HoldKind.ROOM, fits=3, wanted=8), "Only 3 of 8 have room."),
        (Reason(kind=HoldKind.ROOM, fits=1, wanted=2), "Only 1 of 2 has room."),
        (
            Reason(kind=HoldKind.ROOM, wanted=8, lacks=(Lack("gpu", 1000),)),
            "None of 8 has room: 1 more card needed.",
        ),
        (Reason(kind=HoldKind.STARTING, pool="lab"), "A worker with room for it is starting in pool lab."),
        (
            Reason(kind=HoldKind.QUOTA, quota="gpu", flavor="gb200", lacks=CARDS),
            "8 more GB200 needed in quota gpu.",
        ),
        (
            Reason(kind=HoldKind.QUOTA, quota="gpu", flavor="spot", lacks=(Lack("gpu", 500), Lack("cpu", 1000))),
            "0.5 more cards and 1 more CPU needed in quota gpu, flavor spot.",
        ),
        (Reason(kind=HoldKind.QUOTA, quota="gpu"), "Nothing is left for it in quota gpu."),
        (
            Reason(kind=HoldKind.CONCURRENCY, wanted=4),
            "Its workspace may have 4 containers at a time, and that many run.",
        ),
        (
            Reason(kind=HoldKind.CONCURRENCY, wanted=8000, lacks=(Lack("gpu", 2000),)),
            "Its workspace may have 8 cards at a time: 2 more cards needed.",
        ),
        (
            Reason(kind=HoldKind.CONCURRENCY, wanted=2048, lacks=(Lack("memory", 512),)),
            "Its workspace may have 2 GiB of memory at a time: 512 MiB more memory needed.",
        ),
        (
            Reason(kind=HoldKind.TOPOLOGY, topology="nvl", level=DOMAIN, fits=4, wanted=8, excluded=(CORDONED,)),
            f"Topology nvl: only 4 of 8 fit in one {DOMAIN}; sched-worker2 is cordoned.",
        ),
        (
            Reason(kind=HoldKind.TOPOLOGY, level="node", wanted=8, lacks=(Lack("nodes", 1),)),
            "None of 8 fits in one node; 1 more node needed there.",
        ),
        (
            Reason(kind=HoldKind.TOPOLOGY, level="rack", wanted=2, detail="No node has the level 'rack'"),
            "No node has the level 'rack'.",
        ),
        (
            Reason(kind=HoldKind.GANG, pool="lab", fits=3, wanted=8),
            "Its workers are starting in pool lab: 3 of 8 containers have theirs.",
        ),
        (
            Reason(kind=HoldKind.GANG, pool="lab", detail="its workers did not all come in time; the next try is soon"),
            "Pool lab: its workers did not all come in time; the next try is soon.",
        ),
        (
            Reason(kind=HoldKind.RESERVED, pool="lab"),
            "The room that it needs is kept for a gang that waits longer in pool lab.",
        ),
        (
            Reason(kind=HoldKind.GUARD, pool="lab", detail="the provisioning guard holds it: 20 workers are pending."),
            "Pool lab: the provisioning guard holds it: 20 workers are pending.",
        ),
        (
            Reason(kind=HoldKind.GUARD),
            "The provisioning guard holds the order of a worker; it goes out by itself.",
        ),
        (
            Reason(kind=HoldKind.MAXIMUM, pool="lab", wanted=2),
            "Pool lab has all the workers that it may have. Wait, or raise its `max_workers`.",
        ),
        (
            Reason(kind=HoldKind.MAXIMUM, pool="lab", detail="it is at its maximum of 2 workers."),
            "Pool lab: it is at its maximum of 2 workers. Wait, or raise its `max_workers`.",
        ),
        (
            Reason(kind=HoldKind.MAXIMUM, pool="lab", detail="none of its 2 nodes can take another worker."),
            "Pool lab: none of its 2 nodes can take another worker.",
        ),
        (
            Reason(kind=HoldKind.ROOM, excluded=(Excluded("n1", "unknown"), Excluded("n2", "unknown"))),
            "No worker has room for it; nothing is heard from what runs on n1 and n2.",
        ),
        (
            Reason(kind=HoldKind.BACK_OFF, pool="lab", detail="its last 3 workers ended early."),
            "Pool lab: its last 3 workers ended early. `levers9 worker list --gone` says why they ended.",
        ),
        (
            Reason(kind=HoldKind.BACK_OFF, pool="lab"),
            "The last workers of pool lab ended early; it waits a moment. "
            "`levers9 worker list --gone` says why they ended.",
        ),
        (Reason(kind=HoldKind.PREEMPTING), "Others are stopping to make room for it."),
        (
            Reason(kind=HoldKind.QUEUE_HELD, quota="gpu"),
            "Quota gpu is held: it admits nothing new until `levers9 quota release gpu`.",
        ),
        (
            Reason(kind=HoldKind.QUEUE_HELD, detail="The workspace has no queue gone."),
            "The workspace has no queue gone. Make one with `levers9 queue put`, or stop the call.",
        ),
        (
            Reason(kind=HoldKind.LEADER),
            "A new leader waits for its workers to report before it places anything.",
        ),
        (
            Reason(kind=HoldKind.NO_POOL),
            "No pool that would take it is there. Add one with `levers9 pool create` or "
            "`levers9 cluster join`, or wait until it is back.",
        ),
        (
            Reason(kind=HoldKind.NO_POOL, pool="lab"),
            "Pool lab is not there. Add one with `levers9 pool create` or "
            "`levers9 cluster join`, or wait until it is back.",
        ),
    ],
)
def test_a_hold_is_told_in_words(reason: Reason, words: str) -> None:
    assert sentence(reason, NOON_S) == words


@pytest.mark.parametrize(
    ("holders", "words"),
    [
        (
            (Holder("train", 2, 8000, NOON_S + 7500),),
            "train (2 containers) holds 8 GB200; the first ends by 14:05 UTC at the latest.",
        ),
        (
            (Holder("train", 1, 500, NOON_S + 3 * 86_400), Holder("", 3, 6000)),
            "train (1 container) holds 0.5 GB200; other workspaces hold 6 GB200; "
            "the first ends by {day} 12:00 UTC at the latest.",
        ),
        ((Holder("", 6, 6000),), "Other workspaces hold 6 GB200."),
        ((Holder("train", 1),), "train runs 1 container."),
        ((Holder("", 2, 0, NOON_S - 5),), "Other workspaces run 2 containers; the first ends any moment."),
        ((Holder("train", 1, 0, NOON_S + 60),), "train runs 1 container; it ends by 12:01 UTC at the latest."),
    ],
)
def test_who_has_it_is_told_with_what_is_free_first(holders: tuple[Holder, ...], words: str) -> None:
    told = sentence(Reason(kind=HoldKind.QUOTA, quota="gpu", lacks=CARDS, holders=holders), NOON_S)
    day = "2027-01-18"
    assert told == f"8 more GB200 needed in quota gpu. {words.format(day=day)}"


def test_cards_of_any_type_are_cards() -> None:
    holders = (Holder("train", 1, 1000),)
    told = sentence(Reason(kind=HoldKind.ROOM, lacks=(Lack("cpu", 1000),), holders=holders))
    assert told == "No worker has room for it: 1 more CPU needed. train (1 container) holds 1 card."


def test_who_goes_before_is_told_last() -> None:
    for ahead, words in ((1, "1 request of its queue goes before it."), (7, "7 requests of its queue go before it.")):
        told = sentence(Reason(kind=HoldKind.STARTING, ahead=ahead))
        assert told == f"A worker with room for it is starting. {words}"


def test_many_nodes_are_told_by_what_is_the_matter_with_them_and_cut() -> None:
    excluded = tuple(Excluded(f"n{number}", "cordoned" if number < 7 else "silent") for number in range(9))
    told = sentence(Reason(kind=HoldKind.ROOM, excluded=excluded))
    assert told == ("No worker has room for it; n0, n1, n2, n3 and 3 more are cordoned and n7 and n8 are silent.")


@given(
    kind=st.sampled_from(HoldKind),
    lacks=st.lists(st.builds(Lack, st.sampled_from(["cpu", "memory", "nodes", "gpu", "GB200"]), st.integers(0, 9999))),
    numbers=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    names=st.lists(st.sampled_from(["", "lab"]), min_size=3, max_size=3),
    holders=st.lists(st.builds(Holder, st.sampled_from(["", "train"]), st.integers(1, 3), st.integers(0, 9000))),
    detail=st.sampled_from(["", "it is so"]),
)
def test_every_hold_has_whole_sentences_without_holes(
    kind: HoldKind,
    lacks: list[Lack],
    numbers: tuple[int, int, int],
    names: list[str],
    holders: list[Holder],
    detail: str,
) -> None:
    flavor, topology, level = names
    fits, wanted, ahead = numbers
    told = sentence(
        Reason(
            kind=kind,
            lacks=tuple(lacks),
            pool="lab",
            quota="gpu",
            flavor=flavor,
            topology=topology,
            level=level,
            fits=fits,
            wanted=wanted,
            ahead=ahead,
            holders=tuple(holders),
            detail=detail,
        )
    )
    assert told.endswith(".")
    assert [hole for hole in ("  ", " .", " ,", " ;", "..") if hole in told] == []
