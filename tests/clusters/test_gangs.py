"""Gangs on the nodes of an attached cluster: all ranks at once, near each other, or none, with what they wait for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError

import msgspec
import pytest
from levers9_test_lab import RunningLab

from levers9.kube.kinds import NODES

from ..faults.controlplane import wait_until
from .attached import WITHIN_S, Attached, Call, Calls

pytestmark = pytest.mark.slow
DOMAIN = "accelerator.topograph.run/domain"
AT_MOST_S = 30.0  # 10 are promised once what held a gang is over; a machine may have much else to do


class Rank(msgspec.Struct, array_like=True):
    """What a rank said of itself."""

    rank: int
    world_size: int
    node: str
    cards: list[str]
    address: str
    met: list[str]


@pytest.fixture
def gangs(attached: Attached, tmp_path: Path) -> Iterator[Calls]:
    """Who submits calls of gangs."""
    calls = Calls(attached.plane, tmp_path / "gangs", program="gang_calls.py")
    yield calls
    for told in calls.all_told():
        print(told, attached.why(str(told["task_id"])) if "task_id" in told else "")
        if "task_id" in told and "value" not in told:
            attached.ask(object, f"tasks/{told['task_id']}/stop", {}, method="POST")
    calls.close()


def done(call: Call, within_s: float = WITHIN_S) -> float:
    """Wait until its caller has the result of rank 0; returns after how many seconds that was."""
    begun_s = time.monotonic()
    wait_until(lambda: "value" in call.told or "error" in call.told, f"{call.key} ends", within_s)
    assert call.told.get("value") == 0, call.told
    return time.monotonic() - begun_s


def says(attached: Attached, call: Call, *words: str) -> str:
    """Wait until `task why` has these words; returns all that it says. A call is told of before it is kept."""
    said = ""

    def told() -> bool:
        nonlocal said
        with suppress(HTTPError):
            said = attached.why(call.task_id)
        return all(word in said for word in words)

    try:
        wait_until(told, f"why says {words}", WITHIN_S)
    except AssertionError:
        raise AssertionError(f"not {words}, but {said}") from None
    return said


def ranks(gangs: Calls, call: Call) -> list[Rank]:
    """What each rank said, in their order."""
    said = [msgspec.json.decode(path.read_bytes(), type=Rank) for path in gangs.folder.glob(f"{call.key}.rank-*")]
    return sorted(said, key=lambda rank: rank.rank)


def address_of(attached: Attached, name: str) -> str:
    """Where a node is reached."""
    node = attached.kube(lambda kube: kube.get(NODES, name))
    assert node is not None
    return next(each.address for each in node.status.addresses or () if each.type == "InternalIP")


def network(address: str) -> str:
    """What a node and all of its pods have in common: three of four numbers."""
    return address.rpartition(".")[0]


def test_eight_ranks_have_a_card_each_in_one_domain_and_neighbours_are_on_one_node(
    attached: Attached, gangs: Calls
) -> None:
    call = gangs.submit("eight", "eight")
    done(call)
    said = ranks(gangs, call)
    assert [(rank.rank, rank.world_size) for rank in said] == [(rank, 8) for rank in range(8)]
    assert [rank.node for rank in said] == ["tray-0"] * 4 + ["tray-1"] * 4
    cards = [card for rank in said for card in rank.cards]
    assert (len(cards), len(set(cards))) == (8, 8)
    assert all(card.startswith("GPU-") for card in cards), cards
    assert len(attached.worker_jobs()) == 2


def test_two_ranks_with_a_whole_node_each_meet_at_the_address_of_rank_0(attached: Attached, gangs: Calls) -> None:
    call = gangs.submit("meeting", "meeting")
    done(call)
    first, second = ranks(gangs, call)
    assert (first.rank, first.world_size, first.node, first.met) == (0, 2, "tray-0", ["rank 1"])
    assert (second.rank, second.world_size, second.node, second.met) == (1, 2, "tray-1", ["rank 0"])
    assert first.address == second.address
    assert network(first.address) == network(address_of(attached, "tray-0")) != network(address_of(attached, "tray-1"))
    assert (len(first.cards), len(set(first.cards + second.cards))) == (4, 8)


def test_a_gang_is_held_while_a_node_is_cordoned_and_done_soon_after(
    attached: Attached, gangs: Calls, lab: RunningLab
) -> None:
    lab.verb("cordon", "tray-1")
    wait_until(lambda: attached.node("tray-1").state == "cordoned", "it is told", WITHIN_S)
    call = gangs.submit("eight", "eight")
    says(attached, call, f"Only 4 of 8 fit in one {DOMAIN}; tray-1 is cordoned.")
    assert attached.worker_jobs() == []
    assert ranks(gangs, call) == []
    lab.verb("uncordon", "tray-1")
    print(f"done {done(call, AT_MOST_S):.1f} s after uncordon")
    assert [rank.node for rank in ranks(gangs, call)] == ["tray-0"] * 4 + ["tray-1"] * 4


def test_a_gang_is_held_while_its_domain_is_split_and_done_soon_after(
    attached: Attached, gangs: Calls, lab: RunningLab
) -> None:
    whole = lab.status().trays[0].domain
    lab.verb("split-domain", "tray-1")
    assert len({tray.domain for tray in lab.status().trays}) == 2
    lab.verb("cordon", "tray-1")  # it is told of with the split before it
    wait_until(lambda: attached.node("tray-1").state == "cordoned", "both are told", WITHIN_S)
    lab.verb("uncordon", "tray-1")
    wait_until(lambda: attached.node("tray-1").state == "ready", "it is ready again", WITHIN_S)
    call = gangs.submit("eight", "eight")
    says(attached, call, f"Only 4 of 8 fit in one {DOMAIN}; tray-", " is in another one.")
    assert attached.worker_jobs() == []
    assert ranks(gangs, call) == []
    lab.verb("join-domain", "tray-1")
    print(f"done {done(call, AT_MOST_S):.1f} s after join-domain")
    assert {tray.domain for tray in lab.status().trays} == {whole}
    assert len(ranks(gangs, call)) == 8


def test_a_gang_waits_for_the_cards_of_others_beside_workers_that_took_what_was_left(
    attached: Attached, gangs: Calls
) -> None:
    with attached.tenant("tray-1", 2):
        wait_until(lambda: attached.cards_free == 6, "six cards are free", WITHIN_S)
        small = [gangs.submit(f"small-{number}", "one") for number in range(6)]
        assert sorted(call.begins() for call in small) == ["tray-0"] * 4 + ["tray-1"] * 2
        call = gangs.submit("eight", "eight")
        says(attached, call, f"None of 8 fits in one {DOMAIN}; 8 more GB200 needed there.", "holds 6 GB200")
        for each in small:
            each.go()
        says(attached, call, f"Only 6 of 8 fit in one {DOMAIN}; 2 more GB200 needed there.")
        assert ranks(gangs, call) == []
        before = attached.worker_jobs()
    print(f"done {done(call):.1f} s after the others were gone")
    wait_until(
        lambda: len({*attached.worker_jobs()} & {*before}) == 1, "one of two made way for a larger one", WITHIN_S
    )
    assert len({card for rank in ranks(gangs, call) for card in rank.cards}) == 8


def test_a_gang_whose_workers_cannot_start_is_told_of_the_image_and_no_rank_begins(
    attached: Attached, gangs: Calls, lab: RunningLab
) -> None:
    lab.verb("fail-pull", "tray-1")
    call = gangs.submit("eight", "eight")
    says(attached, call, f"Pool {attached.name}: The image levers9", "cannot be pulled")
    assert ranks(gangs, call) == []
    lab.verb("pull-again", "tray-1")
    print(f"done {done(call, AT_MOST_S):.1f} s after images can be pulled again")
    assert len(ranks(gangs, call)) == 8
