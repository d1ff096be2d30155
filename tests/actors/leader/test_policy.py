"""Campaigning: one reign has one epoch, whoever reigned before, and clocks that differ a little take nobody's place."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from levers9.actors.leader import BeginReign, Campaign, EndReign, Follow
from levers9.store import operations as ops

HERE, THERE = "ws://here", "ws://there"


def row(epoch: int, holder: str, url: str = "") -> ops.Leadership:
    return ops.Leadership(epoch=epoch, holder=holder, url=url, renewed_at_s=0.0)


def campaign(life: str = "a") -> Campaign:
    return Campaign("here", life, HERE)


def test_the_first_to_ask_leads_and_then_renews() -> None:
    mine = campaign()
    taken = mine.next_operation(1.0)
    assert taken == ops.TakeLeadership(holder="here/a", url=HERE, now_s=1.0, lease_s=5.0)
    assert mine.heard(row(1, "here/a", HERE)) == (BeginReign(1),)
    assert (mine.reigning, mine.followed) == (1, (1, ""))
    assert mine.next_operation(2.0) == ops.RenewLeadership(epoch=1, now_s=2.0)


def test_another_leader_is_followed_and_told_once() -> None:
    mine = campaign()
    assert mine.heard(row(3, "there/b", THERE)) == (Follow(3, THERE),)
    assert mine.heard(row(3, "there/b", THERE)) == ()
    assert mine.heard(row(4, "there/b", THERE)) == (Follow(4, THERE),)


def test_a_leader_that_was_superseded_ends_its_reign_and_follows() -> None:
    mine = campaign()
    mine.heard(row(1, "here/a"))
    ended, followed = mine.heard(row(2, "there/b", THERE))
    assert isinstance(ended, EndReign)
    assert (followed, mine.reigning) == (Follow(2, THERE), 0)


def test_a_brain_that_restarts_within_the_lease_resigns_for_its_former_life_and_takes_an_epoch_of_its_own() -> None:
    mine = campaign("second")
    assert mine.heard(row(4, "here/first", HERE)) == ()
    assert (mine.resigning, mine.next_operation(1.0)) == (True, ops.ResignLeadership(epoch=4))
    mine.resigned()
    assert isinstance(mine.next_operation(1.0), ops.TakeLeadership)
    assert mine.heard(row(5, "here/second", HERE)) == (BeginReign(5),)


def test_a_replica_whose_name_begins_alike_is_another_one() -> None:
    assert campaign().heard(row(1, "here2/a", THERE)) == (Follow(1, THERE),)


def test_a_reign_that_ended_by_itself_is_resigned_before_the_next() -> None:
    mine = campaign()
    mine.heard(row(1, "here/a"))
    mine.reign_ended(1)
    assert (mine.reigning, mine.next_operation(1.0)) == (0, ops.ResignLeadership(epoch=1))


def test_a_row_that_was_on_its_way_when_its_reign_ended_begins_nothing() -> None:
    mine = campaign()
    mine.heard(row(1, "here/a"))
    mine.reign_ended(1)
    assert mine.heard(row(1, "here/a")) == ()
    assert mine.next_operation(1.0) == ops.ResignLeadership(epoch=1)


class Store:
    """The row, as the statements of a store keep it."""

    def __init__(self) -> None:
        self.row: ops.Leadership | None = None

    def apply(self, operation: ops.Operation) -> ops.Leadership | None:
        match operation:
            case ops.TakeLeadership(holder=holder, url=url, now_s=now_s, lease_s=lease_s):
                old = self.row
                if old is None or not old.holder or now_s - old.renewed_at_s >= lease_s:
                    epoch = 1 if old is None else old.epoch + 1
                    self.row = ops.Leadership(epoch=epoch, holder=holder, url=url, renewed_at_s=now_s)
                return self.row
            case ops.RenewLeadership(epoch=epoch, now_s=now_s):
                if self.row and self.row.holder and self.row.epoch == epoch:
                    self.row = ops.Leadership(epoch=epoch, holder=self.row.holder, url=self.row.url, renewed_at_s=now_s)
                return self.row
            case ops.ResignLeadership(epoch=epoch):
                if self.row and self.row.epoch == epoch:
                    self.row = ops.Leadership(epoch=epoch, holder="", url="", renewed_at_s=0.0)
                return None
        raise AssertionError(operation)


def step(mine: Campaign, store: Store, now_s: float) -> None:
    answer = store.apply(mine.next_operation(now_s))
    if answer is None:
        mine.resigned()
    else:
        mine.heard(answer)


def test_clocks_that_differ_by_two_seconds_take_nobodys_place() -> None:
    for ahead_s in (-2.0, 2.0):
        store, leader, other = Store(), Campaign("here", "a", HERE), Campaign("there", "b", THERE)
        step(leader, store, 100.0)
        for tenth in range(1, 600):
            now_s = 100.0 + tenth / 10
            if tenth % 10 == 0:
                step(leader, store, now_s)
            if tenth % 5 == 0:
                step(other, store, now_s + ahead_s)
        assert (leader.reigning, other.reigning, other.followed) == (1, 0, (1, HERE))


class Replicas(RuleBasedStateMachine):
    """Two replicas whose brains restart, stand still and see time differently: no epoch is ever reigned twice."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.lives = 0
        self.now_s = 0.0
        self.reigned: dict[int, str] = {}
        self.brains = {"here": self.born("here"), "there": self.born("there")}

    def born(self, replica: str) -> Campaign:
        self.lives += 1
        return Campaign(replica, str(self.lives), f"ws://{replica}")

    @rule(replica=st.sampled_from(["here", "there"]), ahead_s=st.floats(-3.0, 3.0))
    def asks(self, replica: str, ahead_s: float) -> None:
        brain = self.brains[replica]
        before = brain.reigning
        step(brain, self.store, self.now_s + ahead_s)
        if brain.reigning and brain.reigning != before:
            assert brain.reigning not in self.reigned, "an epoch was reigned twice"
            self.reigned[brain.reigning] = replica

    @rule(replica=st.sampled_from(["here", "there"]))
    def restarts(self, replica: str) -> None:
        self.brains[replica] = self.born(replica)

    @rule(replica=st.sampled_from(["here", "there"]))
    def its_reign_ends(self, replica: str) -> None:
        self.brains[replica].reign_ended(self.brains[replica].reigning)

    @rule(passed_s=st.floats(0.0, 6.0))
    def time_passes(self, passed_s: float) -> None:
        self.now_s += passed_s

    @invariant()
    def whoever_holds_the_row_is_the_newest(self) -> None:
        if self.store.row is not None:
            assert max(self.reigned, default=0) <= self.store.row.epoch


TestReplicas = Replicas.TestCase
