"""Campaigning: one reign has one epoch, whoever reigned before."""

from __future__ import annotations

from levers9.actors.leader import BeginReign, Campaign, EndReign, Follow
from levers9.store import operations as ops

HERE, THERE = "ws://here", "ws://there"


def row(epoch: int, holder: str, url: str = "") -> ops.Leadership:
    return ops.Leadership(epoch=epoch, holder=holder, url=url, renewed_at_s=0.0)


def campaign(life: str = "a") -> Campaign:
    return Campaign("here", life, HERE)


def test_the_first_to_ask_leads_and_then_renews() -> None:
    mine = campaign()
    taken = mine.next_operation(1.0, 1.0)
    assert taken == ops.TakeLeadership(holder="here/a", url=HERE, now_s=1.0)
    assert mine.heard(row(1, "here/a", HERE), 0.0) == (BeginReign(1),)
    assert (mine.reigning, mine.followed) == (1, (1, ""))
    assert mine.next_operation(2.0, 2.0) == ops.RenewLeadership(epoch=1, now_s=2.0)


def test_another_leader_is_followed_and_told_once() -> None:
    mine = campaign()
    assert mine.heard(row(3, "there/b", THERE), 0.0) == (Follow(3, THERE),)
    assert mine.heard(row(3, "there/b", THERE), 0.0) == ()
    assert mine.heard(row(4, "there/b", THERE), 0.0) == (Follow(4, THERE),)


def test_a_leader_that_was_superseded_ends_its_reign_and_follows() -> None:
    mine = campaign()
    mine.heard(row(1, "here/a"), 0.0)
    ended, followed = mine.heard(row(2, "there/b", THERE), 0.0)
    assert isinstance(ended, EndReign)
    assert (followed, mine.reigning) == (Follow(2, THERE), 0)


def test_a_brain_that_restarts_within_the_lease_resigns_for_its_former_life_and_takes_an_epoch_of_its_own() -> None:
    mine = campaign("second")
    assert mine.heard(row(4, "here/first", HERE), 0.0) == ()
    assert (mine.resigning, mine.next_operation(1.0, 1.0)) == (True, ops.ResignLeadership(epoch=4))
    mine.resigned()
    assert isinstance(mine.next_operation(1.0, 1.0), ops.TakeLeadership)
    assert mine.heard(row(5, "here/second", HERE), 0.0) == (BeginReign(5),)


def test_a_replica_whose_name_begins_alike_is_another_one() -> None:
    assert campaign().heard(row(1, "here2/a", THERE), 0.0) == (Follow(1, THERE),)


def test_a_reign_that_ended_by_itself_is_resigned_before_the_next() -> None:
    mine = campaign()
    mine.heard(row(1, "here/a"), 0.0)
    mine.reign_ended(1)
    assert (mine.reigning, mine.next_operation(1.0, 1.0)) == (0, ops.ResignLeadership(epoch=1))


def test_a_row_that_was_on_its_way_when_its_reign_ended_begins_nothing() -> None:
    mine = campaign()
    mine.heard(row(1, "here/a"), 0.0)
    mine.reign_ended(1)
    assert mine.heard(row(1, "here/a"), 0.0) == ()
    assert mine.next_operation(1.0, 1.0) == ops.ResignLeadership(epoch=1)
