"""Quotas that borrow and lend in nested cohorts, against a count of everything from the beginning."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from levers9.actors.scheduler.quotas import Purse, Quotas, QuotaState, fits, lacks, narrow
from levers9.model.queues import Cohort, Flavor, FlavorLimits, Limits, Queueing, Quota
from levers9.model.reasons import Lack
from levers9.model.resources import Shape

from .queueing_words import configuration, cpus, quota


def states(*quotas: Quota, cohorts: tuple[Cohort, ...] = ()) -> dict[str, QuotaState]:
    return Quotas(configuration(*quotas, cohorts=cohorts)).states


def purse_of(state: QuotaState) -> Purse:
    (purse,) = (purse for purse in state.flavors[0][1] if purse is not None)
    return purse


def test_a_quota_borrows_what_others_of_its_cohort_do_not_use() -> None:
    found = states(quota("a", 4, cohort="c"), quota("b", 4, cohort="c"))
    one, other = purse_of(found["a"]), purse_of(found["b"])
    one.take(6000)
    assert (one.free(), other.free(), one.borrowed) == (2000, 2000, 2000)


def test_nobody_borrows_more_than_it_may() -> None:
    one = purse_of(states(quota("a", 4, cohort="c", borrowing=1), quota("b", 4, cohort="c"))["a"])
    assert one.free() == 5000
    assert one.short_at(5001) is one


def test_what_is_not_lent_is_there_for_its_owner_only() -> None:
    found = states(quota("a", 4, cohort="c"), quota("b", 4, cohort="c", lending=1))
    one, other = purse_of(found["a"]), purse_of(found["b"])
    assert one.free() == 5000
    one.take(5000)
    assert other.free() == 3000


def test_a_cohort_lends_to_its_siblings_and_has_quota_of_its_own() -> None:
    limits = (FlavorLimits(flavor="any", cpu=Limits(nominal=2000, lending=500)),)
    cohorts = (
        Cohort(name="top"),
        Cohort(name="left", parent="top", flavors=limits),
        Cohort(name="right", parent="top"),
    )
    found = states(quota("a", 1, cohort="left", lending=0), quota("b", 1, cohort="right"), cohorts=cohorts)
    assert purse_of(found["a"]).free() == 1000 + 2000 + 1000
    assert purse_of(found["b"]).free() == 1000 + 500


def test_a_cohort_without_any_quota_below_it_still_lends() -> None:
    limits = (FlavorLimits(flavor="any", cpu=Limits(nominal=2000)),)
    cohorts = (
        Cohort(name="top"),
        Cohort(name="spare", parent="top", flavors=limits),
        Cohort(name="used", parent="top"),
    )
    assert purse_of(states(quota("a", 1, cohort="used"), cohorts=cohorts)["a"]).most() == 3000


def test_a_resource_without_limits_is_counted_nowhere_and_still_asked_for() -> None:
    shape = Shape(cpu_milli=1000, memory_mib=1 << 40, gpu_count=8)
    (option,) = states(quota("a", 1))["a"].options(shape)
    assert [(purse.resource, amount) for purse, amount in option.demand] == [("cpu", 1000)]
    assert option.shape == shape


def test_flavors_are_tried_in_the_order_of_the_quota_unless_the_request_prefers_another() -> None:
    flavors = (Flavor(name="old", gpu_type="T4"), Flavor(name="new", gpu_type="H100"))
    lines = tuple(FlavorLimits(flavor=flavor.name, gpu=Limits(nominal=1000)) for flavor in flavors)
    found = Quotas(Queueing(flavors=flavors, quotas=(Quota(name="q", flavors=lines),))).states["q"]
    any_card = found.options(Shape(cpu_milli=1, memory_mib=1, gpu_count=1))
    picky = found.options(Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_types=("H100", "T4")))
    assert [option.flavor for option in any_card] == ["old", "new"]
    assert [option.flavor for option in picky] == ["new", "old"]
    assert picky[0].shape.gpu_types == ("H100",)


def test_a_shape_that_asks_for_something_else_is_not_of_a_flavor() -> None:
    flavor = Flavor(name="f", pool="p", gpu_type="T4", labels={"zone": "a"})
    assert narrow(Shape(cpu_milli=1, memory_mib=1, pool="other"), flavor) is None
    assert narrow(Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_types=("H100",)), flavor) is None
    assert narrow(Shape(cpu_milli=1, memory_mib=1, labels=(("zone", "b"),)), flavor) is None
    narrowed = narrow(Shape(cpu_milli=1, memory_mib=1), flavor)
    assert narrowed is not None
    assert (narrowed.pool, narrowed.gpu_types, narrowed.labels) == ("p", ("T4",), (("zone", "a"),))


def test_what_is_lacking_is_told_in_exact_numbers_by_the_type_of_card() -> None:
    flavor = Flavor(name="gb", gpu_type="GB200")
    lines = (FlavorLimits(flavor="gb", gpu=Limits(nominal=8000)),)
    found = Quotas(Queueing(flavors=(flavor,), quotas=(Quota(name="gpu", flavors=lines),))).states["gpu"]
    (option,) = found.options(Shape(cpu_milli=1, memory_mib=1, gpu_count=4))
    option.demand[0][0].take(8000)
    assert lacks(option, 2) == (Lack("GB200", 8000),)


@pytest.mark.parametrize("amount", [2**63 - 1, 2**63, 2**64, 2**200])
def test_numbers_beyond_64_bits_do_not_get_past_a_quota(amount: int) -> None:
    (option,) = states(quota("a", 4))["a"].options(Shape(cpu_milli=amount, memory_mib=1))
    assert not fits(option, 1)
    assert not fits(option, 4096)


NAMES = ("a", "b", "c", "d")
PARENTS = {"left": "top", "right": "top", "top": ""}
limit = st.none() | st.integers(0, 6)


class CohortMachine(RuleBasedStateMachine):
    """Quotas in a tree of three cohorts; the model is who took what, and sums over it."""

    @initialize(data=st.data())
    def build(self, data: st.DataObject) -> None:
        """Any limits."""
        homes = [data.draw(st.sampled_from(("left", "right", "top"))) for _ in NAMES]
        self.nominal = {name: data.draw(st.integers(0, 8)) for name in (*NAMES, *PARENTS)}
        self.borrowing = {name: data.draw(limit) for name in (*NAMES, *PARENTS)}
        self.lending = {name: data.draw(limit) for name in (*NAMES, *PARENTS)}
        self.parent = {**PARENTS, **dict(zip(NAMES, homes))}
        lines = {
            name: (
                FlavorLimits(
                    flavor="any",
                    cpu=Limits(nominal=self.nominal[name], borrowing=self.borrowing[name], lending=self.lending[name]),
                ),
            )
            for name in self.parent
        }
        cohorts = tuple(Cohort(name=name, parent=PARENTS[name], flavors=lines[name]) for name in PARENTS)
        quotas = tuple(Quota(name=name, cohort=self.parent[name], flavors=lines[name]) for name in NAMES)
        self.states = Quotas(Queueing(flavors=(Flavor(name="any"),), cohorts=cohorts, quotas=quotas)).states
        self.taken = dict.fromkeys(NAMES, 0)
        self.below = {name: [child for child, parent in self.parent.items() if parent == name] for name in self.parent}
        self.total: dict[str, int] = {}
        self.kept: dict[str, int] = {}
        for name in (*NAMES, *PARENTS):  # those above come after those below
            lent = sum(self.total[child] - self.kept[child] for child in self.below[name])
            lending = self.lending[name] if self.parent[name] else None
            self.total[name] = self.nominal[name] + lent
            self.kept[name] = 0 if lending is None else max(0, self.total[name] - lending)

    def _used(self, name: str, taken: dict[str, int]) -> int:
        """What quotas below draw on this, beyond what each keeps for itself."""
        if name in NAMES:
            return taken[name]
        return sum(max(0, self._used(child, taken) - self.kept[child]) for child in self.below[name])

    def _allowed(self, taken: dict[str, int], name: str) -> bool:
        """Whether no limit on the way to the root is broken, as far as this quota has a part in it."""
        before = {**taken, name: self.taken[name]}
        while name:
            total, kept = self.total[name], self.kept[name]
            if not self.parent[name]:
                return self._used(name, taken) <= total
            drawn = max(0, self._used(name, taken) - kept)
            if drawn == max(0, self._used(name, before) - kept):
                return True  # nothing more is asked of those above
            borrowing = self.borrowing[name]
            if borrowing is not None and drawn > total - kept + borrowing:
                return False
            name = self.parent[name]
        return True

    @rule(name=st.sampled_from(NAMES), amount=st.integers(1, 6))
    def take(self, name: str, amount: int) -> None:
        """It is had just when no limit is broken."""
        after = {**self.taken, name: self.taken[name] + amount}
        purse = purse_of(self.states[name])
        allowed = self._allowed(after, name)
        assert (purse.short_at(amount) is None) == allowed
        assert (purse.free() >= amount) == allowed
        assert (purse.missing(amount) == 0) == allowed
        if allowed:
            assert purse.most() >= purse.used + amount
            purse.take(amount)
            self.taken = after

    @rule(name=st.sampled_from(NAMES), amount=st.integers(1, 6))
    def force(self, name: str, amount: int) -> None:
        """What an earlier leader admitted is charged even where limits were lowered since."""
        purse_of(self.states[name]).take(amount)
        self.taken[name] += amount

    @precondition(lambda self: any(self.taken.values()))
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        """Something ends."""
        name = data.draw(st.sampled_from([name for name in NAMES if self.taken[name]]))
        amount = data.draw(st.integers(1, self.taken[name]))
        purse_of(self.states[name]).give(amount)
        self.taken[name] -= amount

    @invariant()
    def used_is_the_sum_of_what_was_taken(self) -> None:
        """I4, at each place of the tree."""
        for name in NAMES:
            purse: Purse | None = purse_of(self.states[name])
            place = name
            while purse is not None:
                assert purse.used == self._used(place, self.taken)
                assert purse.total == self.total[place]
                purse, place = purse.parent, self.parent[place]


TestCohortMachine = CohortMachine.TestCase
TestCohortMachine.settings = settings(settings.get_profile("property"))
TestCohortMachine.pytestmark = [pytest.mark.slow]


def test_the_words_of_tests_make_a_quota_of_cpus() -> None:
    (option,) = states(quota("a", 4))["a"].options(cpus(4))
    assert fits(option, 1)
